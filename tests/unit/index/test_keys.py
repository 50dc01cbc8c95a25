"""Hashes of any width become 64-bit keys [architecture, section 2]."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferencecache.core.index.keys import MalformedHashesError, chain_keys, key_array, key_of, keys_of
from tests.oracle import keys as oracle

short = st.binary(max_size=7)


@given(st.binary(max_size=40))
def test_a_key_is_the_oracles(hash_: bytes) -> None:
    assert key_of(hash_) == oracle.key_of(hash_)


@given(short, short)
def test_short_hashes_keep_their_identity_and_order(one: bytes, other: bytes) -> None:
    assert (key_of(one) < key_of(other)) == (one < other)
    assert (key_of(one) == key_of(other)) == (one == other)


@given(st.binary(min_size=8, max_size=8), st.binary(min_size=8, max_size=8))
def test_hashes_of_eight_bytes_keep_their_order(one: bytes, other: bytes) -> None:
    assert (key_of(one) < key_of(other)) == (one < other)


@given(st.integers(0, 40).flatmap(lambda width: st.lists(st.binary(min_size=width, max_size=width))))
def test_a_column_has_the_keys_of_its_hashes(hashes: list[bytes]) -> None:
    width = len(hashes[0]) if hashes else 8
    class_, keys = key_array(width, b"".join(hashes), len(hashes))
    assert [(class_, key) for key in keys.tolist()] == [key_of(hash_) for hash_ in hashes]
    assert keys_of(width, b"".join(hashes), len(hashes)) == (class_, keys.tobytes())


@given(st.lists(st.binary(max_size=12), min_size=1))
def test_a_chain_has_the_keys_of_its_hashes(hashes: list[bytes]) -> None:
    classes, keys = chain_keys(hashes)
    classes *= len(hashes) if len(classes) == 1 else 1
    assert list(zip(classes, keys.tolist(), strict=True)) == [key_of(hash_) for hash_ in hashes]


@pytest.mark.parametrize(
    ("width", "hashes", "count"),
    [(8, b"1234567", 1), (3, b"1234", 1), (9, b"12345678", 1), (-1, b"", 0), (0, b"1", 1), (0, b"", -1)],
)
def test_a_malformed_column_is_refused(width: int, hashes: bytes, count: int) -> None:
    with pytest.raises(MalformedHashesError):
        key_array(width, hashes, count)
