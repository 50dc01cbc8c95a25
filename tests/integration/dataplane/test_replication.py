"""What producers append reaches every router, through whatever happens to the processes between."""

from __future__ import annotations

import asyncio

import pytest

from inferencecache.core.log import Bucket, jetstream
from inferencecache.core.log.subjects import POLICY, POLICY_KEY, partition_of, snapshot_request_subject
from inferencecache.core.policy import encode_policy_set
from inferencecache.schemas.ids import ModelId
from inferencecache.schemas.layout import Layout
from inferencecache.schemas.policy import PolicySet, ResolvedPolicy
from tests.support.dataplane import MODEL, TENANT, DataPlane, agree, fold_of, has_all, holders_of, owns_all
from tests.support.waiting import eventually

OTHER_MODEL = next(
    ModelId(f"m{number}")
    for number in range(100)
    if partition_of(TENANT, f"m{number}", "r", Layout()) != partition_of(TENANT, MODEL, "r", Layout())
)


async def test_batches_reach_all_followers_with_the_same_digest_at_the_same_delta(plane: DataPlane) -> None:
    indexer = await plane.owner()
    routers = [await plane.follower(), await plane.follower()]
    one, two = await plane.producer("r1"), await plane.producer("r2", OTHER_MODEL)
    await one.begin()
    await two.begin()
    for number in range(50):
        await one.store(1000 * number)
        await two.store(1000 * number)
    for router in routers:
        await eventually(has_all(router, one, two))
    await eventually(lambda: agree(*routers))
    digests = [fold_of(partition).view.digest for partition in indexer.partitions]
    await eventually(lambda: [replica.view.digest for replica in routers[0].replicas] == digests)
    assert all(replica.view.entries for replica in routers[0].replicas)
    assert all(replica.follower.repairs == 0 for router in routers for replica in router.replicas)


async def test_routers_and_indexers_may_start_in_any_order(plane: DataPlane) -> None:
    router = await plane.follower()
    producer = await plane.producer("r1")
    await producer.begin()
    await producer.store(1)
    await plane.owner()
    await eventually(has_all(router, producer))


async def test_a_late_follower_starts_from_the_snapshot(plane: DataPlane) -> None:
    indexer = await plane.owner()
    producer = await plane.producer("r1")
    await producer.begin()
    log = await plane.log()
    number = partition_of(TENANT, MODEL, "r1", Layout())
    machine = indexer.partitions[number].state.telling.snapshots  # type: ignore[union-attr]
    for round_ in range(3):
        await producer.store(1000 * round_)
        before = machine.referenced_count
        await log.send(snapshot_request_subject(1, number), b"")
        await eventually(lambda before=before: machine.referenced_count > before)  # type: ignore[misc]
        await eventually(lambda: not machine.busy)
    await eventually(lambda: machine.referenced_count >= 3)

    async def is_purged() -> bool:
        return (await jetstream.stream_info(log, f"IC_DELTAS_1_{number}")).state.first_seq > 1

    await eventually(is_purged)
    router = await plane.follower()
    await eventually(has_all(router, producer))
    assert router.replicas[number].follower.repairs == 0


async def test_an_indexer_that_is_killed_and_restarted_goes_on_where_deltas_ended(plane: DataPlane) -> None:
    first = await plane.owner()
    router = await plane.follower()
    producer = await plane.producer("r1")
    await producer.begin()
    await producer.store(1)
    await eventually(has_all(router, producer))
    await plane.kill(first)
    await producer.store(100)
    await plane.owner()
    await producer.store(200)
    await eventually(has_all(router, producer))
    assert all(replica.follower.repairs == 0 for replica in router.replicas)
    late = await plane.follower()
    await eventually(lambda: agree(router, late))


async def test_an_indexer_that_stops_is_replaced_at_once(plane: DataPlane) -> None:
    first = await plane.owner()
    second = await plane.indexer()
    await eventually(lambda: second.ready, within_s=20)
    router = await plane.follower()
    producer = await plane.producer("r1")
    await producer.begin()
    await plane.stop(first)
    await producer.store(1)
    await eventually(lambda: owns_all(second), within_s=3)
    await producer.store(100)
    await eventually(has_all(router, producer), within_s=3)
    assert all(replica.follower.repairs == 0 for replica in router.replicas)


@pytest.mark.parametrize("kill", [False, True])
async def test_a_restart_of_the_server_loses_and_repeats_nothing(plane: DataPlane, kill: bool) -> None:
    indexer = await plane.owner()
    routers = [await plane.follower(), await plane.follower()]
    producer = await plane.producer("r1")
    await producer.begin()

    async def report() -> None:
        for number in range(200):
            await producer.store(100 * number)

    reporting = asyncio.create_task(report())
    await eventually(lambda: len(producer.known) > 300)
    await asyncio.to_thread(plane.server.restart, kill=kill)
    await reporting
    for router in routers:
        await eventually(has_all(router, producer), within_s=20)
    await eventually(lambda: agree(*routers))
    await eventually(lambda: owns_all(indexer))
    assert not producer.requests
    assert all(replica.follower.repairs == 0 for router in routers for replica in router.replicas)


async def test_a_missing_batch_makes_its_producer_begin_anew(plane: DataPlane) -> None:
    await plane.owner()
    router = await plane.follower()
    producer = await plane.producer("r1")
    await producer.begin()
    await producer.store(1)
    producer.skip()
    await producer.store(100)
    await eventually(lambda: [request.kind for request in producer.requests] == ["resync"])
    await eventually(has_all(router, producer))


async def test_a_producer_whose_place_is_taken_is_told(plane: DataPlane) -> None:
    await plane.owner()
    router = await plane.follower()
    old, new = await plane.producer("r1"), await plane.producer("r1")
    await old.begin()
    await old.store(1)
    new._incarnation = old._incarnation
    next(new._lives)
    await new.begin()
    await new.store(500)
    await old.store(100)
    await eventually(lambda: any(request.kind == "fenced" for request in old.requests))
    await eventually(has_all(router, new))


async def test_policy_reaches_routers_and_the_log(plane: DataPlane) -> None:
    indexer = await plane.owner()
    router = await plane.follower()
    policy = ResolvedPolicy("t", eviction_ttl_ms=60_000)
    revision = await Bucket(await plane.log(), POLICY).put(
        POLICY_KEY, encode_policy_set(PolicySet(policies=(policy,)))
    )
    await eventually(lambda: router.policy(TENANT) == policy)
    folds = [fold_of(partition) for partition in indexer.partitions]
    await eventually(lambda: all(fold.policy.revision == revision for fold in folds))
    assert [fold.policy.policies[0].ttl_us for fold in folds] == [60_000_000] * 2


async def test_the_cap_holds_and_what_it_evicts_reaches_routers(plane: DataPlane) -> None:
    indexer = await plane.owner(max_entries=100)
    router = await plane.follower()
    folds = [fold_of(partition) for partition in indexer.partitions]
    await eventually(lambda: all(fold.budget.max_entries == 50 for fold in folds))
    producer = await plane.producer("r1")
    await producer.begin()
    for number in range(20):
        await producer.store(100 * number)
    await eventually(lambda: holders_of(router, 1907) == {"r1"})
    kept = sum(replica.view.entries for replica in router.replicas)
    assert 50 <= kept <= 100
    assert sum(partition.evictions["lru", "cap"] for partition in indexer.partitions) == 160 - kept
