"""`StreamCacheEvents`: live events from the log to whoever listens.

One tail of the events streams serves all listeners and is open only while there are any. A listener
that reads more slowly than events arrive is ended, so that it holds up neither the others nor the
router; so is everybody when something of the log may have been missed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, NamedTuple

import grpc

from inferencecache.core.log import StreamMessage
from inferencecache.core.log.subjects import UnknownSubjectError, parse_subject
from inferencecache.router.calls import CallError
from inferencecache.router.observed import events_of
from inferencecache.router.views import Deliver, TailError
from inferencecache.schemas.ids import PROBE_TENANT
from inferencecache.schemas.records import Batch, UndecodableBatchError, decode_batch
from inferencecache.schemas.senders import ReplicaSender
from inferencecache.v1alpha1.inferencecache_pb2 import CacheEvent, StreamEventsRequest

MOST_WAITING_BYTES: Final = 8 * 1024 * 1024
"""Messages of the log that wait for one listener; a message that is larger is let through alone."""

OpenTail = Callable[[Deliver, Callable[[], None]], AbstractAsyncContextManager[None]]

_TOO_SLOW: Final = (
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    "events arrive faster than they are read; narrow the filter or read faster",
)
_MISSED: Final = (grpc.StatusCode.UNAVAILABLE, "events may have been missed; observe anew")
_STOPPING: Final = (grpc.StatusCode.UNAVAILABLE, "the router is stopping; observe at another one")


class _Heard(NamedTuple):
    """One message of a replica; `size` is that of its payload."""

    sender: ReplicaSender
    batch: Batch
    stored_us: int
    size: int


class EventStreams:
    """Listeners of one router, over a tail that `open_tail` opens."""

    def __init__(self, open_tail: OpenTail, most_waiting_bytes: int = MOST_WAITING_BYTES) -> None:
        self._open_tail = open_tail
        self._most_waiting_bytes = most_waiting_bytes
        self._listeners: set[_Listener] = set()
        self._tail: AbstractAsyncContextManager[None] | None = None
        self._has_lost = False
        self._changing = asyncio.Lock()
        self._is_stopping = False

    @asynccontextmanager
    async def listen(self, request: StreamEventsRequest) -> AsyncIterator[AsyncIterator[CacheEvent]]:
        """The events that pass the request's filters, from now on; it never ends by itself.

        Empty `model_id`, `tenant_id` and `types` mean all; the reserved tenant is never shown
        [WIRE-047]. Raises `CallError`.
        """
        listener = _Listener(request, self._most_waiting_bytes)
        try:
            await self._enter(listener)
            yield listener.events()
        finally:
            await self._leave(listener)

    @property
    def waiting_bytes(self) -> int:
        """Of messages that wait for the slowest listener."""
        return max((listener.waiting_bytes for listener in self._listeners), default=0)

    @property
    def most_waiting_bytes(self) -> int:
        return self._most_waiting_bytes

    def stop(self) -> None:
        """End all streams, and those to come, with `UNAVAILABLE`."""
        self._is_stopping = True
        for listener in self._listeners:
            listener.end(CallError(*_STOPPING))

    async def _enter(self, listener: _Listener) -> None:
        async with self._changing:
            if self._is_stopping:
                raise CallError(*_STOPPING)
            if self._has_lost:
                await self._close_tail()
            if self._tail is None:
                try:
                    tail = self._open_tail(self._deliver, self._lost)
                    await tail.__aenter__()
                except TailError as error:
                    raise CallError(grpc.StatusCode.UNAVAILABLE, str(error)) from None
                self._tail = tail
            self._listeners.add(listener)

    async def _leave(self, listener: _Listener) -> None:
        self._listeners.discard(listener)
        async with self._changing:
            if not self._listeners:
                await self._close_tail()

    async def _close_tail(self) -> None:
        tail, self._tail = self._tail, None
        self._has_lost = False
        if tail is not None:
            await tail.__aexit__(None, None, None)

    def _deliver(self, messages: list[StreamMessage]) -> None:
        for message in messages:
            try:
                sender = parse_subject(message.subject)[2]
            except UnknownSubjectError:
                continue
            if not isinstance(sender, ReplicaSender) or sender.tenant == PROBE_TENANT:
                continue
            interested = [listener for listener in self._listeners if listener.wants(sender)]
            if not interested:
                continue
            try:
                batch = decode_batch(message.payload).batch
            except UndecodableBatchError:
                continue
            heard = _Heard(sender, batch, message.position.time_ns // 1000, len(message.payload))
            for listener in interested:
                listener.offer(heard)

    def _lost(self) -> None:
        self._has_lost = True
        for listener in self._listeners:
            listener.end(CallError(*_MISSED))


class _Listener:
    def __init__(self, request: StreamEventsRequest, most_waiting_bytes: int) -> None:
        self._tenant = request.tenant_id
        self._model = request.model_id
        self._types = frozenset(request.types)
        self._most_waiting_bytes = most_waiting_bytes
        self._waiting: deque[_Heard] = deque()
        self.waiting_bytes = 0
        self._more = asyncio.Event()
        self._end: CallError | None = None

    def wants(self, sender: ReplicaSender) -> bool:
        """Whether anything about this replica may be shown."""
        if self._end is not None:
            return False
        return self._tenant in {"", sender.tenant} and self._model in {"", sender.model}

    def offer(self, heard: _Heard) -> None:
        """Keep a message until it is read; one too many ends the stream."""
        if self._waiting and self.waiting_bytes + heard.size > self._most_waiting_bytes:
            self.end(CallError(*_TOO_SLOW))
            return
        self._waiting.append(heard)
        self.waiting_bytes += heard.size
        self._more.set()

    def end(self, error: CallError) -> None:
        """What waits is not shown any more."""
        self._end = self._end or error
        self._waiting.clear()
        self.waiting_bytes = 0
        self._more.set()

    async def events(self) -> AsyncIterator[CacheEvent]:
        while True:
            await self._more.wait()
            self._more.clear()
            while self._waiting:
                heard = self._waiting.popleft()
                self.waiting_bytes -= heard.size
                for event in events_of(heard.sender, heard.batch, heard.stored_us, self._types):
                    yield event
                    if self._end is not None:
                        break
            if self._end is not None:
                raise self._end
