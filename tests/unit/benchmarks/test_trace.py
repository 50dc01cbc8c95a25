"""Traces are read, sliced and spread as they are, and made where there are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.routing.trace import BLOCK_TOKENS, Digests, Request, Trace, generated, load, read, tokens_of
from inferencecache.core.fingerprint import prefix_digests

LINES = [
    b'{"timestamp": 3000, "input_length": 600, "output_length": 9, "hash_ids": [0, 7]}',
    b'{"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [0]}',
]


def trace(*times_s: float) -> Trace:
    return Trace("t", "test", [Request(at_s, BLOCK_TOKENS, (number,)) for number, at_s in enumerate(times_s)])


def test_a_line_becomes_a_request_with_the_tokens_of_each_block() -> None:
    first, second = read(LINES)
    assert first == Request(0.0, 512, (0,))
    assert second == Request(3.0, 600, (0, 7))
    assert second.counts == [512, 88]


def test_a_slice_is_the_beginning() -> None:
    assert [request.at_s for request in trace(0, 1, 5, 6).slice(5).requests] == [0, 1]


def test_requests_of_one_time_are_spread_until_the_next() -> None:
    spread = trace(0, 0, 0, 3, 4, 4).spread()
    assert [request.at_s for request in spread.requests] == [0, 1, 2, 3, 4, 4]
    assert [request.blocks for request in spread.requests] == [(number,) for number in range(6)]


def test_the_ceiling_is_what_one_cache_without_bounds_would_find() -> None:
    requests = [Request(0, 1024, (0, 1)), Request(1, 1536, (0, 1, 2)), Request(2, 1024, (3, 1))]
    assert Trace("t", "test", requests).ceiling == 2 / 7


def test_the_keys_of_a_chain_are_the_fingerprint_of_its_tokens() -> None:
    digests = Digests()
    assert digests.of((5, 300, 70_000)) == prefix_digests(tokens_of((5, 300, 70_000)), BLOCK_TOKENS)
    assert digests.of((5, 300, 9))[:2] == digests.of((5, 300))


def test_tokens_tell_all_blocks_apart() -> None:
    assert len({tokens_of((block,)) for block in range(20_000)}) == 20_000


def test_the_generated_trace_is_the_same_each_time_and_shares_prefixes() -> None:
    requests = list(generated(seed="a", requests=500))
    assert requests == list(generated(seed="a", requests=500))
    assert requests != list(generated(seed="b", requests=500))
    assert all(request.blocks[0] == 0 for request in requests)
    assert all(0 < request.counts[-1] <= BLOCK_TOKENS for request in requests)
    assert 0.2 < Trace("a", "generated", requests).ceiling < 0.7


def test_a_trace_comes_from_the_folder_or_is_generated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOONCAKE_DIR", str(tmp_path))
    assert load("conversation").source == "generated"
    (tmp_path / "conversation_trace.jsonl").write_bytes(b"\n".join(LINES) + b"\n")
    assert load("conversation") == Trace("conversation", "mooncake", read(LINES))
