"""The live socket takes whatever arrives, whenever that is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import zmq
import zmq.asyncio

from inferencecache.kvevent_subscriber import sockets
from inferencecache.kvevent_subscriber.sockets import LiveSocket, Parts
from tests.support.waiting import eventually

ARRIVAL_LIMIT_MS = 10_000


@pytest.fixture
def publisher() -> Iterator[zmq.Socket[bytes]]:
    """An engine's socket, which hears of subscriptions."""
    context = zmq.Context()
    with context.socket(zmq.XPUB) as socket:
        socket.linger = 0
        socket.rcvtimeo = ARRIVAL_LIMIT_MS
        socket.bind("tcp://127.0.0.1:*")
        yield socket
    context.term()


async def test_what_is_found_with_the_news_of_a_connection_makes_nothing_behind_it_wait(
    publisher: zmq.Socket[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is woken by the connection finds a whole burst that nobody was woken for yet."""

    class Busy(sockets._Direct):
        is_first = True

        def read(self, most: int) -> list[Parts]:
            if Busy.is_first:
                Busy.is_first = False
                publisher.recv()
                publisher.send_multipart([b"", b"first"])
                assert self._socket.poll(ARRIVAL_LIMIT_MS)
            return super().read(most)

    monkeypatch.setattr(sockets, "BURST", 1)
    monkeypatch.setattr(sockets, "_Direct", Busy)
    context = zmq.asyncio.Context()
    received: list[Parts] = []
    live = LiveSocket(
        context,
        publisher.getsockopt_string(zmq.LAST_ENDPOINT),
        "",
        on_message=received.append,
        on_connected=lambda: None,
        on_disconnected=lambda: None,
    )
    running = asyncio.create_task(live.run())
    try:
        await eventually(lambda: received == [[b"", b"first"]])
        publisher.send_multipart([b"", b"second"])
        await eventually(lambda: received[1:] == [[b"", b"second"]], what="the second message")
    finally:
        running.cancel()
        await asyncio.wait((running,))
        context.destroy(linger=0)
