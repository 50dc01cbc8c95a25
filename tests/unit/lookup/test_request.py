"""Which input of a lookup counts."""

from __future__ import annotations

from typing import Any

import pytest

from inferencecache.core.fingerprint import prefix_digests
from inferencecache.core.index.request import (
    MAX_TOKENS,
    Inputs,
    Resolution,
    RouteRequest,
    resolve,
)
from inferencecache.schemas.ids import HashScheme, ModelId, TenantId

H = {"block_hashes": [b"b1", b"b2"], "block_token_counts": [16, 16]}
BROKEN = {"block_hashes": [b"b1", b"b2"], "block_token_counts": [16]}
P = {"prefix_hash": b"p", "prefix_token_count": 128}
TOKENS = {"token_ids": range(1000, 1032)}
TEXT_TOKENS = range(1000, 1032)
TEXT = {"prompt_text": "hello", "prompt_tokens": TEXT_TOKENS}
DERIVED = prefix_digests(range(1000, 1032), 16)

CHAIN = Inputs([b"b1", b"b2"], [16, 16], b"", 0)
EXACT = Inputs((), (), b"p", 128)
TOKEN_CHAIN = Inputs(DERIVED, [16, 16])
TOKEN_EXACT = Inputs((), (), DERIVED[-1], 32)


def request(**fields: Any) -> RouteRequest:
    return RouteRequest(TenantId("t"), ModelId("m"), HashScheme("s"), **fields)


@pytest.mark.rule("WIRE-058", "WIRE-060", "IDX-132", "IDX-59", "IDX-60")
@pytest.mark.parametrize(
    ("fields", "inputs"),
    [
        (H, CHAIN),
        (P, EXACT),
        (H | P, CHAIN._replace(exact=b"p", exact_tokens=128)),
        (H | P | TOKENS | TEXT, CHAIN._replace(exact=b"p", exact_tokens=128)),
        (P | TOKENS | TEXT, EXACT),
        (BROKEN, None),
        (BROKEN | P | TOKENS | TEXT, None),
        ({"block_token_counts": [16]}, None),
        ({"block_hashes": [b"b1"]}, None),
        (TOKENS, TOKEN_CHAIN),
        (TOKENS | TEXT, TOKEN_CHAIN),
        ({}, Inputs()),
        ({"prefix_token_count": 9}, Inputs(exact_tokens=9)),
    ],
)
def test_with_chain_matching_an_explicit_input_comes_first(
    fields: dict[str, Any], inputs: Inputs | None
) -> None:
    assert resolve(request(**fields), chain_matching=True) == Resolution(inputs)


@pytest.mark.rule("WIRE-059", "WIRE-C23", "IDX-132")
@pytest.mark.parametrize(
    ("fields", "inputs"),
    [
        (P, EXACT),
        (P | H, EXACT),
        (P | BROKEN | TOKENS | TEXT, EXACT),
        (TOKENS, TOKEN_EXACT),
        (TOKENS | H | TEXT, TOKEN_EXACT),
        (TOKENS | BROKEN, TOKEN_EXACT),
        (H, None),
        (BROKEN, None),
        ({}, Inputs()),
        ({"prefix_token_count": 9}, Inputs(exact_tokens=9)),
    ],
)
def test_without_chain_matching_there_are_only_exact_keys(
    fields: dict[str, Any], inputs: Inputs | None
) -> None:
    assert resolve(request(**fields), chain_matching=False) == Resolution(inputs)


@pytest.mark.parametrize("chain_matching", [True, False])
@pytest.mark.parametrize(
    "fields", [{}, H, P, BROKEN, TOKENS, TEXT, P | TOKENS, H | TEXT, BROKEN | TOKENS, TOKENS | TEXT]
)
def test_digests_that_the_caller_has_made_count_as_those_that_are_made_here(
    fields: dict[str, Any], chain_matching: bool
) -> None:
    asked = request(**fields)
    tokens = asked.tokens_that_count(chain_matching)
    prepared = asked._replace(digests=prefix_digests(tokens, asked.block_size)) if tokens else asked
    assert resolve(prepared, chain_matching) == resolve(asked, chain_matching)


def test_tokens_count_where_nothing_more_explicit_was_sent_and_only_in_a_bearable_number() -> None:
    none: list[dict[str, Any]] = [H, P, BROKEN, H | TOKENS, {"token_ids": [5] * (MAX_TOKENS + 1)}, {}]
    for fields in none:
        assert not request(**fields).tokens_that_count(chain_matching=True)
    some: list[dict[str, Any]] = [TOKENS, TEXT, TOKENS | {"prompt_text": "other"}]
    for fields in some:
        assert request(**fields).tokens_that_count(chain_matching=True) == range(1000, 1032)
    assert request(**H | TOKENS).tokens_that_count(chain_matching=False) == range(1000, 1032)


def test_the_derived_exact_key_is_the_frozen_one() -> None:
    assert TOKEN_EXACT.exact.hex() == "3d5ff0dd2a93fd39"


@pytest.mark.rule("WIRE-073")
def test_tokens_made_from_text_are_echoed_and_sent_ones_are_not() -> None:
    assert resolve(request(**TEXT), chain_matching=True) == Resolution(TOKEN_CHAIN, TEXT_TOKENS)
    assert resolve(request(**TEXT | BROKEN), chain_matching=False) == Resolution(TOKEN_EXACT, TEXT_TOKENS)
    assert resolve(request(**TEXT | TOKENS), chain_matching=True).echo == ()


@pytest.mark.rule("WIRE-061")
@pytest.mark.parametrize("chain_matching", [True, False])
def test_less_than_a_block_fails_open_with_an_echo_only_for_text(chain_matching: bool) -> None:
    assert resolve(request(token_ids=range(8)), chain_matching) == Resolution(None)
    short = request(prompt_text="hi", prompt_tokens=range(8))
    assert resolve(short, chain_matching) == Resolution(None, range(8))


@pytest.mark.rule("WIRE-062", "WIRE-050")
@pytest.mark.parametrize("tokens", [(), range(MAX_TOKENS + 1)], ids=["no token", "too many"])
def test_text_that_gives_no_usable_tokens_fails_open_without_echo(tokens: range) -> None:
    assert resolve(request(prompt_text="hi", prompt_tokens=tokens), chain_matching=True) == Resolution(None)


@pytest.mark.rule("WIRE-050", "WIRE-C19")
def test_one_token_more_than_a_million_fails_open() -> None:
    assert resolve(request(token_ids=[5] * (MAX_TOKENS + 1)), chain_matching=True).inputs is None
    allowed = resolve(request(token_ids=[5] * MAX_TOKENS), chain_matching=True).inputs
    assert allowed is not None
    assert len(allowed.hashes) == 65_536


@pytest.mark.rule("IDX-133", "WIRE-066", "WIRE-028")
@pytest.mark.parametrize(
    ("inputs", "tokens"),
    [
        (Inputs([b"b"] * 3, [16, 16, 16], b"p", 500), 48),
        (Inputs((), (), b"p", 500), 500),
        (Inputs(), 0),
        (Inputs([b"a", b"b"], [2**31 - 1, 1]), -(2**31)),
    ],
)
def test_the_size_of_a_request_is_that_of_its_chain_else_that_of_its_key(inputs: Inputs, tokens: int) -> None:
    assert inputs.tokens == tokens


@pytest.mark.rule("WIRE-057")
def test_tokens_and_broken_arrays_are_no_chain() -> None:
    assert request(**H).has_chain
    for fields in (BROKEN, TOKENS, TEXT, P, {}, {"block_token_counts": [1]}):
        assert not request(**fields).has_chain


@pytest.mark.rule("WIRE-058", "WIRE-059", "IDX-132")
@pytest.mark.parametrize("chain_matching", [True, False])
@pytest.mark.parametrize("text", [{}, TEXT])
@pytest.mark.parametrize("tokens", [{}, TOKENS])
@pytest.mark.parametrize("exact", [{}, P])
@pytest.mark.parametrize("chain", [{}, H, BROKEN, {"block_token_counts": [16]}])
def test_text_is_to_be_tokenized_exactly_when_it_is_the_input_that_counts(
    chain_matching: bool,
    text: dict[str, Any],
    tokens: dict[str, Any],
    exact: dict[str, Any],
    chain: dict[str, Any],
) -> None:
    made = request(**chain, **exact, **tokens, **text)
    assert made.is_about_text(chain_matching) == (resolve(made, chain_matching).echo == TEXT_TOKENS)
