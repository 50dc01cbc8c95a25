"""A load of unary gRPC calls that costs its own process little: HTTP/2 frames written and read by hand.

A gRPC library's client costs about what its server does, so it would be what saturates. Here a call is two
frames with a header block of a few bytes, the same for every call of a connection but the first, as a library
sends it too. Every answer is looked at: one that is an error has no message.
"""

from __future__ import annotations

import asyncio
import math
import struct
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import cycle
from typing import Final, NamedTuple, cast

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST, _SETTINGS, _PING, _GOAWAY, _WINDOW = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _END_HEADERS, _ACK, _PADDED = 1, 4, 1, 8
_MOST: Final = 2**31 - 1
_FIRST_WINDOW: Final = 65_535
_HEAD: Final = struct.Struct(">HBBBI")
_NEW_NAME: Final = 0x40
_PREFIX_BYTES: Final = 5
"""Before each message: whether it is compressed, and its length."""


class CallFailedError(Exception):
    """A call had no answer, or a connection ended."""


class Answered(NamedTuple):
    """One call: when it was due (or sent), when its answer was there, by the monotonic clock in seconds."""

    due_s: float
    at_s: float


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return _HEAD.pack(len(payload) >> 8, len(payload) & 0xFF, kind, flags, stream) + payload


def _text(value: bytes) -> bytes:
    return bytes([len(value)]) + value


class Connection(asyncio.Protocol):
    """One HTTP/2 connection to one method; `answered` is called with each call's message."""

    def __init__(self, method: str, authority: str) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._stream = 1
        self._window = _FIRST_WINDOW
        self._waiting: list[bytes] = []
        self._messages: dict[int, bytes] = {}
        self._due: dict[int, float] = {}
        entered = [(b"user-agent", b"bench"), (b"te", b"trailers"), (b"content-type", b"application/grpc")]
        known = b"\x83\x86"  # :method POST, :scheme http
        self._first = known + b"\x44" + _text(method.encode()) + b"\x41" + _text(authority.encode())
        self._first += b"".join(bytes([_NEW_NAME]) + _text(name) + _text(value) for name, value in entered)
        # What the first block has entered into the table, the last of it first at 62.
        self._again = known + bytes(0x80 | number for number in range(66, 61, -1))
        self.failure: BaseException | None = None
        self.answered: Callable[[Answered, bytes], None] = lambda answered, message: None
        self.refused: Callable[[float], None] = self.fail

    @property
    def open_calls(self) -> int:
        return len(self._due)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # That of uvloop is one in all but name.
        self._transport = stream = cast("asyncio.Transport", transport)
        settings = struct.pack(">HIHI", 2, 0, 4, _MOST)  # no push, and streams may send what they like
        more = struct.pack(">I", _MOST - _FIRST_WINDOW)
        stream.write(_PREFACE + _frame(_SETTINGS, 0, 0, settings) + _frame(_WINDOW, 0, 0, more))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._due:
            self.failure = self.failure or exc or CallFailedError("the connection has ended")

    def call(self, request: bytes, due_s: float) -> None:
        """Send a serialised request."""
        block = self._again if self._stream > 1 else self._first
        stream, self._stream = self._stream, self._stream + 2
        self._due[stream] = due_s
        message = b"\x00" + struct.pack(">I", len(request)) + request
        self._waiting.append(
            _frame(_HEADERS, _END_HEADERS, stream, block) + _frame(_DATA, _END_STREAM, stream, message)
        )
        self._send()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _send(self) -> None:
        """What the receiver has room for; the frames' heads count as well, which is on the safe side."""
        assert self._transport is not None
        while self._waiting and len(self._waiting[0]) <= self._window:
            frames = self._waiting.pop(0)
            self._window -= len(frames)
            self._transport.write(frames)

    def data_received(self, data: bytes) -> None:
        self._received += data
        try:
            for kind, flags, stream, payload in self._frames():
                self._take(kind, flags, stream, payload)
        except CallFailedError as error:
            self.failure = error
            self.close()

    def _frames(self) -> Iterator[tuple[int, int, int, bytes]]:
        received, start = self._received, 0
        while len(received) - start >= _HEAD.size:
            high, low, kind, flags, stream = _HEAD.unpack_from(received, start)
            end = start + _HEAD.size + (high << 8 | low)
            if len(received) < end:
                break
            yield kind, flags, stream, bytes(received[start + _HEAD.size : end])
            start = end
        del received[:start]

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        assert self._transport is not None
        if kind == _DATA:
            assert not flags & _PADDED
            self._messages[stream] = self._messages.get(stream, b"") + payload
        elif kind in {_RST, _GOAWAY}:
            raise CallFailedError(f"the server ends with frame {kind}: {payload!r}")
        elif kind == _SETTINGS and not flags & _ACK:
            self._transport.write(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            self._transport.write(_frame(_PING, _ACK, 0, payload))
        elif kind == _WINDOW and stream == 0:
            self._window += struct.unpack(">I", payload)[0]
            self._send()
        if flags & _END_STREAM and kind in {_DATA, _HEADERS}:
            message = self._messages.pop(stream, b"")
            if len(message) < _PREFIX_BYTES:
                self.refused(self._due.pop(stream))
                return
            self.answered(Answered(self._due.pop(stream), time.monotonic()), message[_PREFIX_BYTES:])

    def fail(self, due_s: float) -> None:
        """What becomes of a refused call, unless somebody says otherwise."""
        raise CallFailedError("a call was answered with an error")


class Caller:
    """Several connections to one method of several servers, which take turns."""

    def __init__(self, connections: Sequence[Connection], requests: Sequence[bytes]) -> None:
        self._connections = connections
        self._requests = cycle(requests)
        self._loop = asyncio.get_running_loop()

    async def as_fast_as_possible(self, seconds: float, calls_at_once: int) -> list[Answered]:
        """Each connection has so many calls open for this time; those that were answered within it."""
        answers: list[Answered] = []
        end_s = time.monotonic() + seconds

        def next_call(connection: Connection) -> None:
            now_s = time.monotonic()
            if now_s < end_s:
                connection.call(next(self._requests), now_s)

        for connection in self._connections:
            connection.refused = connection.fail

            def answered(each: Answered, message: bytes, connection: Connection = connection) -> None:
                answers.append(each)
                next_call(connection)

            connection.answered = answered
            for _ in range(calls_at_once):
                next_call(connection)
        await self._until_quiet(end_s)
        return [each for each in answers if each.at_s <= end_s]

    async def at_rate(self, seconds: float, calls_a_second: float) -> list[Answered]:
        """Calls that are due evenly, whatever becomes of those before; waits count from when one is due.

        One that is refused is as one that is never answered. The timer of the loop adds up to a millisecond.
        """
        answers: list[Answered] = []
        for connection in self._connections:
            connection.answered = lambda each, message: answers.append(each)
            connection.refused = lambda due_s: answers.append(Answered(due_s, math.inf))
        due_s = time.monotonic()
        end_s = due_s + seconds
        connections = cycle(self._connections)
        while due_s < end_s:
            now_s = time.monotonic()
            while due_s <= now_s and due_s < end_s:
                next(connections).call(next(self._requests), due_s)
                due_s += 1 / calls_a_second
            self._raise_failure()
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        await self._until_quiet(end_s)
        return answers

    async def until(
        self, request: bytes, is_it: Callable[[bytes], bool], limit_s: float, pause_s: float
    ) -> float | None:
        """Ask one server the same again and again; when the right answer came, None if it did not in time."""
        connection = self._connections[0]
        end_s = time.monotonic() + limit_s
        while time.monotonic() < end_s:
            answer: asyncio.Future[tuple[Answered, bytes]] = self._loop.create_future()
            connection.answered = lambda each, message, answer=answer: answer.set_result((each, message))  # type: ignore[misc]
            connection.call(request, time.monotonic())
            try:
                each, message = await asyncio.wait_for(answer, limit_s)
            except TimeoutError:
                self._raise_failure()
                return None
            if is_it(message):
                return each.at_s
            await asyncio.sleep(pause_s)
        return None

    async def _until_quiet(self, end_s: float) -> None:
        while time.monotonic() < end_s or any(each.open_calls for each in self._connections):
            self._raise_failure()
            await asyncio.sleep(0.01)

    def _raise_failure(self) -> None:
        for each in self._connections:
            if each.failure is not None:
                raise CallFailedError("a connection failed") from each.failure


@asynccontextmanager
async def calling(
    addresses: Sequence[str], method: str, requests: Sequence[bytes], connections: int = 1
) -> AsyncIterator[Caller]:
    """A caller of /package.Service/Method with so many connections to each HOST:PORT."""
    loop = asyncio.get_running_loop()
    opened: list[Connection] = []
    try:
        for _ in range(connections):
            for address in addresses:
                host, _, port = address.rpartition(":")
                _, connection = await loop.create_connection(
                    lambda address=address: Connection(method, address),  # type: ignore[misc]
                    host,
                    int(port),
                )
                opened.append(connection)
        yield Caller(opened, requests)
    finally:
        for connection in opened:
            connection.close()
