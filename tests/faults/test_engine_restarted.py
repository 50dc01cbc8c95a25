"""An engine restarted under the same pod name, whose numbers go on exactly next, higher or lower: the blocks
of the dead process vanish.
"""

from __future__ import annotations

from tests.faults.conftest import Staged
from tests.support.fleet.checks import index_equals_engines
from tests.support.fleet.processes import Fleet

METRIC = "inferencecache_subscriber_"
ENGINE = "engine-2"
SIDECAR = "sidecar-2"


async def test_blocks_of_the_dead_process_vanish_whatever_number_the_next_one_begins_with(
    staged: Staged,
) -> None:
    async with staged(loaded=False) as scene:
        fleet = scene.fleet
        async with scene.loaded():
            pass
        await index_equals_engines(fleet, scene.witness)
        messages = [
            await fleet.metric(SIDECAR, METRIC + name)
            for name in ("messages_total", "replayed_messages_total")
        ]
        exactly_next = int(sum(messages))
        assert exactly_next > 10
        for first in (exactly_next, 1_000_000, 0):
            before = await index_equals_engines(fleet, scene.witness)
            assert before[ENGINE]
            restarts = await restarts_seen(fleet)
            fleet.flags[ENGINE] = (f"--first-sequence={first}",)
            await fleet.restart(ENGINE)
            async with scene.loaded():
                pass
            after = await index_equals_engines(fleet, scene.witness)
            assert after[ENGINE]
            assert after[ENGINE] != before[ENGINE]
            assert await restarts_seen(fleet) > restarts
        await scene.settle()
        assert not scene.asking.amiss()


async def restarts_seen(fleet: Fleet) -> float:
    """How often the sidecar took its engine for another process."""
    return await fleet.metric(SIDECAR, METRIC + "engine_restarts_total")
