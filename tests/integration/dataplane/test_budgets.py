"""Partitions share the cap and quotas by demand; together they never hold more than there is."""

from __future__ import annotations

import asyncio
import itertools

import msgspec

from inferencecache.core.log import Bucket, Entry, Gone
from inferencecache.core.log.subjects import AGGREGATE, POLICY, POLICY_KEY, budget_key
from inferencecache.core.policy import encode_policy_set
from inferencecache.indexer.serve import Indexer
from inferencecache.schemas.budgets import Division
from inferencecache.schemas.ids import ModelId
from inferencecache.schemas.policy import PolicySet, ResolvedQuota
from tests.support.dataplane import TENANT, DataPlane, Producer, fold_of, owns_all
from tests.support.waiting import a_moment, eventually

WHOLE = 200
OTHER_MODEL = ModelId("n")
"""One whose replicas are in the other partition than `MODEL`'s."""


class Watched:
    """Every division that was ever put."""

    def __init__(self) -> None:
        self.divisions: list[Division] = []

    def changed(self, change: Entry | Gone) -> None:
        if isinstance(change, Entry):
            self.divisions.append(msgspec.json.decode(change.value, type=Division))


def entries(indexer: Indexer) -> int:
    return sum(fold_of(partition).view.entries for partition in indexer.partitions)


def held(indexer: Indexer) -> list[int]:
    """Distinct keys of the tenant, by partition."""
    tenants = [fold_of(partition).view.holders.tenants.get(TENANT) for partition in indexer.partitions]
    return [tenant.keys if tenant is not None else 0 for tenant in tenants]


async def filling(producer: Producer) -> None:
    """Store new blocks again and again."""
    for number in itertools.count():
        await producer.store(100 * number)
        await a_moment()


async def test_a_busy_partition_gets_the_cap_that_an_idle_one_does_not_use(plane: DataPlane) -> None:
    indexer = await plane.owner(max_entries=WHOLE)
    await eventually(lambda: [fold_of(each).budget.max_entries for each in indexer.partitions] == [100, 100])
    watched = Watched()
    watching = asyncio.create_task(
        Bucket(await plane.log(), AGGREGATE).watch(watched.changed, keys=budget_key(1)).run()
    )
    producer = await plane.producer("r1")
    await producer.begin()
    storing = asyncio.create_task(filling(producer))
    await eventually(lambda: entries(indexer) >= 0.98 * WHOLE, within_s=60)
    storing.cancel()
    watching.cancel()
    assert entries(indexer) <= WHOLE
    caps = [division.cap for division in watched.divisions if division.cap is not None]
    assert caps
    assert all(sum(cap.parts) <= WHOLE for cap in caps)
    assert [division.number for division in watched.divisions] == sorted(
        {division.number for division in watched.divisions}
    )


async def test_a_quota_follows_its_tenant_from_one_partition_to_the_other(plane: DataPlane) -> None:
    indexer = await plane.owner()
    quotas = PolicySet(quotas=(ResolvedQuota(TENANT, WHOLE),))
    await Bucket(await plane.log(), POLICY).put(POLICY_KEY, encode_policy_set(quotas))
    await eventually(lambda: all(fold_of(each).policy.quotas for each in indexer.partitions))
    first, second = await plane.producer("r1"), await plane.producer("r2", OTHER_MODEL)
    for producer, models_partition in ((first, 0), (second, 1)):
        await producer.begin()
        storing = asyncio.create_task(filling(producer))
        await eventually(
            lambda number=models_partition: held(indexer)[number] >= 0.6 * WHOLE,  # type: ignore[misc]
            within_s=60,
        )
        storing.cancel()
        assert sum(held(indexer)) <= WHOLE


async def test_dividing_goes_on_when_the_divider_dies(plane: DataPlane) -> None:
    indexer = await plane.owner(max_entries=WHOLE)
    standby = await plane.indexer(max_entries=WHOLE)
    producer = await plane.producer("r1")
    await producer.begin()
    storing = asyncio.create_task(filling(producer))
    await eventually(lambda: entries(indexer) > WHOLE // 2, within_s=60)
    await eventually(lambda: standby.ready, within_s=30)
    await plane.kill(indexer)
    await eventually(lambda: owns_all(standby), within_s=30)
    await eventually(lambda: entries(standby) >= 0.98 * WHOLE, within_s=60)
    storing.cancel()
    assert entries(standby) <= WHOLE
