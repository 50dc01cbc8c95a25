"""nats-server killed and restarted under load: nothing lost, nothing twice, routers keep answering."""

from __future__ import annotations

from tests.faults.conftest import Staged
from tests.support.fleet.injector import lasting
from tests.support.fleet.processes import NATS

DOWN_S = 1.0


async def test_producers_go_on_in_order_and_routers_keep_answering(staged: Staged) -> None:
    async with staged() as scene:
        fleet = scene.fleet
        copy = scene.witness.partitions[scene.partition]
        for _ in range(2):
            before = fleet.pid(NATS)
            await fleet.kill(NATS)
            await lasting(DOWN_S)
            await fleet.start(NATS)
            assert fleet.pid(NATS) not in (0, before)
            await scene.under_load()
        await scene.settle()
        assert not scene.asking.amiss()
        assert not copy.losses
        for engine in fleet.engines:
            sequences = [batch.sequence for batch in scene.batches(engine.replica)]
            assert sequences == list(range(1, len(sequences) + 1)), "a batch is missing, or there twice"
            sidecar = engine.replica.replace("engine", "sidecar")
            assert await fleet.metric(sidecar, "inferencecache_subscriber_begins_total") == 1
            assert await fleet.metric(sidecar, "inferencecache_subscriber_outbox_overflows_total") == 0
        assert await scene.repairs() == 0
