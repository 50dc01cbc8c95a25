"""Whoever ends in the midst of work leaves nothing of it behind."""

from __future__ import annotations

import gc
import itertools

from inferencecache.cli.running import in_background
from inferencecache.core.log import Log
from inferencecache.core.log.subjects import partition_of, replica_subject
from inferencecache.schemas.ids import Incarnation, ReplicaId
from inferencecache.schemas.layout import Layout
from inferencecache.schemas.records import Batch, encode_batch
from inferencecache.schemas.senders import ReplicaSender
from tests.support.dataplane import MODEL, TENANT, DataPlane
from tests.support.waiting import a_turn, eventually

PARTITION = partition_of(TENANT, MODEL, "any", Layout())
AT_ONCE = 20
LONG = 1_000


async def flood(log: Log) -> None:
    """Messages of ever other replicas, each of which its owner asks for all that the replica has."""
    payload = encode_batch(Batch(Incarnation("unknown"), 5))
    for number in itertools.count():
        sender = ReplicaSender(TENANT, MODEL, ReplicaId(f"r{number}"), "e")
        await log.send(replica_subject(1, PARTITION, sender), payload)
        if number % AT_ONCE == 0:
            await a_turn()


async def end_in_a_flood(plane: DataPlane) -> None:
    indexer = await plane.owner()
    partition = next(each for each in indexer.partitions if each.number == PARTITION)
    async with in_background(flood(await plane.log())):
        await eventually(lambda: partition.resyncs_sent["resync"] > LONG)
        await plane.stop(indexer)


async def test_an_indexer_that_ends_while_messages_arrive_leaves_nothing_undone(plane: DataPlane) -> None:
    for _ in range(3):
        await end_in_a_flood(plane)
        gc.collect()  # a coroutine that was never awaited says so when it goes
