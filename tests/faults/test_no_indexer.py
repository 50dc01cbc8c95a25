"""All indexers down: routers answer from their last view, say how old it is, and stay ready."""

from __future__ import annotations

from tests.faults.conftest import Staged
from tests.support.fleet.injector import lasting
from tests.support.waiting import eventually

DOWN_S = 4.0


async def test_routers_answer_from_their_last_view_and_say_how_old_it_is(staged: Staged) -> None:
    async with staged() as scene:
        fleet, indexers = scene.fleet, scene.fleet.running("indexer")
        copy = scene.witness.partitions[scene.partition]
        await fleet.kill(*indexers)
        delta = copy.deltas[-1].number
        await lasting(DOWN_S)
        answers = len(scene.asking.answers)
        await scene.under_load()
        assert len(scene.asking.answers) > answers
        assert copy.deltas[-1].number == delta
        for router in fleet.routers:
            key = {"partition": copy.key}
            age_s = await fleet.metric(router.name, "inferencecache_router_view_age_seconds", **key)
            assert age_s > DOWN_S - 1
            assert await fleet.metric(router.name, "inferencecache_router_view_delta", **key) == delta
            assert await fleet.is_ready(router.name)
        for indexer in indexers:
            await fleet.start(indexer)
        await eventually(lambda: copy.deltas[-1].number > delta, within_s=60)
        await scene.settle()
        assert not scene.asking.amiss()
