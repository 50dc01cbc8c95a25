"""The engine's event sockets: live messages on PUB, those still buffered on request on ROUTER.

Messages are numbered from 0 in each process, and the last `buffer_steps` are kept for whoever asks
for a range again. Publishing never waits for a subscriber: who is too slow loses messages and sees it
by the numbers [SUB-011, SUB-235, SUB-237].
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import zmq
import zmq.asyncio

from inferencecache.simengine.events import Event, Form

END_OF_REPLAY: Final = b"\xff" * 8
LIVE_HIGH_WATER_MARK: Final = 100_000
"""Messages that wait for one slow subscriber before it loses some."""


class Faults(NamedTuple):
    """What an engine's event path does wrong, on purpose; 0 is never."""

    burns_every: int = 0
    """After each so many messages a number is taken and never sent, as when encoding fails [SUB-237]."""
    loses_every: int = 0
    """Each so manyth message is kept for replay but does not reach the live socket."""
    replay_delay_s: float = 0.0
    """A replay request waits so long for its answer."""
    replay_cut: int = 0
    """A replay stops after so many messages, without its end marker."""
    begins_at: int = 0
    """Number of the process's first message."""


NO_FAULTS: Final = Faults()


class ReplayBuffer:
    """The last messages with their numbers."""

    def __init__(self, steps: int, next_sequence: int = 0) -> None:
        self._messages: deque[tuple[int, bytes]] = deque(maxlen=steps)
        self.next_sequence = next_sequence

    def append(self, payload: bytes) -> bytes:
        """Keep a message and return its number in wire form, 8 bytes big-endian."""
        sequence = self.next_sequence
        self.next_sequence += 1
        self._messages.append((sequence, payload))
        return sequence.to_bytes(8, "big")

    def burn(self) -> None:
        """Take a number for nothing."""
        self.next_sequence += 1

    def since(self, sequence: int) -> Iterator[tuple[bytes, bytes]]:
        """Number and payload of every kept message from `sequence` on, oldest first."""
        for number, payload in self._messages:
            if number >= sequence:
                yield number.to_bytes(8, "big"), payload


class EventSockets:
    """Both sockets of one engine. An empty endpoint leaves its socket out."""

    def __init__(
        self,
        endpoint: str,
        replay_endpoint: str = "",
        *,
        topic: str = "kv-events",
        buffer_steps: int = 10_000,
        replay_topic: bool = True,
        faults: Faults = NO_FAULTS,
    ) -> None:
        self._topic = topic.encode()
        self._faults = faults
        self._sent = 0
        self._replay_topic = replay_topic
        self._buffer_steps = buffer_steps
        self._buffer = ReplayBuffer(buffer_steps, faults.begins_at)
        self._context = zmq.Context()
        self._pub: zmq.Socket[bytes] | None = None
        self._replay: zmq.asyncio.Socket | None = None
        if endpoint:
            self._pub = self._context.socket(zmq.PUB)
            self._pub.sndhwm = LIVE_HIGH_WATER_MARK
            self._pub.bind(endpoint)
        if replay_endpoint:
            self._replay = zmq.asyncio.Socket(self._context, zmq.ROUTER)
            self._replay.sndhwm = 0
            self._replay.bind(replay_endpoint)
        self._answering: asyncio.Task[None] | None = None

    @property
    def endpoint(self) -> str:
        """Where the live socket is really bound; empty when there is none."""
        return "" if self._pub is None else self._pub.getsockopt_string(zmq.LAST_ENDPOINT)

    @property
    def replay_endpoint(self) -> str:
        """Where the replay socket is really bound; empty when there is none."""
        return "" if self._replay is None else self._replay.getsockopt_string(zmq.LAST_ENDPOINT)

    def send(self, payload: bytes) -> None:
        """Send a message under the next number."""
        if self._pub is None:
            return
        number = self._buffer.append(payload)
        self._sent += 1
        if not self._is_due(self._faults.loses_every):
            self._pub.send_multipart([self._topic, number, payload], zmq.NOBLOCK)
        if self._is_due(self._faults.burns_every):
            self._buffer.burn()

    def forget(self) -> None:
        """Number from 0 again and know no earlier message, as another process in this one's place."""
        self._buffer = ReplayBuffer(self._buffer_steps)

    def start(self) -> None:
        """Answer replay requests from now on."""
        if self._replay is not None:
            self._answering = asyncio.create_task(self._answer_for_ever(self._replay), name="replay")

    async def close(self) -> None:
        """Stop answering and give up both ports; unsent messages are dropped."""
        if self._answering is not None:
            self._answering.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._answering
        for socket in (self._pub, self._replay):
            if socket is not None:
                socket.close(linger=0)
        self._context.term()

    def _is_due(self, every: int) -> bool:
        return every > 0 and self._sent % every == 0

    async def _answer_for_ever(self, socket: zmq.asyncio.Socket) -> None:
        while True:
            request = await socket.recv_multipart()
            if len(request) != 3 or request[1] or len(request[2]) != 8:
                continue
            await asyncio.sleep(self._faults.replay_delay_s)
            asked = int.from_bytes(request[2], "big")
            messages = list(self._buffer.since(asked))
            cut = self._faults.replay_cut
            for number, payload in messages[: cut or None]:
                await self._reply(socket, request[0], self._topic, number, payload)
            if not 0 < cut < len(messages):
                await self._reply(socket, request[0], b"", END_OF_REPLAY, b"")

    async def _reply(
        self, socket: zmq.asyncio.Socket, asker: bytes, topic: bytes, number: bytes, payload: bytes
    ) -> None:
        head = [asker, b"", topic] if self._replay_topic else [asker, b""]
        await socket.send_multipart([*head, number, payload])


class EventPublisher(EventSockets):
    """The sockets of an engine that writes its events in one form."""

    def __init__(self, endpoint: str, replay_endpoint: str = "", *, form: Form, **how: Any) -> None:
        super().__init__(endpoint, replay_endpoint, **how)
        self._form = form
        self.published = 0
        """How many messages were published."""

    def publish(self, events: Sequence[Event]) -> float:
        """Send events as one message; returns the Unix time that it carries."""
        now = time.time()
        if events and self.endpoint:
            self.send(self._form.payload(events, now))
            self.published += 1
        return now
