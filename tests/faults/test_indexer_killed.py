"""An indexer killed with -9: another owns its partitions in time, and routers see no gap."""

from __future__ import annotations

import time

from tests.faults.conftest import Staged
from tests.support.waiting import eventually

LIMIT_S = 5.0


async def test_another_takes_over_within_five_seconds_and_routers_see_no_gap(staged: Staged) -> None:
    async with staged() as scene:
        fleet, repairs = scene.fleet, await scene.repairs()
        victim = scene.owner(scene.partition)
        owned = [copy for copy in scene.witness.partitions if scene.owner(copy.number) == victim]
        epochs = {copy.number: copy.claims[-1].sequence for copy in owned}
        killed_at = time.monotonic()
        await fleet.kill(victim)
        assert not fleet.pid(victim)

        def is_taken_over() -> bool:
            return all(copy.deltas[-1].delta.owner_epoch > epochs[copy.number] for copy in owned)

        await eventually(is_taken_over, within_s=30)
        assert time.monotonic() - killed_at < LIMIT_S
        assert all(scene.owner(copy.number) != victim for copy in owned)
        await scene.under_load()
        assert await scene.repairs() == repairs
        await fleet.start(victim)
        await scene.settle()
        assert await scene.repairs() == repairs
        assert not scene.asking.amiss()
