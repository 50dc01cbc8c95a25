"""Objects are stored whole or not at all, and read whole or with an error."""

from __future__ import annotations

import asyncio
import os

import nats
import pytest

from inferencecache.core.log import jetstream, objects
from inferencecache.core.log.assets import ensure_assets
from inferencecache.core.log.connection import Log
from inferencecache.core.log.inbox import NoAnswerError
from inferencecache.core.log.jetstream import NoStreamError
from inferencecache.core.log.objects import ObjectDamagedError, ObjectMissingError, Objects
from inferencecache.schemas.layout import Layout
from tests.integration.log.conftest import Connect
from tests.support.nats import NatsServer
from tests.support.waiting import a_turn

NAME = "1/0/12345-owner-ab12"
STREAM = "OBJ_IC_SNAPSHOTS"


async def store(log: Log) -> Objects:
    await ensure_assets(log, Layout(partitions=1))
    return Objects(log, "IC_SNAPSHOTS")


async def read(store: Objects, name: str) -> bytes:
    return b"".join([chunk async for chunk in store.read(name)])


@pytest.mark.parametrize("size", [0, 1, 1024 * 1024, 5 * 1024 * 1024 + 17])
async def test_an_object_comes_back_as_it_was_stored(
    nats_server: NatsServer, connect: Connect, size: int
) -> None:
    snapshots = await store(await connect(nats_server))
    content = os.urandom(size)
    pieces = [content[at : at + 700_000] for at in range(0, size, 700_000)]
    stored = await snapshots.put(NAME, pieces)
    assert stored.size == size
    assert await read(snapshots, NAME) == content
    assert [entry.name for entry in await snapshots.stored("1/0/")] == [NAME]
    assert await snapshots.stored("1/1/") == []
    assert await snapshots.unfinished() == []


async def test_an_object_that_is_not_there_is_missing(nats_server: NatsServer, connect: Connect) -> None:
    snapshots = await store(await connect(nats_server))
    with pytest.raises(ObjectMissingError):
        await read(snapshots, NAME)


async def test_a_purged_object_leaves_nothing(nats_server: NatsServer, connect: Connect) -> None:
    log = await connect(nats_server)
    snapshots = await store(log)
    await snapshots.put(NAME, [b"x" * 3_000_000])
    await snapshots.put("1/0/2", [b"kept"])
    await snapshots.purge(NAME)
    await snapshots.purge(NAME)
    assert [entry.name for entry in await snapshots.stored()] == ["1/0/2"]
    assert (await jetstream.stream_info(log, STREAM)).state.messages == 2
    assert await read(snapshots, "1/0/2") == b"kept"


async def test_an_interrupted_upload_is_no_object_and_can_be_found(
    nats_server: NatsServer, connect: Connect
) -> None:
    snapshots = await store(await connect(nats_server))

    def breaks_off() -> object:
        yield b"x" * 2_000_000
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await snapshots.put(NAME, breaks_off())  # type: ignore[arg-type]
    with pytest.raises(ObjectMissingError):
        await read(snapshots, NAME)
    assert [entry.name for entry in await snapshots.unfinished("1/0/")] == [NAME]
    await snapshots.purge(NAME)
    assert await snapshots.unfinished() == []


async def test_what_another_tool_has_stored_is_left_alone(nats_server: NatsServer, connect: Connect) -> None:
    """Its chunks have random tokens, which tell no name."""
    log = await connect(nats_server)
    snapshots = await store(log)
    await snapshots.put(NAME, [b"ours"])
    for token in ("Xq9ZzK0vYt3mWc7bRn5LpA", "a"):
        for kind in ("C", "M"):
            await log.publisher.publish(f"$O.IC_SNAPSHOTS.{kind}.{token}", b"theirs")
    assert [entry.name for entry in await snapshots.stored()] == [NAME]
    assert await snapshots.unfinished() == []


async def test_a_missing_chunk_ends_the_reading_in_its_time(
    nats_server: NatsServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "IDLE_LIMIT_S", 0.3)
    log = await connect(nats_server)
    snapshots = await store(log)
    await snapshots.put(NAME, [os.urandom(3_000_000)])
    await jetstream.call(log, f"STREAM.MSG.DELETE.{STREAM}", {"seq": 2}, dict[str, object])
    with pytest.raises(ObjectDamagedError, match="chunk 2"):
        await read(snapshots, NAME)


async def test_a_changed_chunk_is_damage(nats_server: NatsServer, connect: Connect) -> None:
    log = await connect(nats_server)
    snapshots = await store(log)
    content = os.urandom(2 * 1024 * 1024)
    await snapshots.put(NAME, [content])
    chunk = await jetstream.read_message(log, STREAM, sequence=1)
    assert chunk is not None
    await jetstream.purge_stream(log, STREAM, subject=chunk.subject)
    await log.publisher.publish(chunk.subject, content[: 1024 * 1024])
    await log.publisher.publish(chunk.subject, bytes(1024 * 1024))
    with pytest.raises(ObjectDamagedError, match="digest"):
        await read(snapshots, NAME)


async def test_an_upload_survives_a_restart_of_the_server(nats_server: NatsServer, connect: Connect) -> None:
    snapshots = await store(await connect(nats_server))
    content = os.urandom(8 * 1024 * 1024)
    halfway = asyncio.Event()

    async def pieces() -> object:
        for number in range(8):
            if number == 4:
                halfway.set()
                await a_turn()
            yield content[number << 20 : (number + 1) << 20]

    putting = asyncio.create_task(snapshots.put(NAME, pieces()))  # type: ignore[arg-type]
    await halfway.wait()
    await asyncio.to_thread(nats_server.restart, kill=True)
    await putting
    assert await read(snapshots, NAME) == content


async def test_other_clients_of_the_object_store_read_the_same(
    nats_server: NatsServer, connect: Connect
) -> None:
    snapshots = await store(await connect(nats_server))
    content = os.urandom(2 * 1024 * 1024 + 5)
    await snapshots.put(NAME, [content])
    client = await nats.connect(nats_server.url)
    try:
        bucket = await client.jetstream().object_store("IC_SNAPSHOTS")
        info = await bucket.get_info(NAME)
        assert (info.size, info.chunks) == (len(content), 3)
        assert (await bucket.get(NAME)).data == content
    finally:
        await client.close()


async def test_an_object_that_is_out_of_reach_is_not_damaged(
    nats_server: NatsServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "IDLE_LIMIT_S", 0.3)
    snapshots = await store(await connect(nats_server))
    await snapshots.put(NAME, [bytes(3_000_000)])
    reading = snapshots.read(NAME)
    await anext(reading)
    nats_server.pause()
    try:
        with pytest.raises(NoAnswerError):
            await anext(reading)
    finally:
        nats_server.resume()
    assert await read(snapshots, NAME) == bytes(3_000_000)


async def test_a_description_that_is_out_of_reach_is_not_damaged(
    nats_server: NatsServer, connect: Connect
) -> None:
    log = await connect(nats_server)
    snapshots = await store(log)
    await snapshots.put(NAME, [b"x"])
    await jetstream.delete_stream(log, STREAM)
    with pytest.raises(NoStreamError):
        await read(snapshots, NAME)


async def test_a_chunk_that_only_a_lagging_replica_misses_is_not_damage(
    nats_server: NatsServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lagging(*_: object, **__: object) -> None:
        return None

    monkeypatch.setattr(objects, "IDLE_LIMIT_S", 0.3)
    snapshots = await store(await connect(nats_server))
    await snapshots.put(NAME, [b"x"])
    monkeypatch.setattr(jetstream, "read_direct", lagging)
    with pytest.raises(NoAnswerError):
        await read(snapshots, NAME)
