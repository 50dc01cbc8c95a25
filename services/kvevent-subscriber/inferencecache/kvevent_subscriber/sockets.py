"""The engine's sockets: a subscription that never gives up, and one-off exchanges with a replay socket.

Both hand over message parts and know nothing of their content. The live socket is drained whatever
happens to the records, so that an engine's publisher is never held up [SUB-003, SUB-116].
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

from inferencecache.core.service import get_logger
from inferencecache.kvevent_subscriber.endpoints import binds
from inferencecache.kvevent_subscriber.frames import replay_request

RECONNECT_S: Final = 1.0
LIVE_MESSAGES_MAX: Final = 100_000
PART_BYTES_MAX: Final = 64 * 1024 * 1024
BURST: Final = 64
"""Messages taken at a time before others of the event loop have their turn."""

logger = get_logger("engine")

Parts = list[bytes]


class LiveSocket:
    """A subscription to one publisher, for ever. The callbacks run on the event loop, in order."""

    def __init__(
        self,
        context: zmq.asyncio.Context,
        endpoint: str,
        topic: str,
        *,
        on_message: Callable[[Parts], None],
        on_connected: Callable[[], None],
        on_disconnected: Callable[[], None],
    ) -> None:
        self._context = context
        self._endpoint = endpoint
        self._topic = topic.encode()
        self._on_message = on_message
        self._on_connected = on_connected
        self._on_disconnected = on_disconnected
        self._connections = 0

    async def run(self) -> None:
        """Receive until cancelled; a socket that fails is opened again after a second [SUB-014]."""
        while True:
            try:
                await self._session()
            except zmq.ZMQError as error:
                logger.warning("engine_socket_failed", endpoint=self._endpoint, error=str(error))
                self._connections = 0
                self._on_disconnected()
            await asyncio.sleep(RECONNECT_S)

    async def _session(self) -> None:
        socket = self._context.socket(zmq.SUB)
        monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        try:
            socket.linger = 0
            socket.rcvhwm = LIVE_MESSAGES_MAX
            socket.maxmsgsize = PART_BYTES_MAX
            socket.reconnect_ivl = int(1000 * RECONNECT_S)
            socket.subscribe(self._topic)
            if binds(self._endpoint):
                socket.bind(self._endpoint)
            else:
                socket.connect(self._endpoint)
            news = _Direct(monitor)
            messages = _Direct(socket)
            async with asyncio.TaskGroup() as tasks:
                for waited_for in (socket, monitor):
                    tasks.create_task(self._take(waited_for, messages, news))
        except* zmq.ZMQError as errors:
            raise zmq.ZMQError(msg=str(errors.exceptions[0])) from errors
        finally:
            socket.disable_monitor()
            monitor.close()
            socket.close()

    async def _take(self, waited_for: zmq.asyncio.Socket, messages: _Direct, news: _Direct) -> None:
        """Hand over what there is whenever one of the two sockets has something.

        Of messages that come while some are left unread the library tells nobody, and what is left is known
        only to who read last: so that one goes on until nothing is left, whatever it waited for.
        """
        while True:
            await waited_for.poll()
            is_more = True
            while is_more:
                is_more = self._hand_over(messages, news)
                await asyncio.sleep(0)

    def _hand_over(self, messages: _Direct, news: _Direct) -> bool:
        """One burst; answers whether more may be left.

        A connection is announced before its messages, and one that is lost is not back within a second:
        so messages found with the news of a connection came over it, and all others came before the news.
        """
        burst = messages.read(BURST)
        events = [parse_monitor_message(parts)["event"] for parts in news.read(BURST)]
        is_full = BURST in (len(burst), len(events))
        if zmq.EVENT_HANDSHAKE_SUCCEEDED not in events:
            while burst:
                for parts in burst:
                    self._on_message(parts)
                burst = messages.read(BURST) if events else []
        for event in events:
            self._connection_changed(event)
        for parts in burst:
            self._on_message(parts)
        return is_full

    def _connection_changed(self, event: int) -> None:
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._connections += 1
            logger.info(
                "engine_subscribed",
                msg="subscribed to engine KV events",
                endpoint=self._endpoint,
                topic=self._topic.decode(),
            )
            self._on_connected()
        else:
            # A bound socket can have the connection of the next process before it has lost the last one.
            self._connections = max(0, self._connections - 1)
            if not self._connections:
                self._on_disconnected()


async def replay(
    context: zmq.asyncio.Context, endpoint: str, first: int, on_reply: Callable[[Parts], None]
) -> None:
    """Ask for every kept message from `first` on and hand over what comes, until cancelled [SUB-054]."""
    socket = context.socket(zmq.DEALER)
    try:
        socket.linger = 0
        socket.rcvhwm = 0
        socket.maxmsgsize = PART_BYTES_MAX
        socket.connect(endpoint)
        await socket.send_multipart(replay_request(first))
        messages = _Direct(socket)
        while True:
            await socket.poll()
            for parts in messages.read(BURST):
                on_reply(parts)
            await asyncio.sleep(0)
    except zmq.ZMQError as error:
        # Silence is what the waiting side knows how to deal with.
        logger.info("replay_socket_failed", endpoint=endpoint, error=str(error))
    finally:
        socket.close()


class _Direct:
    """An asyncio socket's messages without a future for each."""

    def __init__(self, socket: zmq.asyncio.Socket) -> None:
        self._socket: zmq.Socket[bytes] = zmq.Socket.shadow(socket.underlying)

    def read(self, most: int) -> list[Parts]:
        """What is there now, at most so many messages."""
        found: list[Parts] = []
        try:
            while len(found) < most:
                found.append(self._socket.recv_multipart(zmq.NOBLOCK))
        except zmq.Again:
            pass
        return found
