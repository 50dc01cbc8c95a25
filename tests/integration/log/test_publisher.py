"""Publishing over a real server that stops, dies and comes back."""

from __future__ import annotations

import asyncio

import pytest

from inferencecache.core.log import jetstream
from inferencecache.core.log.connection import Log, NotConnectedError
from inferencecache.core.log.publisher import (
    NotStoredError,
    PayloadTooLargeError,
    WrongLastSequenceError,
)
from inferencecache.core.service import NatsSettings
from tests.integration.log.conftest import Connect
from tests.support.nats import NatsServer

STREAM = {
    "name": "S",
    "subjects": ["s.>"],
    "storage": "file",
    "num_replicas": 1,
    "duplicate_window": 120_000_000_000,
}


async def payloads(log: Log) -> list[bytes]:
    info = await jetstream.stream_info(log, "S")
    messages = [await jetstream.read_message(log, "S", sequence=n + 1) for n in range(info.state.last_seq)]
    return [message.payload for message in messages if message is not None]


async def test_a_publish_is_acknowledged_with_stream_and_sequence(
    nats_server: NatsServer, connect: Connect
) -> None:
    log = await connect(nats_server)
    await jetstream.create_stream(log, STREAM)
    first = await log.publisher.publish("s.a", b"1", msg_id="x")
    again = await log.publisher.publish("s.a", b"1", msg_id="x")
    assert (first.stream, first.sequence, first.duplicate) == ("S", 1, False)
    assert (again.sequence, again.duplicate) == (1, True)


async def test_a_wrong_expectation_names_the_last_sequence(nats_server: NatsServer, connect: Connect) -> None:
    log = await connect(nats_server)
    await jetstream.create_stream(log, STREAM)
    publish = log.publisher.publish
    await publish("s.a", b"1", expect_last_sequence=0, expect_last_subject_sequence=0)
    await publish("s.b", b"2", expect_last_sequence=1, expect_last_subject_sequence=0)
    with pytest.raises(WrongLastSequenceError) as of_stream:
        await publish("s.a", b"3", expect_last_sequence=1)
    with pytest.raises(WrongLastSequenceError) as of_subject:
        await publish("s.a", b"3", expect_last_subject_sequence=0)
    with pytest.raises(WrongLastSequenceError) as of_new_subject:
        await publish("s.c", b"3", expect_last_subject_sequence=7)
    assert (of_stream.value.last, of_subject.value.last, of_new_subject.value.last) == (2, 1, 0)


async def test_the_expectation_is_checked_before_the_id(nats_server: NatsServer, connect: Connect) -> None:
    log = await connect(nats_server)
    await jetstream.create_stream(log, STREAM)
    await log.publisher.publish("s.a", b"1", msg_id="x", expect_last_sequence=0)
    with pytest.raises(WrongLastSequenceError) as error:
        await log.publisher.publish("s.a", b"1", msg_id="x", expect_last_sequence=0)
    assert error.value.last == 1


@pytest.mark.parametrize("kill", [False, True])
async def test_publishes_in_flight_survive_a_restart_in_order_and_once(
    nats_server: NatsServer, connect: Connect, kill: bool
) -> None:
    log = await connect(nats_server)
    await jetstream.create_stream(log, STREAM)
    await log.publisher.publish("s.a", b"0", msg_id="0")

    async def producer() -> None:
        for number in range(1, 400):
            await log.publisher.publish("s.a", b"%d" % number, msg_id=str(number), timeout_s=20)

    running = asyncio.create_task(producer())
    while (await jetstream.stream_info(log, "S")).state.last_seq < 50:
        pass
    await asyncio.to_thread(nats_server.restart, kill=kill)
    await running
    assert await payloads(log) == [b"%d" % number for number in range(400)]


async def test_many_publishes_at_once_survive_a_restart(nats_server: NatsServer, connect: Connect) -> None:
    log = await connect(nats_server)
    await jetstream.create_stream(log, STREAM)
    nats_server.kill()
    running = [
        asyncio.create_task(log.publisher.publish("s.a", b"%d" % n, msg_id=str(n), timeout_s=20))
        for n in range(200)
    ]
    await asyncio.to_thread(nats_server.start)
    acks = await asyncio.gather(*running)
    assert sorted(ack.sequence for ack in acks) == list(range(1, 201))
    assert not log.publisher.in_flight


async def test_a_publish_waits_for_its_stream_to_be_created(
    nats_server: NatsServer, connect: Connect
) -> None:
    log = await connect(nats_server)
    publishing = asyncio.create_task(log.publisher.publish("s.a", b"1"))
    await jetstream.create_stream(log, STREAM)
    assert (await publishing).sequence == 1


async def test_without_a_stream_a_publish_says_so(nats_server: NatsServer, connect: Connect) -> None:
    log = await connect(nats_server)
    with pytest.raises(NotStoredError) as error:
        await log.publisher.publish("s.a", b"1", timeout_s=0.2)
    assert error.value.no_stream
    assert error.value.retryable


async def test_a_stopped_server_ends_a_publish_in_its_time(nats_server: NatsServer, connect: Connect) -> None:
    log = await connect(nats_server)
    await jetstream.create_stream(log, STREAM)
    nats_server.pause()
    try:
        with pytest.raises(NotStoredError) as error:
            await log.publisher.publish("s.a", b"1", timeout_s=0.3)
        assert error.value.retryable
    finally:
        nats_server.resume()


async def test_a_payload_that_would_cost_the_connection_is_refused(
    nats_server: NatsServer, connect: Connect
) -> None:
    log = await connect(nats_server)
    await jetstream.create_stream(log, STREAM)
    limit = log.publisher.payload_limit
    assert limit == 8 * 1024 * 1024 - 65536
    await log.publisher.publish("s.a", bytes(limit))
    with pytest.raises(PayloadTooLargeError) as error:
        await log.publisher.publish("s.a", bytes(limit + 1))
    assert error.value.limit == limit
    assert not error.value.retryable


async def test_a_refused_login_while_connected_ends_in_a_fresh_client(
    nats_server: NatsServer, connect: Connect
) -> None:
    log = await connect(nats_server)
    await jetstream.create_stream(log, STREAM)
    came_back = asyncio.Event()
    log.on_connected(came_back.set)
    await log._client.close()  # what the library does on errors it does not know
    assert (await log.publisher.publish("s.a", b"1", timeout_s=10)).sequence == 1
    assert came_back.is_set()


async def test_no_server_is_reported_in_the_time_given() -> None:
    with pytest.raises(NotConnectedError, match="--nats-url"):
        await Log.connect(NatsSettings("nats://127.0.0.1:1", insecure=True), name="test", timeout_s=0.3)
