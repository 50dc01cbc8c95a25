"""The benchmark on the real stack, in small: what is measured, and that a hot prefix draws no herd there."""

from __future__ import annotations

import pytest

from benchmarks.routing.publishing import Statistics
from benchmarks.routing.replay import Conditions, Fleet, replay
from benchmarks.routing.trace import BLOCK_TOKENS, Request, Trace

HOT = tuple(range(1, 9))
EVERY_S = 0.25
REQUESTS = 160
FLEET = Fleet(engines=4, blocks=2000, rate=8000.0)


def hot_trace() -> Trace:
    """One prompt alone, then after a while everybody with its eight blocks and two of their own.

    One engine could compute half of what comes if it held the eight blocks alone.
    """
    first = Request(0.0, len(HOT) * BLOCK_TOKENS, HOT)
    others = [
        Request(
            10.0 + EVERY_S * number, (len(HOT) + 2) * BLOCK_TOKENS, (*HOT, 100 + 2 * number, 101 + 2 * number)
        )
        for number in range(REQUESTS)
    ]
    return Trace("hot", "generated", [first, *others])


@pytest.mark.parametrize(
    "statistics",
    ["fresh", pytest.param("stale", marks=pytest.mark.long), pytest.param("absent", marks=pytest.mark.long)],
)
@pytest.mark.timeout(180)
async def test_a_hot_prefix_on_one_engine_draws_no_herd_on_the_real_stack(statistics: Statistics) -> None:
    figures = await replay(hot_trace(), FLEET, Conditions(10.0, statistics))
    plain, balanced = figures.policies[2:]
    assert (plain.policy, balanced.policy) == ("plain", "balanced")
    assert [policy.requests for policy in figures.policies] == [REQUESTS + 1] * 4
    assert balanced.request_skew < 2.0, "no engine gets half of all"
    assert balanced.request_skew < plain.request_skew
    assert balanced.reasons["PREFIX_MATCH"] > 0
    assert balanced.cached_share > 0.4
    assert figures.lookups.count == 2 * (REQUESTS + 1)
    assert figures.visible.count > 0
    assert figures.visible.p50_ms < 1000
