"""Lost, cut and damaged storage is noticed, and the index is right again afterwards."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from inferencecache.core.log import (
    NoAnswerError,
    NoStreamError,
    NotStoredError,
    Objects,
    StoredObject,
    jetstream,
)
from inferencecache.core.log.subjects import (
    deltas_stream,
    events_stream,
    partition_of,
    snapshot_request_subject,
)
from inferencecache.core.partitions import References
from inferencecache.indexer.snapshotting import Snapshotting
from inferencecache.schemas.layout import Layout
from inferencecache.schemas.positions import Refs
from tests.support.dataplane import MODEL, TENANT, DataPlane, agree, has_all, holders_of, owns_all
from tests.support.waiting import eventually

PARTITION = partition_of(TENANT, MODEL, "r1", Layout())
EVENTS = events_stream(1, PARTITION)
DELTAS = deltas_stream(1, PARTITION)


async def test_lost_storage_is_rebuilt_from_producers_while_routers_answer(plane: DataPlane) -> None:
    indexer = await plane.owner()
    router = await plane.follower()
    producer = await plane.producer("r1")
    await producer.begin()
    await producer.store(1)
    await eventually(has_all(router, producer))
    epoch = router.replicas[PARTITION].view.log_epoch
    await asyncio.to_thread(plane.server.kill)
    plane.server.wipe()
    await asyncio.to_thread(plane.server.start)
    assert holders_of(router, 1) == {"r1"}
    await eventually(lambda: router.replicas[PARTITION].view.log_epoch not in ("", epoch), within_s=30)
    await eventually(has_all(router, producer))
    assert [request.kind for request in producer.requests] == ["resync"]
    await eventually(lambda: owns_all(indexer))
    late = await plane.follower()
    await eventually(lambda: agree(router, late))


async def test_two_indexers_agree_on_a_new_log_epoch_after_lost_storage(plane: DataPlane) -> None:
    indexers = [await plane.owner(), await plane.indexer()]
    await eventually(lambda: indexers[1].ready, within_s=20)
    router = await plane.follower()
    producer = await plane.producer("r1")
    await producer.begin()
    await producer.store(1)
    await eventually(has_all(router, producer))
    await asyncio.to_thread(plane.server.kill)
    plane.server.wipe()
    await asyncio.to_thread(plane.server.start)
    await producer.store(100)
    await eventually(has_all(router, producer), within_s=45)
    await eventually(lambda: all(indexer.ready for indexer in indexers), within_s=20)
    late = await plane.follower()
    await eventually(lambda: agree(router, late))
    for number in range(2):
        both = [indexer.partitions[number] for indexer in indexers]
        await eventually(lambda both=both: sum(each.owned for each in both) == 1)  # type: ignore[misc]


async def test_an_older_copy_of_the_storage_is_noticed(plane: DataPlane, tmp_path: Path) -> None:
    await plane.owner()
    router = await plane.follower()
    producer = await plane.producer("r1")
    await producer.begin()
    await producer.store(1)
    await asyncio.to_thread(plane.server.stop)
    shutil.copytree(plane.server.store_dir, tmp_path / "copy")
    await asyncio.to_thread(plane.server.start)
    await producer.store(100)
    await eventually(has_all(router, producer))
    await asyncio.to_thread(plane.server.stop)
    plane.server.wipe()
    shutil.copytree(tmp_path / "copy", plane.server.store_dir)
    await asyncio.to_thread(plane.server.start)
    await producer.store(200)
    await eventually(has_all(router, producer), within_s=45)


async def test_a_log_cut_above_every_snapshot_begins_a_new_epoch(plane: DataPlane) -> None:
    first = await plane.owner()
    router = await plane.follower()
    producer = await plane.producer("r1")
    await producer.begin()
    for number in range(20):
        await producer.store(100 * number)
    await eventually(has_all(router, producer))
    await plane.stop(first)
    log = await plane.log()
    end = (await jetstream.stream_info(log, EVENTS)).state.last_seq
    await producer.store(5000)
    await jetstream.purge_stream(log, EVENTS, below=end + 1)
    second = await plane.indexer()
    await eventually(lambda: owns_all(second), within_s=30)
    assert second.partitions[PARTITION].state is not None
    await producer.store(6000)
    await eventually(has_all(router, producer), within_s=40)


async def test_outages_while_a_snapshot_is_read_do_not_end_a_log_epoch(
    plane: DataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await plane.owner()
    producer = await plane.producer("r1")
    await producer.begin()
    await producer.store(1)
    log = await plane.log()
    state = first.partitions[PARTITION].state
    assert state is not None
    machine = state.telling.snapshots
    before = machine.referenced_count
    await log.send(snapshot_request_subject(1, PARTITION), b"")
    await eventually(lambda: machine.referenced_count > before and not machine.busy)
    refs, _ = await References(log, f"1.{PARTITION}").read()
    assert refs is not None
    assert refs.current is not None
    await plane.stop(first)
    await jetstream.purge_stream(log, EVENTS, below=refs.current.log.sequence)
    outages = 3
    answered = Objects.read

    async def cut_off(self: Objects, name: str) -> AsyncIterator[bytes]:
        nonlocal outages
        if name.startswith(f"1/{PARTITION}/") and outages:
            outages -= 1
            raise NoAnswerError(name, "timeout")
        async for chunk in answered(self, name):
            yield chunk

    monkeypatch.setattr(Objects, "read", cut_off)
    second = await plane.owner()
    router = await plane.follower()
    await eventually(has_all(router, producer))
    assert outages == 0
    after = second.partitions[PARTITION].state
    assert after is not None
    assert after.folding.fold.view.log_epoch == refs.current.log_epoch


async def test_a_damaged_snapshot_is_replaced_by_the_previous_one(plane: DataPlane) -> None:
    first = await plane.owner()
    producer = await plane.producer("r1")
    await producer.begin()
    log = await plane.log()
    references = References(log, f"1.{PARTITION}")
    machine = first.partitions[PARTITION].state.telling.snapshots  # type: ignore[union-attr]
    for number in range(2):
        await producer.store(100 * number)
        before = machine.referenced_count
        await log.send(snapshot_request_subject(1, PARTITION), b"")
        await eventually(lambda before=before: machine.referenced_count > before)  # type: ignore[misc]
    await eventually(lambda: not machine.busy)
    refs, _ = await references.read()
    assert refs is not None
    assert refs.current is not None
    assert refs.previous is not None
    await Objects(log, "IC_SNAPSHOTS").purge(refs.current.object)
    router = await plane.follower()
    await eventually(has_all(router, producer))
    await plane.stop(first)
    second = await plane.owner()
    assert second.partitions[PARTITION].restorations_from_log == 0
    await producer.store(500)
    await eventually(has_all(router, producer))


async def test_without_any_snapshot_the_log_itself_will_do(plane: DataPlane) -> None:
    first = await plane.owner()
    producer = await plane.producer("r1")
    await producer.begin()
    await producer.store(1)
    log = await plane.log()
    await plane.stop(first)
    snapshots = Objects(log, "IC_SNAPSHOTS")
    for each in await snapshots.stored():
        await snapshots.purge(each.name)
    second = await plane.owner()
    assert second.partitions[PARTITION].restorations_from_log == 1
    router = await plane.follower()
    await eventually(has_all(router, producer), within_s=20)


async def test_lost_deltas_are_bridged(plane: DataPlane) -> None:
    indexer = await plane.owner()
    router = await plane.follower()
    producer = await plane.producer("r1")
    await producer.begin()
    await producer.store(1)
    await eventually(has_all(router, producer))
    log = await plane.log()
    config = (await jetstream.stream_info(log, DELTAS)).config
    await jetstream.delete_stream(log, DELTAS)
    await jetstream.create_stream(log, config)
    await producer.store(100)
    await eventually(has_all(router, producer), within_s=30)
    late = await plane.follower()
    assert has_all(late, producer)()
    assert owns_all(indexer)


@pytest.mark.parametrize("count", [1, 2])
async def test_indexers_alone_make_a_deltas_stream_again_that_somebody_deletes(
    plane: DataPlane, count: int
) -> None:
    """Owner and standby each miss it by themselves: there may be no router that does."""
    await plane.owner()
    for _ in range(1, count):
        standby = await plane.indexer()
        await eventually(lambda: standby.ready, within_s=20)  # noqa: B023 - waited for at once
    producer = await plane.producer("r1")
    await producer.begin()
    log = await plane.log()
    await jetstream.delete_stream(log, DELTAS)
    await producer.store(1)

    async def is_there_again() -> bool:
        with suppress(NoStreamError):
            return (await jetstream.stream_info(log, DELTAS)).state.last_seq > 0
        return False

    await eventually(is_there_again, within_s=30)
    router = await plane.follower()
    await eventually(has_all(router, producer), within_s=30)


async def test_a_damaged_delta_is_repaired(plane: DataPlane) -> None:
    await plane.owner()
    router = await plane.follower()
    producer = await plane.producer("r1")
    await producer.begin()
    log = await plane.log()
    await log.publisher.publish(f"ic.dl.1.{PARTITION}", b"no delta")
    await producer.store(1)
    await eventually(has_all(router, producer), within_s=20)
    assert router.replicas[PARTITION].follower.repairs > 0


async def test_hostile_messages_are_dropped_and_counted(plane: DataPlane) -> None:
    indexer = await plane.owner()
    router = await plane.follower()
    producer = await plane.producer("r1")
    await producer.begin()
    log = await plane.log()
    for subject in ("t.m.r1.e", "t.m.r1.g", "_.o", "_.x", "a.b", "=74.m.r1.e"):
        for payload in (
            b"",
            b"\xff" * 100,
            b"\x94\x01\x02\x03\x04",
            b"\x94\xa1a\x01\x00\x91\x92\xcd\x01\x00\xc0",
        ):
            await log.publisher.publish(f"ic.ev.1.{PARTITION}.{subject}", payload)
    await producer.store(1)
    await eventually(has_all(router, producer))
    state = indexer.partitions[PARTITION].state
    assert state is not None
    assert state.folding.dropped["undecodable"] >= 12


async def test_a_full_snapshot_store_gives_up_bases_for_replay(plane: DataPlane) -> None:
    indexer = await plane.owner()
    log = await plane.log()
    state = indexer.partitions[PARTITION].state
    assert state is not None
    machine = state.telling.snapshots
    await eventually(lambda: machine.referenced_count == 1 and not machine.busy)
    config = (await jetstream.stream_info(log, "OBJ_IC_SNAPSHOTS")).config
    await jetstream.update_stream(log, config | {"max_bytes": 2_000_000})
    snapshots = Objects(log, "IC_SNAPSHOTS")
    base = f"1/{PARTITION}/999999-other-0000"
    room = 2_000_000 - (await jetstream.stream_info(log, "OBJ_IC_SNAPSHOTS")).state.bytes
    await snapshots.put(base, [bytes(room - 1000)])
    producer = await plane.producer("r1")
    await producer.begin()
    await producer.store(1, 200)
    await log.send(snapshot_request_subject(1, PARTITION), b"")
    await eventually(lambda: machine.dropped_count > 0)

    async def is_gone() -> bool:
        return base not in [each.name for each in await snapshots.stored()]

    await eventually(is_gone)
    await log.send(snapshot_request_subject(1, PARTITION), b"")
    await eventually(lambda: machine.referenced_count == 2)


async def test_an_outage_while_a_snapshot_is_stored_costs_no_base_for_replay(
    plane: DataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexer = await plane.owner()
    log = await plane.log()
    state = indexer.partitions[PARTITION].state
    assert state is not None
    machine = state.telling.snapshots
    await eventually(lambda: machine.referenced_count == 1 and not machine.busy)
    rooms: list[int] = []

    async def cut_off(_: Objects, name: str, __: object) -> StoredObject:
        raise NotStoredError(name, "no acknowledgement: timeout", retryable=True)

    async def seen(_: Snapshotting, refs: Refs | None, room: int) -> None:
        rooms.append(room)

    monkeypatch.setattr(Objects, "put", cut_off)
    monkeypatch.setattr(Snapshotting, "_purge_objects", seen)
    for dropped in (1, 2):  # the second begins once all of the first is over
        await log.send(snapshot_request_subject(1, PARTITION), b"")
        await eventually(lambda dropped=dropped: machine.dropped_count >= dropped)  # type: ignore[misc]
    assert 0 not in rooms
