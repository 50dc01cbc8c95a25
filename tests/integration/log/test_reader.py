"""Reading a stream in order over a real server that restarts, loses its store or is cut."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from inferencecache.core.log import jetstream
from inferencecache.core.log.connection import Log
from inferencecache.core.log.reader import Reader, Start, StreamMessage
from inferencecache.core.protocol.position import Lost
from inferencecache.schemas.positions import Position
from tests.integration.log.conftest import Connect
from tests.support.nats import NatsServer
from tests.support.waiting import eventually

STREAM = {"name": "S", "subjects": ["s.>"], "storage": "file", "num_replicas": 1}


class Collected:
    """A reader and what it delivered."""

    def __init__(self, log: Log, start: Position | Start, subjects: Sequence[str] = ()) -> None:
        self.messages: list[StreamMessage] = []
        self.lost: Lost | None = None
        self.reader = Reader(
            log, "S", start, self.messages.extend, self._on_lost, subjects=subjects, heartbeat_s=0.2
        )

    def _on_lost(self, lost: Lost) -> None:
        self.lost = lost

    @property
    def payloads(self) -> list[bytes]:
        return [message.payload for message in self.messages]


@asynccontextmanager
async def reading(
    log: Log, start: Position | Start, subjects: Sequence[str] = ()
) -> AsyncIterator[Collected]:
    collected = Collected(log, start, subjects)
    task = asyncio.create_task(collected.reader.run())
    try:
        yield collected
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def fill(log: Log, first: int, last: int, subject: str = "s.a") -> None:
    for number in range(first, last + 1):
        await log.publisher.publish(subject, b"%d" % number)


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last + 1)]


async def test_a_reader_delivers_everything_in_order_with_positions(
    nats_server: NatsServer, connect: Connect
) -> None:
    log = await connect(nats_server)
    await jetstream.create_stream(log, STREAM)
    created_ns = (await jetstream.stream_info(log, "S")).created_ns
    await fill(log, 1, 1500)
    async with reading(log, Position()) as collected:
        await eventually(lambda: len(collected.messages) == 1500)
        await fill(log, 1501, 1510)
        await eventually(lambda: len(collected.messages) == 1510)
        assert collected.payloads == numbers(1, 1510)
        last = collected.messages[-1].position
        stored = await jetstream.read_message(log, "S", sequence=1510)
        assert stored is not None
        assert last == Position(1510, stored.time_ns, created_ns) == collected.reader.position
        assert collected.reader.caught_up


async def test_a_reader_goes_on_after_its_position(nats_server: NatsServer, connect: Connect) -> None:
    log = await connect(nats_server)
    await jetstream.create_stream(log, STREAM)
    await fill(log, 1, 10)
    async with reading(log, Position()) as collected:
        await eventually(lambda: len(collected.messages) == 10)
    position = collected.messages[3].position
    async with reading(log, position) as collected:
        await eventually(lambda: len(collected.messages) == 6)
        assert collected.payloads == numbers(5, 10)
    async with reading(log, collected.reader.position) as collected:
        await eventually(lambda: collected.reader.caught_up)
        assert collected.payloads == []


@pytest.mark.parametrize("kill", [False, True])
async def test_nothing_is_lost_or_repeated_over_a_restart(
    nats_server: NatsServer, connect: Connect, kill: bool
) -> None:
    log = await connect(nats_server)
    producer = await connect(nats_server)
    await jetstream.create_stream(log, STREAM)

    async def produce() -> None:
        for number in range(1, 601):
            await producer.publisher.publish("s.a", b"%d" % number, msg_id=str(number), timeout_s=20)

    async with reading(log, Position()) as collected:
        producing = asyncio.create_task(produce())
        await eventually(lambda: len(collected.messages) >= 100)
        await asyncio.to_thread(nats_server.restart, kill=kill)
        await producing
        await eventually(lambda: len(collected.messages) >= 600)
        assert collected.payloads == numbers(1, 600)
        assert collected.lost is None


async def test_a_reader_resumes_at_once_after_a_restart(nats_server: NatsServer, connect: Connect) -> None:
    log = await connect(nats_server)
    await jetstream.create_stream(log, STREAM)
    await fill(log, 1, 1)
    async with reading(log, Position()) as collected:
        await eventually(lambda: len(collected.messages) == 1)
        await asyncio.to_thread(nats_server.restart)
        await fill(log, 2, 2)
        await eventually(lambda: len(collected.messages) == 2, within_s=1.0)


async def test_a_stopped_server_that_continues_is_read_on(nats_server: NatsServer, connect: Connect) -> None:
    log = await connect(nats_server)
    await jetstream.create_stream(log, STREAM)
    async with reading(log, Position()) as collected:
        await eventually(lambda: collected.reader.openings == 1)
        nats_server.pause()
        try:
            await eventually(lambda: collected.reader._trouble == "no heartbeat")
        finally:
            nats_server.resume()
        await fill(log, 1, 20)
        await eventually(lambda: len(collected.messages) == 20)
        assert collected.payloads == numbers(1, 20)


async def test_a_deleted_consumer_is_replaced(nats_server: NatsServer, connect: Connect) -> None:
    log = await connect(nats_server)
    await jetstream.create_stream(log, STREAM)
    async with reading(log, Position()) as collected:
        await fill(log, 1, 5)
        await eventually(lambda: len(collected.messages) == 5)
        names = (await jetstream.call(log, "CONSUMER.NAMES.S", None, dict[str, object]))["consumers"]
        assert isinstance(names, list)
        for name in names:
            await jetstream.delete_consumer(log, "S", name)
        await fill(log, 6, 9)
        await eventually(lambda: len(collected.messages) == 9)
        assert collected.payloads == numbers(1, 9)


async def test_a_wiped_store_is_reported_as_no_stream(nats_server: NatsServer, connect: Connect) -> None:
    log = await connect(nats_server)
    await jetstream.create_stream(log, STREAM)
    async with reading(log, Position()) as collected:
        await fill(log, 1, 5)
        await eventually(lambda: len(collected.messages) == 5)
        await asyncio.to_thread(nats_server.kill)
        nats_server.wipe()
        await asyncio.to_thread(nats_server.start)
        await eventually(lambda: collected.lost is not None)
        assert collected.lost is not None
        assert collected.lost.reason == "no_stream"


async def test_a_stream_created_anew_is_another_storage(nats_server: NatsServer, connect: Connect) -> None:
    log = await connect(nats_server)
    await jetstream.create_stream(log, STREAM)
    await fill(log, 1, 5)
    async with reading(log, Position()) as collected:
        await eventually(lambda: len(collected.messages) == 5)
    await jetstream.delete_stream(log, "S")
    await jetstream.create_stream(log, STREAM)
    await fill(log, 1, 8)
    async with reading(log, collected.reader.position) as again:
        await eventually(lambda: again.lost is not None)
        assert again.lost is not None
        assert again.lost.reason == "storage_lost"
        assert again.messages == []


async def test_an_older_copy_of_the_store_is_noticed_even_when_it_has_grown_past_the_position(
    nats_server: NatsServer, connect: Connect, tmp_path: Path
) -> None:
    log = await connect(nats_server)
    await jetstream.create_stream(log, STREAM)
    await fill(log, 1, 5)
    await asyncio.to_thread(nats_server.stop)
    shutil.copytree(nats_server.store_dir, tmp_path / "copy")
    await asyncio.to_thread(nats_server.start)
    async with reading(log, Position()) as collected:
        await fill(log, 6, 9)
        await eventually(lambda: len(collected.messages) == 9)
    await asyncio.to_thread(nats_server.stop)
    nats_server.wipe()
    shutil.copytree(tmp_path / "copy", nats_server.store_dir)
    await asyncio.to_thread(nats_server.start)
    async with reading(log, collected.reader.position) as shorter:
        await eventually(lambda: shorter.lost is not None)
    await fill(log, 100, 110)
    async with reading(log, collected.reader.position) as grown:
        await eventually(lambda: grown.lost is not None)
    assert [c.lost.reason if c.lost else "" for c in (shorter, grown)] == ["storage_lost", "storage_lost"]
    assert not shorter.messages
    assert not grown.messages


async def test_a_log_cut_above_the_position_is_noticed(nats_server: NatsServer, connect: Connect) -> None:
    log = await connect(nats_server)
    await jetstream.create_stream(log, STREAM)
    await fill(log, 1, 9)
    async with reading(log, Position()) as collected:
        await eventually(lambda: len(collected.messages) == 9)
    await jetstream.purge_stream(log, "S", below=5)
    async with reading(log, collected.messages[4].position) as kept:
        await eventually(lambda: len(kept.messages) == 4)
        assert kept.payloads == numbers(6, 9)
    async with reading(log, collected.messages[3].position) as cut:
        await eventually(lambda: cut.lost is not None)
        assert cut.lost is not None
        assert cut.lost.reason == "cut"
    async with reading(log, Position()) as from_the_start:
        await eventually(lambda: from_the_start.lost is not None)
    async with reading(log, Start.OLDEST) as oldest:
        await eventually(lambda: len(oldest.messages) == 5)
        assert oldest.payloads == numbers(5, 9)


async def test_a_reader_of_new_messages_sees_nothing_older(nats_server: NatsServer, connect: Connect) -> None:
    log = await connect(nats_server)
    await jetstream.create_stream(log, STREAM)
    await fill(log, 1, 9)
    async with reading(log, Start.NEW) as collected:
        await eventually(lambda: collected.reader.openings == 1)
        await fill(log, 10, 12)
        await eventually(lambda: len(collected.messages) == 3)
        await asyncio.to_thread(nats_server.restart)
        await fill(log, 13, 14)
        await eventually(lambda: len(collected.messages) == 5)
        assert collected.payloads == numbers(10, 14)


async def test_a_reader_of_some_subjects_sees_only_these(nats_server: NatsServer, connect: Connect) -> None:
    log = await connect(nats_server)
    await jetstream.create_stream(log, STREAM)
    async with reading(log, Start.OLDEST, ["s.a", "s.c"]) as collected:
        for number in range(30):
            await log.publisher.publish(f"s.{'abc'[number % 3]}", b"%d" % number)
        await asyncio.to_thread(nats_server.restart)
        for number in range(30, 60):
            await log.publisher.publish(f"s.{'abc'[number % 3]}", b"%d" % number)
        await eventually(lambda: len(collected.messages) == 40)
        assert collected.payloads == [b"%d" % number for number in range(60) if number % 3 != 1]


async def test_an_error_of_the_receiver_ends_the_reader(nats_server: NatsServer, connect: Connect) -> None:
    log = await connect(nats_server)
    await jetstream.create_stream(log, STREAM)
    await fill(log, 1, 1)

    def deliver(messages: list[StreamMessage]) -> None:
        raise ZeroDivisionError

    reader = Reader(log, "S", Position(), deliver, lambda lost: None)
    with pytest.raises(ZeroDivisionError):
        await reader.run()


async def test_a_paused_reader_holds_still_and_goes_on(nats_server: NatsServer, connect: Connect) -> None:
    log = await connect(nats_server)
    await jetstream.create_stream(log, STREAM)
    async with reading(log, Position()) as collected:
        await eventually(lambda: collected.reader.openings == 1)
        collected.reader.pause()
        await fill(log, 1, 2000)
        assert len(collected.messages) <= 1024
        collected.reader.resume()
        await eventually(lambda: len(collected.messages) == 2000)
        assert collected.payloads == numbers(1, 2000)


async def test_readers_leave_no_consumers_behind(nats_server: NatsServer, connect: Connect) -> None:
    log = await connect(nats_server)
    await jetstream.create_stream(log, STREAM)
    for _ in range(5):
        async with reading(log, Position()) as collected:
            reader = collected.reader
            await eventually(lambda reader=reader: reader.openings == 1)  # type: ignore[misc]
    async with asyncio.timeout(5):
        while (await jetstream.stream_info(log, "S")).state.consumer_count:
            pass
