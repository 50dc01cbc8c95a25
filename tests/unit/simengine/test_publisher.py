"""The event sockets speak the engines' protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import zmq
import zmq.asyncio

from inferencecache.simengine.events import AllCleared
from inferencecache.simengine.publisher import EventPublisher, Faults, ReplayBuffer
from inferencecache.simengine.vllm_form import VllmForm

END = b"\xff" * 8
ANYWHERE = "tcp://127.0.0.1:*"
FORM = VllmForm(4)


@pytest.fixture
def context() -> Iterator[zmq.asyncio.Context]:
    with zmq.asyncio.Context() as context:
        context.linger = 0
        yield context


@pytest.fixture
async def publisher() -> AsyncIterator[EventPublisher]:
    publisher = EventPublisher(ANYWHERE, ANYWHERE, form=FORM, buffer_steps=5)
    publisher.start()
    yield publisher
    await publisher.close()


async def replay(context: zmq.asyncio.Context, endpoint: str, *request: bytes) -> list[list[bytes]]:
    """All replies to one request, end marker included."""
    with context.socket(zmq.DEALER) as dealer:
        dealer.connect(endpoint)
        await dealer.send_multipart(request)
        replies: list[list[bytes]] = []
        while not replies or replies[-1][-2] != END:
            replies.append(await asyncio.wait_for(dealer.recv_multipart(), 5))
        return replies


def test_a_buffer_keeps_the_last_messages_and_their_numbers() -> None:
    buffer = ReplayBuffer(3)
    for number in range(5):
        buffer.append(bytes([number]))
    assert [(int.from_bytes(number), payload[0]) for number, payload in buffer.since(0)] == [
        (2, 2),
        (3, 3),
        (4, 4),
    ]
    assert [int.from_bytes(number) for number, _ in buffer.since(4)] == [4]
    assert list(buffer.since(5)) == []


async def test_a_message_has_topic_number_and_payload(
    context: zmq.asyncio.Context, publisher: EventPublisher
) -> None:
    with context.socket(zmq.SUB) as subscriber:
        subscriber.connect(publisher.endpoint)
        subscriber.subscribe(b"kv-events")
        number = None
        while number is None:
            publisher.publish([AllCleared()])
            if await subscriber.poll(50):
                topic, number, payload = await subscriber.recv_multipart()
                assert topic == b"kv-events"
                assert len(number) == 8
                assert payload[0] == 0x93
        publisher.publish([AllCleared()])
        following = (await asyncio.wait_for(subscriber.recv_multipart(), 5))[1]
    assert int.from_bytes(following) == int.from_bytes(number) + 1


@pytest.mark.rule("SUB-235")
async def test_replay_gives_what_is_still_buffered_then_the_end(
    context: zmq.asyncio.Context, publisher: EventPublisher
) -> None:
    for _ in range(8):
        publisher.publish([AllCleared()])
    replies = await replay(context, publisher.replay_endpoint, b"", (1).to_bytes(8, "big"))
    assert [int.from_bytes(reply[2]) for reply in replies[:-1]] == [3, 4, 5, 6, 7]
    assert {tuple(reply[:2]) for reply in replies[:-1]} == {(b"", b"kv-events")}
    assert replies[-1] == [b"", b"", END, b""]


async def test_replay_can_leave_the_topic_out_as_older_engines_do(context: zmq.asyncio.Context) -> None:
    publisher = EventPublisher(ANYWHERE, ANYWHERE, form=FORM, replay_topic=False)
    publisher.start()
    publisher.publish([AllCleared()])
    replies = await replay(context, publisher.replay_endpoint, b"", bytes(8))
    await publisher.close()
    assert [reply[:2] for reply in replies] == [[b"", bytes(8)], [b"", END]]
    assert [len(reply) for reply in replies] == [3, 3]


async def test_a_request_of_another_shape_is_ignored(
    context: zmq.asyncio.Context, publisher: EventPublisher
) -> None:
    publisher.publish([AllCleared()])
    with context.socket(zmq.DEALER) as dealer:
        dealer.connect(publisher.replay_endpoint)
        for request in ([b"x", bytes(8)], [b"", b"short"], [bytes(8)]):
            await dealer.send_multipart(request)
        await dealer.send_multipart([b"", bytes(8)])
        assert (await asyncio.wait_for(dealer.recv_multipart(), 5))[2] == bytes(8)
        assert (await asyncio.wait_for(dealer.recv_multipart(), 5))[2] == END


async def test_without_an_endpoint_nothing_is_published() -> None:
    publisher = EventPublisher("", form=FORM)
    publisher.start()
    assert publisher.publish([AllCleared()]) > 0
    assert publisher.published == 0
    assert publisher.endpoint == publisher.replay_endpoint == ""
    await publisher.close()


@asynccontextmanager
async def faulty(**faults: float) -> AsyncIterator[EventPublisher]:
    publisher = EventPublisher(ANYWHERE, ANYWHERE, form=FORM, faults=Faults(**faults))  # type: ignore[arg-type]
    publisher.start()
    yield publisher
    await publisher.close()


@pytest.mark.rule("SUB-237")
async def test_numbers_can_be_burnt(context: zmq.asyncio.Context) -> None:
    async with faulty(burns_every=2) as publisher:
        for _ in range(5):
            publisher.publish([AllCleared()])
        replies = await replay(context, publisher.replay_endpoint, b"", bytes(8))
    assert [int.from_bytes(reply[-2]) for reply in replies[:-1]] == [0, 1, 3, 4, 6]
    assert publisher.published == 5


async def test_messages_can_be_lost_to_the_live_socket_alone(context: zmq.asyncio.Context) -> None:
    async with faulty(loses_every=3) as publisher:
        with context.socket(zmq.SUB) as subscriber:
            subscriber.connect(publisher.endpoint)
            subscriber.subscribe(b"")
            while not await subscriber.poll(20):
                publisher.publish([AllCleared()])
            for _ in range(6):
                publisher.publish([AllCleared()])
            numbers = []
            while await subscriber.poll(200):
                numbers.append(int.from_bytes((await subscriber.recv_multipart())[1]))
        replies = await replay(context, publisher.replay_endpoint, b"", bytes(8))
    assert not [number for number in numbers if number % 3 == 2]
    assert len(numbers) >= 4
    assert [int.from_bytes(reply[-2]) for reply in replies[:-1]] == list(range(publisher.published))


async def test_a_replay_can_be_late(context: zmq.asyncio.Context) -> None:
    async with faulty(replay_delay_s=0.3) as publisher:
        began = asyncio.get_running_loop().time()
        await replay(context, publisher.replay_endpoint, b"", bytes(8))
        assert asyncio.get_running_loop().time() - began >= 0.3


async def test_a_replay_can_be_cut_off_without_its_end(context: zmq.asyncio.Context) -> None:
    async with faulty(replay_cut=2) as publisher:
        for _ in range(4):
            publisher.publish([AllCleared()])
        with context.socket(zmq.DEALER) as dealer:
            dealer.connect(publisher.replay_endpoint)
            await dealer.send_multipart([b"", bytes(8)])
            for _ in range(2):
                await asyncio.wait_for(dealer.recv_multipart(), 5)
            assert not await dealer.poll(100)
        assert len(await replay(context, publisher.replay_endpoint, b"", (3).to_bytes(8, "big"))) == 2
