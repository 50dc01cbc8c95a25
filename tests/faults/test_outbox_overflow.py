"""NATS away longer than a sidecar's outbox lasts: it drops, then says all it knows once more."""

from __future__ import annotations

from tests.faults.conftest import Staged
from tests.support.fleet.processes import NATS
from tests.support.waiting import eventually

METRIC = "inferencecache_subscriber_"


async def test_what_the_outbox_dropped_is_made_good_by_one_resync(staged: Staged) -> None:
    async with staged(flags={"sidecar": ("--outbox-max=16",)}) as scene:
        fleet = scene.fleet

        async def has_overflowed() -> bool:
            return await fleet.metric("sidecar-2", METRIC + "outbox_overflows_total") > 0

        await fleet.kill(NATS)
        await eventually(has_overflowed, within_s=60)
        assert await fleet.metric("sidecar-2", METRIC + "outbox_dropped_records_total") > 0
        assert not fleet.pid(NATS)
        await fleet.start(NATS)
        await scene.under_load()
        await scene.settle()
        lives = {batch.incarnation for batch in scene.batches("engine-2")}
        assert len(lives) == await fleet.metric("sidecar-2", METRIC + "begins_total") == 2
        assert await fleet.metric("sidecar-1", METRIC + "begins_total") == 1
        assert not scene.asking.amiss()
