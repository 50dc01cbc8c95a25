"""Any one of three servers may be lost: what was stored stays and counts once, and routers answer."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time

import pytest

from inferencecache.core.log.subjects import deltas_stream, events_stream
from inferencecache.router.following import IndexFollowing
from inferencecache.schemas.ids import AdapterId, ModelId
from inferencecache.schemas.records import Evicted
from tests.support.dataplane import MODEL, DataPlane, Producer, agree, has_all, holders_of
from tests.support.nats import NatsCluster
from tests.support.waiting import eventually, set_within

RECOVERY_LIMIT_S = 20.0
"""Generous: a quiet machine takes 2 to 4 s to elect new leaders and open readers there."""
PACE_S = 0.02
OTHER_MODEL = ModelId("n")
"""Its replicas are in the other partition than those of `MODEL`."""
KEPT = 5
"""A block that stays held all the time."""


class Load:
    """Replicas that store and evict all the time, and questions to routers meanwhile."""

    def __init__(self, producers: list[Producer], routers: list[IndexFollowing]) -> None:
        self._producers = producers
        self._routers = routers
        self._end = asyncio.Event()
        self.asked = 0
        self.unanswered = 0
        self.stored = 0

    def end(self) -> None:
        """Let `run` return once what is under way is stored."""
        self._end.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for producer in self._producers:
                group.create_task(self._report(producer))
            group.create_task(self._ask())

    async def _report(self, producer: Producer) -> None:
        """Of every eight blocks the first four go again: a batch that counted twice would show them."""
        for number in itertools.count(1):
            if await set_within(self._end, PACE_S):
                return
            first = 100 * number
            await producer.store(first)
            gone = range(first, first + 4)
            hashes = b"".join(key.to_bytes(8, "big") for key in gone)
            await producer.report(Evicted(AdapterId(""), 8, hashes))
            for key in gone:
                del producer.known[key]
            self.stored += 1

    async def _ask(self) -> None:
        while not await set_within(self._end, PACE_S):
            for router, producer in itertools.product(self._routers, self._producers):
                self.asked += 1
                holders = holders_of(router, KEPT, producer.model)
                self.unanswered += not router.ready or producer.replica not in holders


async def test_everything_has_three_copies_on_three_servers(plane: DataPlane, cluster: NatsCluster) -> None:
    await plane.owner()
    await plane.follower()
    infos = await cluster.streams()
    assert {info.config.num_replicas for info in infos.values()} == {3}
    assert {"KV_IC_MEMBERS", "KV_IC_AGGREGATE", "OBJ_IC_SNAPSHOTS", events_stream(1, 0)} <= infos.keys()
    for info in infos.values():
        assert info.cluster is not None
        assert len(info.cluster.replicas or ()) == 2


@pytest.mark.timeout(300)
async def test_servers_and_leaders_are_lost_one_after_the_other_under_load(
    plane: DataPlane, cluster: NatsCluster
) -> None:
    await plane.owner()
    standby = await plane.indexer()
    routers = [await plane.follower(), await plane.follower()]
    models = [MODEL, MODEL, OTHER_MODEL, OTHER_MODEL]
    producers = [await plane.producer(f"r{number}", model) for number, model in enumerate(models)]
    for producer in producers:
        await producer.begin()
        await producer.store(0)
    await eventually(lambda: all(has_all(router, *producers)() for router in routers), within_s=30)
    await eventually(lambda: standby.ready, within_s=30)
    load = Load(producers, routers)
    running = asyncio.create_task(load.run())
    recoveries = []
    for stream in (None, events_stream(1, 0), deltas_stream(1, 0)):
        server = await (cluster.leader(stream) if stream else cluster.follower(events_stream(1, 0)))
        began, before = time.monotonic(), load.stored
        await asyncio.to_thread(server.kill)
        deltas = [router.replicas[0].view.delta.sequence for router in routers]
        await eventually(
            lambda deltas=deltas, before=before: (  # type: ignore[misc]
                load.stored >= before + len(producers)
                and all(
                    router.replicas[0].view.delta.sequence > delta + 10
                    for router, delta in zip(routers, deltas, strict=True)
                )
            ),
            within_s=RECOVERY_LIMIT_S,
            what=f"the recovery from the loss of {'the leader of ' + stream if stream else 'a follower'}",
        )
        recoveries.append(time.monotonic() - began)
        await asyncio.to_thread(server.start)
        await eventually(cluster.is_whole, within_s=60, what="the third server's catching up")
    load.end()
    await running
    logging.getLogger(__name__).info("recovered after %s s", [round(each, 1) for each in recoveries])
    await eventually(lambda: all(has_all(router, *producers)() for router in routers), within_s=30)
    await eventually(lambda: agree(*routers), within_s=30)
    assert load.asked > 0
    assert load.unanswered == 0
    assert [producer.requests for producer in producers] == [[]] * 4, "a hole would make the owner ask"
