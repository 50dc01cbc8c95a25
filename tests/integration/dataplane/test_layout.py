"""The layout changes while everything runs, and no lookup notices."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from structlog.testing import capture_logs

from inferencecache.cli.layouts.store import LayoutError, LayoutStore
from inferencecache.core.log import Bucket, Objects, StreamMessage, jetstream
from inferencecache.core.log.subjects import (
    AGGREGATE,
    LAYOUT,
    LAYOUT_KEY,
    REFS,
    SNAPSHOTS,
    partition_of,
    partitions_of,
)
from inferencecache.router.following import IndexFollowing
from inferencecache.router.ingest import Ingest
from inferencecache.router.restriction import Restriction
from inferencecache.schemas.ids import ModelId
from inferencecache.schemas.layout import CurrentLayout, Lanes, Layout
from inferencecache.v1alpha1.inferencecache_pb2 import CacheEvent
from tests.support.dataplane import MODEL, TENANT, DataPlane, Producer, agree, has_all, holders_of, owns_all
from tests.support.hot_fleet import Fleet, ended
from tests.support.waiting import a_moment, eventually

FIRST = Layout(1, 2)
SWAP_S = 25
"""Less than the time after which a router waits for nobody any more."""


def serves(following: IndexFollowing, generation: int) -> bool:
    layout = following.layout
    return layout is not None and layout.generation == generation


async def could_serve(*followings: IndexFollowing) -> None:
    """Wait until each could answer by the coming generation, and has decided not to yet."""
    for following in followings:
        machine = following.generations
        await eventually(lambda machine=machine: machine._able_since is not None, within_s=SWAP_S)  # type: ignore[misc]


async def hold_all_the_time(following: IndexFollowing, producer: Producer) -> None:
    """Until cancelled."""
    while True:
        assert all(holders_of(following, key) == {producer.replica} for key in producer.known)
        await a_moment()


@pytest.mark.parametrize(
    ("partitions", "lanes"),
    [(4, ()), (3, (Lanes(TENANT, MODEL, 3),)), (1, ())],
    ids=["more", "lanes", "fewer"],
)
async def test_a_change_under_load_fails_no_lookup_and_loses_nothing(
    plane: DataPlane, partitions: int, lanes: tuple[Lanes, ...]
) -> None:
    await plane.owner()
    one, two = await plane.follower(), await plane.follower()
    last = await plane.producer("last")
    await last.begin()
    await last.store(1)
    await eventually(has_all(one, last))
    store = LayoutStore(await plane.log())
    async with Fleet(plane) as fleet:
        fleet.known[last.replica] = {key.to_bytes(8, "big") for key in last.known}
        await fleet.is_hot(one)
        fleet.answers.clear()
        held = asyncio.create_task(hold_all_the_time(one, last))
        async with fleet.loaded(), fleet.asked(one):
            await eventually(lambda: fleet.answers.total() > 20)
            last.layout = await store.put_in_force(partitions, lanes)
            await could_serve(one, two)
            await last.begin()
            await eventually(lambda: serves(one, 2) and serves(two, 2), within_s=SWAP_S)
            asked = fleet.answers.total()
            await eventually(lambda: fleet.answers.total() > asked + 20)
        await ended(held)
        assert set(fleet.answers) == {("PREFIX_MATCH", 3)}
        for router in (one, two):
            await eventually(lambda router=router: fleet.is_known_to(router))  # type: ignore[misc]
        await eventually(lambda: agree(one, two))
        assert one.swaps == {"complete": 1}
        assert len(one.replicas) == partitions
        layout = one.layout
        assert layout is not None
        used = {number for number, replica in enumerate(one.replicas) if replica.view.entries}
        assert used <= set(partitions_of(TENANT, MODEL, layout))


async def test_two_changes_in_a_row_end_with_the_last(plane: DataPlane) -> None:
    await plane.owner()
    router = await plane.follower()
    store = LayoutStore(await plane.log())
    async with Fleet(plane) as fleet:
        await fleet.is_hot(router)
        fleet.answers.clear()
        async with fleet.loaded(), fleet.asked(router):
            await store.put_in_force(4, ())
            await store.put_in_force(3, (Lanes(TENANT, MODEL, 2),))
            await eventually(lambda: serves(router, 3), within_s=SWAP_S)
        assert set(fleet.answers) == {("PREFIX_MATCH", 3)}
        await eventually(lambda: fleet.is_known_to(router))


async def test_a_change_while_the_only_indexer_restarts_waits_for_it(plane: DataPlane) -> None:
    indexer = await plane.owner()
    router = await plane.follower()
    store = LayoutStore(await plane.log())
    async with Fleet(plane) as fleet:
        await fleet.is_hot(router)
        fleet.answers.clear()
        async with fleet.loaded(), fleet.asked(router):
            await plane.kill(indexer)
            await store.put_in_force(4, ())
            asked = fleet.answers.total()
            await eventually(lambda: fleet.answers.total() > asked + 20)
            assert serves(router, 1)
            await plane.indexer()
            await eventually(lambda: serves(router, 2), within_s=SWAP_S)
        assert set(fleet.answers) == {("PREFIX_MATCH", 3)}
        assert router.swaps == {"complete": 1}
        await eventually(lambda: fleet.is_known_to(router))


async def test_an_indexer_that_starts_during_a_change_keeps_both_generations(plane: DataPlane) -> None:
    first = await plane.owner()
    router = await plane.follower()
    stays = await plane.producer("stays")
    await stays.begin()
    await stays.store(1)
    store = LayoutStore(await plane.log())
    layout = await store.put_in_force(3, ())
    await eventually(lambda: len(first.partitions) == 5)
    await plane.kill(first)
    second = await plane.owner()
    assert [partition.key for partition in second.partitions] == ["1.0", "1.1", "2.0", "2.1", "2.2"]
    await could_serve(router)
    await stays.store(100)
    await eventually(has_all(router, stays), what="what is told in the old generation")
    assert serves(router, 1)
    stays.layout = layout
    await stays.begin()
    await eventually(lambda: serves(router, 2), within_s=SWAP_S)
    assert has_all(router, stays)()


async def test_a_router_that_starts_during_a_change_answers_as_the_others_do(plane: DataPlane) -> None:
    await plane.owner()
    router = await plane.follower()
    stays = await plane.producer("stays")
    await stays.begin()
    await stays.store(1)
    store = LayoutStore(await plane.log())
    layout = await store.put_in_force(3, ())
    await eventually(lambda: router.generations.coming is not None)
    started = await plane.follower()
    await could_serve(router, started)
    assert serves(router, 1)
    assert serves(started, 1)
    assert has_all(started, stays)()
    stays.layout = layout
    await stays.begin()
    await eventually(lambda: serves(router, 2) and serves(started, 2), within_s=SWAP_S)
    await eventually(has_all(started, stays))
    await eventually(lambda: stands_by(store, 2))
    late = await plane.follower()
    assert serves(late, 2)
    assert [replica.key for replica in late.replicas] == ["2.0", "2.1", "2.2"]
    assert late.swaps == {}, "it has not loaded what nobody serves any more"


async def test_reports_over_grpc_go_to_the_new_generation_as_soon_as_it_is_known(plane: DataPlane) -> None:
    await plane.owner()
    router = await plane.follower()
    stays = await plane.producer("stays")
    await stays.begin()
    await LayoutStore(await plane.log()).put_in_force(3, ())
    await eventually(lambda: router.generations.coming is not None)
    event = CacheEvent(type=CacheEvent.PREFIX_ADDED, tenant_id="t", model_id="m", replica_id="grpc")
    await Ingest(router.publisher, router).publish(event)
    log = await plane.log()
    held = [
        (await jetstream.stream_info(log, f"IC_EVENTS_2_{number}", subjects="ic.ev.*.*.*.*.grpc.g")).state
        for number in range(3)
    ]
    assert sum(len(state.subjects or ()) for state in held) == 1


async def test_a_prune_waits_for_routers_and_removes_all_that_is_older(plane: DataPlane) -> None:
    indexer = await plane.owner()
    router = await plane.follower()
    stays = await plane.producer("stays")
    await stays.begin()
    await stays.store(1)
    log = await plane.log()
    store = LayoutStore(log)
    assert (await store.prune()).generations == []
    objects = Objects(log, SNAPSHOTS)
    states = [partition.state for partition in indexer.partitions]
    machines = [state.telling.snapshots for state in states if state is not None]
    await eventually(lambda: all(machine.referenced_count for machine in machines))
    layout = await store.put_in_force(3, ())
    await could_serve(router)
    with pytest.raises(LayoutError, match=rf"generation 2 yet: {router.id} \(generation 1\)"):
        await store.prune()
    stays.layout = layout
    await stays.begin()
    await eventually(lambda: serves(router, 2), within_s=SWAP_S)
    await eventually(lambda: stands_by(store, 2))
    pruned = await store.prune()
    assert (pruned.generations, pruned.streams) == ([1], 4)
    assert pruned.objects >= 2
    assert [partition.key for partition in indexer.partitions] == ["2.0", "2.1", "2.2"]
    names = await jetstream.stream_names(log)
    assert sorted(name for name in names if name.startswith(("IC_EVENTS_", "IC_DELTAS_"))) == sorted(
        f"IC_{kind}_2_{number}" for kind in ("EVENTS", "DELTAS") for number in range(3)
    )
    assert await objects.stored("1/") == []
    for bucket in (REFS, AGGREGATE):
        assert await Bucket(log, bucket).entries(keys="1.*") == []
    await stays.store(500)
    await eventually(has_all(router, stays))
    assert owns_all(indexer)


async def stands_by(store: LayoutStore, generation: int) -> bool:
    """Do all routers tell that they answer by the generation?"""
    state = await store.read()
    return state.layout.generation == generation and not state.behind


async def test_a_forced_prune_leaves_routers_answering_by_what_they_have(plane: DataPlane) -> None:
    await plane.owner()
    router = await plane.follower()
    stays = await plane.producer("stays")
    await stays.begin()
    await stays.store(1)
    store = LayoutStore(await plane.log())
    await store.put_in_force(3, ())
    await eventually(lambda: router.generations.coming is not None)
    await store.prune(force=True)
    assert serves(router, 1)
    assert has_all(router, stays)()


async def test_an_interrupted_prune_is_completed_by_the_next(plane: DataPlane) -> None:
    await plane.owner()
    await plane.follower()
    log = await plane.log()
    store = LayoutStore(log)
    await store.put_in_force(3, ())
    await eventually(lambda: stands_by(store, 2), within_s=SWAP_S)
    entry = (await store.read()).entry
    value = msgspec.json.encode(msgspec.structs.replace(entry.layout, older=()))
    await Bucket(log, LAYOUT).update(LAYOUT_KEY, value, entry.revision)
    assert (await store.prune()).streams == 4


async def test_a_layout_of_a_newer_schema_stops_nobody_who_runs(plane: DataPlane) -> None:
    indexer = await plane.owner()
    router = await plane.follower()
    stays = await plane.producer("stays")
    await stays.begin()
    with capture_logs() as lines:
        value = msgspec.json.encode(CurrentLayout(2, 4, schema=99))
        await Bucket(await plane.log(), LAYOUT).put(LAYOUT_KEY, value)
        await eventually(lambda: sum(line["event"] == "assets_unsafe" for line in lines) >= 2)
    assert all("schema 99" in line["error"] for line in lines if line["event"] == "assets_unsafe")
    await stays.store(1)
    await eventually(has_all(router, stays))
    assert owns_all(indexer)


async def test_a_change_that_somebody_else_makes_at_the_same_time_is_not_overwritten(
    plane: DataPlane,
) -> None:
    await plane.owner()
    stores = [LayoutStore(await plane.log()) for _ in range(4)]
    results = await asyncio.gather(
        *(store.put_in_force(number + 3, ()) for number, store in enumerate(stores)), return_exceptions=True
    )
    set_ = [result for result in results if isinstance(result, CurrentLayout)]
    refused = [result for result in results if isinstance(result, LayoutError)]
    assert len(set_) + len(refused) == 4
    state = await stores[0].read()
    assert state.layout == set_[-1] or state.layout in set_
    assert [each.generation for each in state.layout.generations] == list(range(1, 1 + len(set_) + 1))


async def test_models_of_other_partitions_are_served_by_the_same_generation(plane: DataPlane) -> None:
    await plane.owner()
    router = await plane.follower()
    producers = [await plane.producer(f"r{number}", ModelId(f"m{number}")) for number in range(6)]
    for producer in producers:
        await producer.begin()
        await producer.store(1)
    await eventually(has_all(router, *producers))
    layout = await LayoutStore(await plane.log()).put_in_force(5, ())
    await eventually(lambda: router.generations.coming is not None)
    for producer in producers[1:]:
        producer.layout = layout
        await producer.begin()
    await could_serve(router)
    assert has_all(router, *producers)()
    producers[0].layout = layout
    await producers[0].begin()
    await eventually(lambda: serves(router, 2), within_s=SWAP_S)
    await eventually(has_all(router, *producers))


async def test_a_restricted_router_follows_its_part_through_a_change(plane: DataPlane) -> None:
    await plane.owner()
    part = Restriction(frozenset({TENANT}), frozenset({MODEL}))
    router = await plane.follower(part)
    beside = next(
        ModelId(f"m{number}")
        for number in range(100)
        if partitions_of(TENANT, f"m{number}", FIRST) == partitions_of(TENANT, MODEL, FIRST)
    )
    mine, other = await plane.producer("mine"), await plane.producer("other", beside)
    for producer in (mine, other):
        await producer.begin()
        await producer.store(1)
    await eventually(lambda: holders_of(router, 1) == {"mine"} and holders_of(router, 1, beside) == {"other"})
    assert [replica.key for replica in router.replicas] == [f"1.{partition_of(TENANT, MODEL, 'mine', FIRST)}"]
    layout = await LayoutStore(await plane.log()).put_in_force(8, ())
    mine.layout = layout
    await mine.begin()
    await eventually(lambda: serves(router, 2), within_s=SWAP_S)
    assert router.swaps == {"complete": 1}, "whoever it does not serve is not waited for"
    number = partition_of(TENANT, MODEL, "mine", layout)
    assert [replica.key for replica in router.replicas] == [f"2.{number}"]
    assert holders_of(router, 1) == {"mine"}
    assert all(replica.complete for replica in router.replicas)


async def test_whoever_listens_to_events_is_told_to_listen_anew(plane: DataPlane) -> None:
    await plane.owner()
    router = await plane.follower()
    producer = await plane.producer("r")
    await producer.begin()
    heard: list[str] = []
    lost = asyncio.Event()

    def deliver(messages: list[StreamMessage]) -> None:
        heard.extend(message.subject for message in messages)

    async with router.tail(deliver, lost.set):
        layout = await LayoutStore(await plane.log()).put_in_force(3, ())
        async with asyncio.timeout(10):
            await lost.wait()
    async with router.tail(deliver, lost.set):
        await producer.store(1)
        producer.layout = layout
        await producer.begin()
        await eventually(
            lambda: {subject.split(".")[2] for subject in heard if ".r.e" in subject} == {"1", "2"}
        )
