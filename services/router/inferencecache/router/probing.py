"""The functional self-test: from a request on NATS through the log into this router's own view.

One router of all answers; that its view shows what it appended proves log, indexer and deltas. What is
appended belongs to the reserved tenant and goes where routers report for gRPC producers, which cannot
name that tenant; so no producer can forge it [IDX-191].
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

import msgspec

from inferencecache.core.index.probe import Probe
from inferencecache.core.log import Log, Message, NotStoredError
from inferencecache.core.log.subjects import PROBE_SUBJECT, InvalidIdError, partition_of, replica_subject
from inferencecache.core.service import get_logger
from inferencecache.router.answering import answer_requests
from inferencecache.router.views import LiveFollowing, index_of
from inferencecache.schemas.ids import PROBE_TENANT
from inferencecache.schemas.layout import Layout
from inferencecache.schemas.records import AnyRecord, Batch, Cleared, encode_batch
from inferencecache.schemas.requests import ProbeFailure, ProbeRequest, ProbeResult
from inferencecache.schemas.senders import ReplicaSender
from inferencecache.schemas.unreadable import UNREADABLE

WAIT_S: Final = 2.0
"""From the acknowledgement of the log to the view; whoever asks gives up after 5 s."""
STORE_TIMEOUT_S: Final = 2.0
MOST_BYTES: Final = 4096
_POLL_S: Final = 0.005

logger = get_logger("probe")

_decoder = msgspec.json.Decoder(ProbeRequest)


class _Stored(NamedTuple):
    layout: Layout
    partition: int
    sequence: int


class Probing:
    """Probes by the router `id_`; equal ones run one after the other, others side by side [CTL-137]."""

    def __init__(self, id_: str, following: LiveFollowing, *, wait_s: float = WAIT_S) -> None:
        self._id = id_
        self._following = following
        self._wait_s = wait_s
        self._sent = 0
        self._turns: WeakValueDictionary[Probe, asyncio.Lock] = WeakValueDictionary()

    async def serve(self, log: Log) -> None:
        """Answer requests on NATS until cancelled, but not those that nobody waits for."""
        await answer_requests(log, PROBE_SUBJECT, lambda message: self._answer(log, message))

    @asynccontextmanager
    async def probed(self, payload: bytes) -> AsyncIterator[ProbeResult]:
        """The answer to a request. On leaving, what was stored for it is removed [IDX-190]."""
        if not payload:
            yield ProbeResult(self._id)
            return
        request = _read(payload)
        if isinstance(request, ProbeFailure):
            yield ProbeResult(self._id, errors=(request,))
            return
        probe = Probe(request.backend, request.model, request.hash_scheme)
        turn = self._turns.setdefault(probe, asyncio.Lock())
        async with turn:
            try:
                yield await self._result(probe)
            finally:
                with contextlib.suppress(NotStoredError, InvalidIdError):
                    await self._append(probe, Cleared())

    async def _answer(self, log: Log, message: Message) -> None:
        async with self.probed(message.data) as result:
            if result.errors:
                failure = result.errors[0]
                logger.warning(
                    "probe_failed", backend=result.backend, stage=failure.stage, msg=failure.message
                )
            await log.send(message.reply, msgspec.json.encode(result))

    async def _result(self, probe: Probe) -> ProbeResult:
        result = ProbeResult(self._id, probe.backend, ingest="ok", routing="ok", t2="skipped")
        if problem := await self._ingest_problem(probe):
            failure = ProbeFailure("ingest", problem)
            return msgspec.structs.replace(result, ingest="failed", routing="skipped", errors=(failure,))
        index = index_of(self._following, PROBE_TENANT, probe.model)
        if problem := probe.routing_problem(index, index.now_us):
            return msgspec.structs.replace(
                result, routing="failed", errors=(ProbeFailure("routing", problem),)
            )
        return result

    async def _ingest_problem(self, probe: Probe) -> str:
        """Append the block and wait until this router's view shows it; what went wrong, else empty.

        The view must contain what was appended now, since an earlier probe may have left a block behind.
        Another router's probe of the same backend may take the block away, or the layout may change: then
        it is appended again.
        """
        pause_s = _POLL_S
        try:
            stored = await self._append(probe, *probe.records())
            give_up_s = time.monotonic() + self._wait_s
            while time.monotonic() < give_up_s:
                if self._following.layout != stored.layout:
                    stored = await self._append(probe, *probe.records())
                if self._following.log_sequence(stored.partition) < stored.sequence:
                    await asyncio.sleep(_POLL_S)
                    continue
                index = index_of(self._following, PROBE_TENANT, probe.model)
                if probe.is_held(index, index.now_us):
                    return ""
                await asyncio.sleep(pause_s)
                pause_s *= 2
                stored = await self._append(probe, *probe.records())
        except (NotStoredError, InvalidIdError) as error:
            return f"the log did not take the record: {error}"
        return (
            f"the record did not come back within {self._wait_s} s: it was number {stored.sequence} of the "
            f"log of partition {stored.partition} in generation {stored.layout.generation}, which the "
            "router's view has not reached"
        )

    async def _append(self, probe: Probe, *records: AnyRecord) -> _Stored:
        """Raises `NotStoredError` and `InvalidIdError`."""
        layout = self._following.layout
        sender = ReplicaSender(PROBE_TENANT, probe.model, probe.replica, "g")
        if layout is None:
            raise NotStoredError("the events stream", "the log was not reached yet", retryable=True)
        partition = partition_of(PROBE_TENANT, probe.model, probe.replica, layout)
        self._sent += 1
        ack = await self._following.publisher.publish(
            replica_subject(layout.generation, partition, sender),
            encode_batch(Batch(records=records)),
            msg_id=f"{self._id}.probe.{self._sent}",
            timeout_s=STORE_TIMEOUT_S,
        )
        return _Stored(layout, partition, ack.sequence)


def _read(payload: bytes) -> ProbeRequest | ProbeFailure:
    """The request, or why it is none."""
    if len(payload) > MOST_BYTES:
        return ProbeFailure("request", f"{len(payload)} bytes are more than {MOST_BYTES}")
    try:
        request = _decoder.decode(payload)
    except UNREADABLE as error:
        return ProbeFailure("request", f"the request cannot be read: {error}")
    if not (request.backend and request.model and request.hash_scheme):
        return ProbeFailure("request", "backend, model and hashScheme must not be empty")
    return request
