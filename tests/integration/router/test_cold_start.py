"""A router with a large index to load, from the start of its process until it is ready."""

from __future__ import annotations

import pytest

from benchmarks.cold_router_bench import LAYOUT, measure

ENTRIES = 1_000_000
DELTAS = 500
BOUND_S = 15.0
"""Generous: a quiet machine takes less than 2 s, one that runs other tests several times that."""


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_a_router_with_a_million_entries_is_soon_ready_and_has_them_all() -> None:
    routers, _ = await measure(ENTRIES, DELTAS, starts=3, kills=0)
    assert min(router.wall_s for router in routers) < BOUND_S
    assert {router.entries for router in routers} == {ENTRIES + LAYOUT.partitions * DELTAS}
