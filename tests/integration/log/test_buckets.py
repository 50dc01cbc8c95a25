"""Buckets: compare-and-set, and watches that lose nothing over a restart."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from inferencecache.core.log import WrongLastSequenceError, jetstream
from inferencecache.core.log.assets import declare, ensure_assets, ensure_members
from inferencecache.core.log.buckets import Bucket, Entry, Gone
from inferencecache.core.log.connection import Log
from inferencecache.schemas.layout import Layout
from tests.integration.log.conftest import Connect
from tests.support.nats import NatsServer
from tests.support.waiting import eventually


class Seen:
    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.changes: list[Entry | Gone] = []

    def __call__(self, change: Entry | Gone) -> None:
        self.changes.append(change)
        if isinstance(change, Entry):
            self.values[change.key] = change.value
        else:
            self.values.pop(change.key, None)


@asynccontextmanager
async def watching(bucket: Bucket, keys: str = ">") -> AsyncIterator[Seen]:
    seen = Seen()
    watch = bucket.watch(seen, keys=keys, heartbeat_s=0.2)
    task = asyncio.create_task(watch.run())
    try:
        await asyncio.wait_for(watch.ready.wait(), 10)
        yield seen
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def refs(log: Log) -> Bucket:
    await ensure_assets(log, Layout(partitions=1))
    return Bucket(log, "IC_REFS")


async def test_a_value_is_written_and_read_with_its_revision(
    nats_server: NatsServer, connect: Connect
) -> None:
    bucket = await refs(await connect(nats_server))
    assert await bucket.get("1.0") is None
    revision = await bucket.put("1.0", b"a")
    assert await bucket.get("1.0") == Entry("1.0", b"a", revision)
    await bucket.delete("1.0")
    assert await bucket.get("1.0") is None


async def test_all_values_are_read_without_a_watch(nats_server: NatsServer, connect: Connect) -> None:
    bucket = await refs(await connect(nats_server))
    assert await bucket.entries() == []
    for key in ("b.2", "a.1", "b.1", "b.3"):
        await bucket.put(key, key.encode())
    await bucket.delete("b.3")
    assert [entry.key for entry in await bucket.entries()] == ["a.1", "b.1", "b.2"]
    assert [entry.value for entry in await bucket.entries(keys="b.>")] == [b"b.1", b"b.2"]


async def test_only_who_knows_the_last_revision_writes(nats_server: NatsServer, connect: Connect) -> None:
    bucket = await refs(await connect(nats_server))
    first = await bucket.create("1.0", b"a")
    await bucket.put("1.1", b"other key")
    second = await bucket.update("1.0", b"b", first)
    with pytest.raises(WrongLastSequenceError) as error:
        await bucket.update("1.0", b"c", first)
    assert error.value.last == second
    with pytest.raises(WrongLastSequenceError):
        await bucket.create("1.0", b"c")
    await bucket.delete("1.0")
    await bucket.create("1.0", b"d")
    assert (await bucket.get("1.0") or Entry("", b"", 0)).value == b"d"


async def test_only_who_knows_the_last_revision_deletes(nats_server: NatsServer, connect: Connect) -> None:
    bucket = await refs(await connect(nats_server))
    first = await bucket.create("1.0", b"a")
    second = await bucket.update("1.0", b"b", first)
    with pytest.raises(WrongLastSequenceError) as error:
        await bucket.delete("1.0", first)
    assert error.value.last == second
    assert await bucket.get("1.0") == Entry("1.0", b"b", second)
    await bucket.delete("1.0", second)
    assert await bucket.get("1.0") is None


async def test_a_watch_begins_with_the_current_values(nats_server: NatsServer, connect: Connect) -> None:
    bucket = await refs(await connect(nats_server))
    for number in range(3):
        await bucket.put("a", b"%d" % number)
    await bucket.put("b", b"x")
    await bucket.put("c", b"x")
    await bucket.delete("c")
    async with watching(bucket) as seen:
        assert seen.values == {"a": b"2", "b": b"x"}
        await bucket.put("d", b"new")
        await bucket.delete("b")
        await eventually(lambda: seen.values == {"a": b"2", "d": b"new"})
    async with watching(bucket, "a") as seen:
        assert seen.values == {"a": b"2"}


async def test_a_watch_of_an_empty_bucket_is_ready(nats_server: NatsServer, connect: Connect) -> None:
    bucket = await refs(await connect(nats_server))
    async with watching(bucket) as seen:
        assert not seen.changes


@pytest.mark.parametrize("kill", [False, True])
async def test_a_watch_misses_nothing_over_a_restart(
    nats_server: NatsServer, connect: Connect, kill: bool
) -> None:
    bucket = await refs(await connect(nats_server))
    other = Bucket(await connect(nats_server), "IC_REFS")
    await bucket.put("a", b"0")
    await bucket.put("gone", b"0")
    async with watching(bucket) as seen:
        await asyncio.to_thread(nats_server.restart, kill=kill)
        await other.put("a", b"1")
        await other.delete("gone")
        await other.put("b", b"1")
        await eventually(lambda: seen.values == {"a": b"1", "b": b"1"}, within_s=2.0)


async def test_a_watch_outlives_the_loss_of_its_bucket(nats_server: NatsServer, connect: Connect) -> None:
    log = await connect(nats_server)
    bucket = await refs(log)
    await bucket.put("a", b"0")
    async with watching(bucket) as seen:
        await asyncio.to_thread(nats_server.kill)
        nats_server.wipe()
        await asyncio.to_thread(nats_server.start)
        await eventually(lambda: not seen.values)
        await refs(log)
        await bucket.put("b", b"1")
        await eventually(lambda: seen.values == {"b": b"1"})


async def test_the_members_bucket_is_gone_with_the_server_and_can_be_made_again(
    nats_server: NatsServer, connect: Connect
) -> None:
    log = await connect(nats_server)
    await ensure_assets(log, Layout(partitions=1))
    bucket = Bucket(log, "IC_MEMBERS")
    async with watching(bucket) as seen:
        await bucket.put("indexer.a", b"1")
        await eventually(lambda: seen.values == {"indexer.a": b"1"})
        await asyncio.to_thread(nats_server.restart)
        await eventually(lambda: not seen.values)
        await ensure_members(log)
        await bucket.put("indexer.a", b"2")
        await eventually(lambda: seen.values == {"indexer.a": b"2"})


async def test_a_member_that_stops_writing_is_reported_as_gone(
    nats_server: NatsServer, connect: Connect
) -> None:
    log = await connect(nats_server)
    config = next(c for c in declare(Layout(), 1 << 30) if c["name"] == "KV_IC_MEMBERS")
    await jetstream.create_stream(
        log,
        config
        | {
            "max_age": 1_000_000_000,
            "duplicate_window": 1_000_000_000,
            "subject_delete_marker_ttl": 1_000_000_000,
        },
    )
    bucket = Bucket(log, "IC_MEMBERS")
    async with watching(bucket) as seen:
        await bucket.put("indexer.a", b"1")
        await eventually(lambda: seen.values == {"indexer.a": b"1"})
        await eventually(lambda: not seen.values, within_s=5)
        assert isinstance(seen.changes[-1], Gone)
