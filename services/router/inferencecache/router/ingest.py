"""`ReportCacheState` and `PublishEvent`: what producers say, appended to the log before it is acknowledged.

The router changes no index itself. It turns a message into records, publishes them about the replica
the message names, and answers when the log has stored them; the change comes back to its views as a
delta, like anybody's [WIRE-098, WIRE-099].
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from contextlib import aclosing
from typing import Final, TypeVar

import grpc

from inferencecache.core.log import NotStoredError
from inferencecache.core.log.subjects import InvalidIdError, partition_of, replica_subject
from inferencecache.core.service import get_logger
from inferencecache.router.calls import CallError
from inferencecache.router.packing import pack
from inferencecache.router.translate import records_of_event, records_of_update
from inferencecache.router.views import EventLog, Following
from inferencecache.schemas.ids import PROBE_TENANT, ModelId, ReplicaId, TenantId
from inferencecache.schemas.records import AnyRecord
from inferencecache.schemas.senders import ReplicaSender
from inferencecache.v1alpha1.inferencecache_pb2 import Ack, CacheEvent, CacheStateUpdate

STORE_TIMEOUT_S: Final = 5.0
MOST_WAITING_BYTES: Final = 64 * 1024 * 1024
"""Messages of producers that wait for the log; one that is alone is taken whatever its size."""
QUICK_BYTES: Final = 16 * 1024
"""A message up to this size is translated within a few milliseconds, whatever it holds."""

_Message = TypeVar("_Message", CacheStateUpdate, CacheEvent)

log = get_logger("ingest")


class Ingest:
    """Takes producers' messages until it is stopped."""

    def __init__(self, event_log: EventLog, following: Following) -> None:
        self._log = event_log
        self._following = following
        self._sender_id = secrets.token_hex(8)
        self._sent = 0
        self.waiting_bytes = 0
        """Of messages that the log has not stored yet."""
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """End open streams with `UNAVAILABLE` once what was read from them is stored."""
        self._stopping.set()

    async def report(self, updates: AsyncIterator[CacheStateUpdate]) -> Ack:
        """Store a stream of updates in order; the one answer follows the last [WIRE-085, WIRE-086]."""
        async with aclosing(_until(self._stopping, updates)) as received:
            async for update in received:
                await self._take(update, records_of_update)
        if self._stopping.is_set():
            raise CallError(grpc.StatusCode.UNAVAILABLE, "the router is stopping; report to another one")
        return Ack(accepted=True)

    async def publish(self, event: CacheEvent) -> Ack:
        """Store one event [WIRE-105]."""
        await self._take(event, records_of_event)
        return Ack(accepted=True)

    async def _take(self, message: _Message, translate: Callable[[_Message], Iterable[AnyRecord]]) -> None:
        """Refuse a message while too much waits: a log that is slow or away must not fill the memory."""
        size = message.ByteSize()
        if self.waiting_bytes and self.waiting_bytes + size > MOST_WAITING_BYTES:
            raise CallError(grpc.StatusCode.UNAVAILABLE, "too much waits for the event log; report later")
        self.waiting_bytes += size
        try:
            await self._store(message, translate)
        finally:
            self.waiting_bytes -= size

    async def _store(self, message: _Message, translate: Callable[[_Message], Iterable[AnyRecord]]) -> None:
        """Append a message's records; those of the reserved tenant are dropped [WIRE-044, WIRE-045]."""
        if message.tenant_id == PROBE_TENANT:
            return
        tenant, model, replica = message.tenant_id, message.model_id, message.replica_id
        sender = ReplicaSender(TenantId(tenant), ModelId(model), ReplicaId(replica), "g")
        layout = self._following.newest_layout
        if layout is None:
            raise CallError(grpc.StatusCode.UNAVAILABLE, "the event log was not reached yet")
        partition = partition_of(tenant, model, replica, layout)
        try:
            subject = replica_subject(layout.generation, partition, sender)
            async for payload in self._payloads(message, translate):
                self._sent += 1
                await self._log.publish(
                    subject, payload, msg_id=f"{self._sender_id}.{self._sent}", timeout_s=STORE_TIMEOUT_S
                )
        except InvalidIdError as error:
            raise CallError(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None
        except NotStoredError as error:
            log.warning("event_not_stored", msg=str(error))
            raise CallError(grpc.StatusCode.UNAVAILABLE, "the event log did not store the message") from None

    async def _payloads(
        self, message: _Message, translate: Callable[[_Message], Iterable[AnyRecord]]
    ) -> AsyncIterator[bytes]:
        """The message as batches of the log, made one at a time; of a large one in a thread, since lookups
        would wait for up to a second.
        """

        def packed() -> Iterator[bytes]:
            yield from pack(translate(message), self._log.payload_limit)

        batches = packed()
        is_large = message.ByteSize() > QUICK_BYTES
        while True:
            batch = await asyncio.to_thread(next, batches, None) if is_large else next(batches, None)
            if batch is None:
                return
            yield batch


async def _until(stopping: asyncio.Event, items: AsyncIterator[_Message]) -> AsyncGenerator[_Message, None]:
    """The items up to their end or the moment `stopping` is set."""
    stopped = asyncio.ensure_future(stopping.wait())
    following: asyncio.Future[_Message] | None = None
    try:
        while not stopped.done():
            following = asyncio.ensure_future(anext(items))
            await asyncio.wait((following, stopped), return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                yield following.result()
    except StopAsyncIteration:
        return
    finally:
        stopped.cancel()
        if following is not None:
            following.cancel()
