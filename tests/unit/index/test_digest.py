"""The kernels sum what the definition of the digest says."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from inferencecache.core.index.digest import MASK, access_hash, entry_hash
from inferencecache.core.index.table import HoldTable

u64 = st.integers(0, MASK)
i64 = st.integers(-(2**63), 2**63 - 1)
i32 = st.integers(-(2**31), 2**31 - 1)


@given(u64, u64, i32, i64, st.integers(1, 2**31 - 1), st.integers(1, 2**32 - 1))
def test_a_hold_adds_its_hash(
    identity: int, key: int, tokens: int, seen_us: int, tier: int, accesses: int
) -> None:
    table = HoldTable(1, is_indexer=True)
    holder = table.open_holder(identity, 0, 0, 0, 0)
    keys, counts = np.array([key], np.uint64), np.array([tokens], np.int32)

    certain = entry_hash(identity, key, tokens, seen_us, tier, uncertain=False)
    uncertain = entry_hash(identity, key, tokens, seen_us, tier, uncertain=True)
    counted = access_hash(identity, key, accesses)
    assert table.hold(holder, keys, counts, tier, seen_us)[2] == certain
    assert table.hold(holder, keys, counts, tier, seen_us)[2] == 0
    owners, access = np.array([holder], np.int32), np.array([accesses], np.uint32)
    assert table.credit(owners, keys, access)[3] == counted
    assert table.doubt(holder)[1][2] == (uncertain - certain) & MASK
    assert table.release(holder, keys)[2:] == (-uncertain & MASK, -counted & MASK)


def test_an_access_count_of_nothing_adds_nothing() -> None:
    assert access_hash(1, 2, 0) == 0


def test_each_property_of_a_hold_counts() -> None:
    holds = [
        (1, 2, 3, 4, 1, False),
        (2, 2, 3, 4, 1, False),
        (1, 3, 3, 4, 1, False),
        (1, 2, 4, 4, 1, False),
        (1, 2, 3, 5, 1, False),
        (1, 2, 3, 4, 2, False),
        (1, 2, 3, 4, 1, True),
    ]
    assert len({entry_hash(*hold) for hold in holds}) == len(holds)
