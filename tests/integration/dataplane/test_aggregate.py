"""Owners count what they own where the controller reads it, every few seconds even when nothing changes."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from inferencecache.core.index.aggregate import merge
from inferencecache.core.log import Bucket, Entry, Gone, jetstream
from inferencecache.core.log.subjects import AGGREGATE
from inferencecache.schemas.aggregate import PartitionAggregate
from tests.support.dataplane import TENANT, DataPlane
from tests.support.waiting import eventually


@pytest.mark.rule("IDX-186")
async def test_every_owned_partition_is_put_and_put_again(plane: DataPlane) -> None:
    await plane.owner()
    producer = await plane.producer("r1")
    await producer.begin()
    await producer.store(0)
    values: dict[str, PartitionAggregate] = {}
    revisions: dict[str, set[int]] = {"1.0": set(), "1.1": set()}

    def changed(change: Entry | Gone) -> None:
        if isinstance(change, Entry):
            values[change.key] = msgspec.json.decode(change.value, type=PartitionAggregate)
            revisions[change.key].add(change.revision)

    watching = asyncio.create_task(Bucket(await plane.log(), AGGREGATE).watch(changed).run())
    await eventually(lambda: all(len(seen) > 2 for seen in revisions.values()), within_s=30)
    watching.cancel()
    document = merge(values.values())
    assert [(row.replica_id, row.tenant, row.prefix_count) for row in document.replicas] == [
        ("r1", TENANT, 8)
    ]
    assert document.total_prefixes == 8


async def test_a_bucket_that_somebody_deletes_is_there_again_with_all_counts(plane: DataPlane) -> None:
    await plane.owner()
    log = await plane.log()
    bucket = Bucket(log, AGGREGATE)

    async def is_counted() -> bool:
        try:
            return {entry.key for entry in await bucket.entries()} >= {"1.0", "1.1"}
        except jetstream.NoStreamError:
            return False

    await eventually(is_counted, within_s=30)
    await jetstream.delete_stream(log, f"KV_{AGGREGATE}")
    assert not await is_counted()
    await eventually(is_counted, within_s=30)
