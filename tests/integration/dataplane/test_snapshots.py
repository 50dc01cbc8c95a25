"""What a snapshot leaves behind: deltas from the previous one on, and a base for replay each hour."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from inferencecache.core.log import Bucket, Log, Objects
from inferencecache.core.log.jetstream import stream_info
from inferencecache.core.log.subjects import (
    REFS,
    SNAPSHOTS,
    deltas_stream,
    partition_key,
    snapshot_request_subject,
)
from inferencecache.core.partitions import References
from inferencecache.indexer.serve import Indexer
from inferencecache.schemas.positions import Refs, SnapshotRef
from tests.support.dataplane import DataPlane, has_all
from tests.support.waiting import eventually

SNAPSHOTS_TAKEN = 4
HOUR_S = 3600


async def referenced(log: Log, indexer: Indexer, count: int) -> Refs:
    """The references once so many snapshots were taken in all."""
    state = indexer.partitions[0].state
    assert state is not None
    machine = state.telling.snapshots
    await eventually(lambda: machine.referenced_count >= count and not machine.busy, within_s=30)
    refs, _ = await References(log, partition_key(1, 0)).read()
    assert refs is not None
    return refs


def name_of(refs: Refs) -> str:
    assert refs.current is not None
    return refs.current.object


def bases(written: dict[str, float]) -> set[str]:
    """The first object of each hour."""
    first: dict[float, str] = {}
    for name, written_s in sorted(written.items(), key=lambda each: each[1]):
        first.setdefault(written_s // HOUR_S, name)
    return set(first.values())


async def test_references_that_somebody_has_deleted_are_written_by_the_next_snapshot(
    plane: DataPlane,
) -> None:
    indexer = await plane.owner()
    log = await plane.log()
    before = await referenced(log, indexer, 1)
    await Bucket(log, REFS).delete(partition_key(1, 0))
    await log.send(snapshot_request_subject(1, 0), b"")
    after = await referenced(log, indexer, 2)
    assert after.previous is None
    assert after.current not in (None, before.current)


async def test_an_indexer_whose_clock_is_ahead_leaves_an_upload_alone_that_goes_on(
    plane: DataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexer = await plane.owner()
    log = await plane.log()
    objects = Objects(log, SNAPSHOTS)
    before = await referenced(log, indexer, 1)
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + HOUR_S)

    def breaks_off() -> Iterator[bytes]:
        yield b"x" * 2_000_000
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await objects.put("1/0/upload", breaks_off())
    names = [name_of(before)]
    for count in (2, 3, 4):
        await log.send(snapshot_request_subject(1, 0), b"")
        names.append(name_of(await referenced(log, indexer, count)))

    async def is_purged() -> bool:
        assert [each.name for each in await objects.unfinished("1/0/")] == ["1/0/upload"]
        return names[1] not in {each.name for each in await objects.stored("1/0/")}

    await eventually(is_purged, within_s=30)


async def test_deltas_stay_from_the_previous_snapshot_on_and_one_object_an_hour(plane: DataPlane) -> None:
    indexer = await plane.owner()
    log = await plane.log()
    producer = await plane.producer("r1")
    await producer.begin()
    objects = Objects(log, SNAPSHOTS)
    before = await referenced(log, indexer, 1)
    written = {each.name: each.written_s for each in await objects.stored("1/0/")}
    for number in range(SNAPSHOTS_TAKEN):
        await producer.store(100 * number)
        await log.send(snapshot_request_subject(1, 0), b"")
        refs = await referenced(log, indexer, number + 2)
        assert refs.previous == before.current
        written.update((each.name, each.written_s) for each in await objects.stored("1/0/"))
        assert await first_delta(log) <= delta_of(refs.previous), "a delta is purged that its readers need"
        kept = bases(written) | {ref.object for ref in (refs.current, refs.previous) if ref is not None}

        async def is_purged(refs: Refs = refs, kept: set[str] = kept) -> bool:
            there = {each.name for each in await objects.stored("1/0/")}
            return there == kept and await first_delta(log) == delta_of(refs.previous)

        await eventually(is_purged, within_s=30)
        before = refs
    assert len(written) == SNAPSHOTS_TAKEN + 1
    router = await plane.follower()
    await eventually(has_all(router, producer))


async def first_delta(log: Log) -> int:
    return (await stream_info(log, deltas_stream(1, 0))).state.first_seq


def delta_of(ref: SnapshotRef | None) -> int:
    assert ref is not None
    return ref.delta.sequence
