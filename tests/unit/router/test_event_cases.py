"""The worked cases of `StreamCacheEvents` in docs/rpc-cases.md, through the served router."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import grpc
import pytest

from inferencecache.core.log import StreamMessage
from inferencecache.core.log.subjects import partition_of, replica_subject
from inferencecache.router.calls import CallError
from inferencecache.router.event_streams import EventStreams
from inferencecache.router.observed import events_of
from inferencecache.router.probing import Probing
from inferencecache.router.views import Deliver, TailError
from inferencecache.schemas.ids import (
    PROBE_TENANT,
    AdapterId,
    HashScheme,
    Incarnation,
    ModelId,
    ReplicaId,
    TenantId,
)
from inferencecache.schemas.positions import Position
from inferencecache.schemas.records import (
    Alive,
    AnyRecord,
    Batch,
    Begin,
    Cleared,
    Complete,
    Event,
    Evicted,
    Gap,
    Stats,
    Stored,
    encode_batch,
)
from inferencecache.schemas.senders import ReplicaSender
from inferencecache.v1alpha1.inferencecache_pb2 import (
    CacheEvent,
    CacheStateUpdate,
    PrefixEntry,
    StreamEventsRequest,
)
from tests.support.router import Router
from tests.support.waiting import eventually

SCOPE: dict[str, Any] = {"tenant_id": "t", "model_id": "m"}
ADDED, EVICTED, CLEARED = CacheEvent.PREFIX_ADDED, CacheEvent.PREFIX_EVICTED, CacheEvent.ALL_CLEARED
END = ReplicaId("the end")


def update(replica: str = "r1", **more: Any) -> CacheStateUpdate:
    """The update of E1."""
    entry = PrefixEntry(
        block_hashes=[b"b1", b"b2"], block_token_counts=[16, 16], prefix_hash=b"p", token_count=32
    )
    fields = SCOPE | {"replica_id": replica, "hash_scheme": "vllm", "prefixes": [entry], "adapter_id": "a"}
    return CacheStateUpdate(**fields | {"timestamp_us": 5} | more)


async def report(router: Router, *updates: CacheStateUpdate) -> None:
    assert (await router.stub.ReportCacheState(iter(updates))).accepted


async def publish(router: Router, type_: int, replica: str = "r1", **more: Any) -> None:
    fields: dict[str, Any] = SCOPE | {"type": type_, "replica_id": replica, "timestamp_us": 7}
    assert (await router.stub.PublishEvent(CacheEvent(**fields | more))).accepted


@asynccontextmanager
async def listening(router: Router, **request: Any) -> AsyncIterator[Any]:
    """An open stream, begun."""
    call = router.stub.StreamCacheEvents(StreamEventsRequest(**request))
    async with asyncio.timeout(10):
        await call.initial_metadata()
    yield call
    call.cancel()


async def heard(router: Router, call: Any, **keys: str) -> list[CacheEvent]:
    """All events so far: those before one that the test publishes."""
    await publish(router, CLEARED, END, **keys)
    events: list[CacheEvent] = []
    async with asyncio.timeout(10):
        async for event in call:
            if event.replica_id == END:
                return events
            events.append(event)
    raise AssertionError("the stream has ended")


def named(events: list[CacheEvent]) -> list[tuple[str, str, str, bytes]]:
    return [(event.tenant_id, event.model_id, event.replica_id, event.prefix_hash) for event in events]


@pytest.mark.rule("RPC-E1", "RPC-E6", "WIRE-122")
async def test_keys_of_an_update_are_events_from_the_moment_the_stream_begins(router: Router) -> None:
    await report(router, update("before"))
    async with listening(router) as call:
        await report(router, update())
        events = await heard(router, call)
    assert events == [
        CacheEvent(
            type=ADDED,
            replica_id="r1",
            model_id="m",
            tenant_id="t",
            prefix_hash=hash_,
            adapter_id="a",
            timestamp_us=5,
        )
        for hash_ in (b"b1", b"b2", b"p")
    ]


@pytest.mark.rule("RPC-E2", "WIRE-122")
async def test_published_events_come_as_they_are(router: Router) -> None:
    async with listening(router) as call:
        await publish(router, EVICTED, prefix_hash=b"p", adapter_id="a")
        await publish(router, CLEARED, prefix_hash=b"x")
        await publish(router, CacheEvent.REPLICA_UPDATED)
        await publish(router, ADDED, prefix_hash=b"n")
        await publish(router, 77, timestamp_us=0)
        events = await heard(router, call)
    assert [(event.type, event.prefix_hash, event.adapter_id) for event in events] == [
        (EVICTED, b"p", "a"),
        (CLEARED, b"", ""),
        (CacheEvent.REPLICA_UPDATED, b"", ""),
        (ADDED, b"n", ""),
        (77, b"", ""),
    ]
    assert [event.timestamp_us for event in events] == [7, 7, 7, 7, router.log.now_us()]


@pytest.mark.rule("RPC-E3", "WIRE-122")
@pytest.mark.parametrize(
    ("request_", "shown"),
    [
        ({}, {("t", "m"), ("t", "n"), ("u", "m"), ("u", "n")}),
        ({"tenant_id": "t"}, {("t", "m"), ("t", "n")}),
        ({"model_id": "n"}, {("t", "n"), ("u", "n")}),
        ({"tenant_id": "u", "model_id": "m"}, {("u", "m")}),
        ({"types": [ADDED, CLEARED]}, {("t", "m"), ("t", "n"), ("u", "m"), ("u", "n")}),
        ({"types": [EVICTED, CLEARED]}, set()),
        ({"tenant_id": "T"}, set()),
    ],
)
async def test_filters_that_are_set_must_be_met(
    router: Router, request_: dict[str, Any], shown: set[tuple[str, str]]
) -> None:
    pairs = [(tenant, model) for tenant in "tu" for model in "mn"]
    async with listening(router, **request_) as call:
        await report(router, *(update(tenant_id=tenant, model_id=model) for tenant, model in pairs))
        keys = {name: value for name, value in request_.items() if name in SCOPE}
        events = await heard(router, call, **keys)
    assert {(event.tenant_id, event.model_id) for event in events} == shown
    assert len(events) == 3 * len(shown)


@pytest.mark.rule("RPC-E4", "WIRE-047", "WIRE-041")
async def test_the_reserved_tenant_is_never_shown(router: Router) -> None:
    probe = b'{"backend": "ns/b", "model": "m", "hashScheme": "vllm"}'
    async with (
        listening(router) as everything,
        listening(router, tenant_id=PROBE_TENANT) as reserved,
        Probing("id", router.log).probed(probe) as result,
    ):
        assert result.ingest == "ok"
        await report(router, update(tenant_id=PROBE_TENANT))
        assert await heard(router, everything) == []
        reading = asyncio.ensure_future(reserved.read())
        done, _ = await asyncio.wait([reading], timeout=0.05)
        assert not done
        reading.cancel()


@pytest.mark.rule("RPC-E5")
async def test_a_sidecar_that_begins_empties_its_replica_and_tells_what_it_holds(router: Router) -> None:
    sender = ReplicaSender(TenantId("t"), ModelId("m"), ReplicaId("r1"), "e")
    subject = replica_subject(1, partition_of("t", "m", "r1", router.log.layout), sender)

    def append(sequence: int, *records: AnyRecord) -> None:
        batch = Batch(Incarnation("one"), sequence, 2000, records)
        router.log.append(subject, encode_batch(batch))

    stored = Stored(HashScheme("vllm"), AdapterId("a"), 1, 8, b"hash-001hash-002", b"\x10\0\0\0\x20\0\0\0")
    async with listening(router) as call:
        append(1, Begin(pod_uid="uid"))
        append(2, stored)
        append(3, Stats(hit_rate=0.5), Alive(), Gap(1), Complete())
        events = await heard(router, call)
    assert [(event.type, event.prefix_hash) for event in events] == [
        (CLEARED, b""),
        (ADDED, b"hash-001"),
        (ADDED, b"hash-002"),
    ]
    assert {event.timestamp_us for event in events} == {router.log.now_us() - 2_000_000}


@pytest.mark.rule("RPC-E8", "WIRE-202")
async def test_streams_end_when_the_router_stops_or_the_log_may_have_a_hole(router: Router) -> None:
    async with listening(router) as call:
        for _, on_lost in router.log.tails:
            on_lost()
        assert await _status(call) is grpc.StatusCode.UNAVAILABLE
    async with listening(router) as call:
        await report(router, update())
        assert len(await heard(router, call)) == 3
        router.servicer.stop()
        assert await _status(call) is grpc.StatusCode.UNAVAILABLE
    call = router.stub.StreamCacheEvents(StreamEventsRequest())
    assert await _status(call) is grpc.StatusCode.UNAVAILABLE


async def test_the_log_is_read_only_while_somebody_listens(router: Router) -> None:
    assert not router.log.tails
    async with listening(router), listening(router):
        assert len(router.log.tails) == 1
    await eventually(lambda: not router.log.tails)


async def _status(call: Any) -> grpc.StatusCode:
    async with asyncio.timeout(10):
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            async for _ in call:
                pass
    return failed.value.code()


# --------------------------------------------------------------------------------- without a server


class Tail:
    """A tail that a test feeds."""

    def __init__(self) -> None:
        self.deliver: Deliver | None = None

    @asynccontextmanager
    async def open(self, deliver: Deliver, _: object) -> AsyncIterator[None]:
        self.deliver = deliver
        yield
        self.deliver = None

    def say(self, *records: AnyRecord, tenant: str = "t") -> None:
        assert self.deliver is not None
        sender = ReplicaSender(TenantId(tenant), ModelId("m"), ReplicaId("r1"), "g")
        payload = encode_batch(Batch(records=records))
        self.deliver([StreamMessage(replica_subject(1, 0, sender), payload, Position(1, 9000), {}, 0)])


@pytest.mark.rule("RPC-E7", "WIRE-122")
async def test_a_reader_that_is_too_slow_is_ended_and_others_go_on() -> None:
    tail = Tail()
    streams = EventStreams(tail.open, most_waiting_bytes=200)
    async with (
        streams.listen(StreamEventsRequest()) as slow,
        streams.listen(StreamEventsRequest()) as quick,
    ):
        for number in range(20):
            tail.say(Event(ADDED, number.to_bytes(8, "big")))
            assert (await anext(quick)).prefix_hash == number.to_bytes(8, "big")
        with pytest.raises(CallError) as ended:
            await anext(slow)
        assert ended.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert tail.deliver is None


async def test_a_reader_that_falls_behind_within_one_message_is_ended_before_its_end() -> None:
    tail = Tail()
    streams = EventStreams(tail.open, most_waiting_bytes=200)
    async with streams.listen(StreamEventsRequest()) as events:
        tail.say(*(Event(ADDED, bytes([number])) for number in range(100)))
        assert (await anext(events)).prefix_hash == b"\0"
        tail.say(Event(ADDED, bytes(150)))
        tail.say(Event(ADDED, bytes(150)))
        with pytest.raises(CallError):
            await anext(events)


async def test_a_message_larger_than_the_queue_is_shown_alone() -> None:
    tail = Tail()
    async with EventStreams(tail.open, most_waiting_bytes=10).listen(StreamEventsRequest()) as events:
        tail.say(Event(ADDED, bytes(100)), Cleared())
        assert [(await anext(events)).type for _ in range(2)] == [ADDED, CLEARED]


async def test_messages_that_make_no_sense_are_passed_over() -> None:
    tail = Tail()
    async with EventStreams(tail.open).listen(StreamEventsRequest()) as events:
        assert tail.deliver is not None
        for subject, payload in (
            ("ic.ev.1.0.t.m.r.x", b""),
            ("ic.ev.1.0._.o", b""),
            ("ic.ev.1.0.t.m.r.g", b"\xc1"),
        ):
            tail.deliver([StreamMessage(subject, payload, Position(1, 9000), {}, 0)])
        tail.say(Cleared())
        assert (await anext(events)).type == CLEARED


async def test_a_log_that_cannot_be_read_is_unavailable() -> None:
    def unreached(*_: object) -> AbstractAsyncContextManager[None]:
        raise TailError("the event log was not reached yet")

    with pytest.raises(CallError) as refused:
        async with EventStreams(unreached).listen(StreamEventsRequest()):
            pass
    assert refused.value.code is grpc.StatusCode.UNAVAILABLE


SENDER = ReplicaSender(TenantId("t"), ModelId("m"), ReplicaId("r1"), "g")
NONE = AdapterId("")


def test_what_the_fold_drops_is_no_event() -> None:
    records = (
        Stored(HashScheme(""), NONE, 1, 8, bytes(8), bytes(4)),
        Stored(HashScheme("s"), NONE, 1, 8, bytes(9), bytes(4)),
        Stored(HashScheme("s"), NONE, 1, -8, bytes(8), bytes(4)),
        Evicted(NONE, 0, b"x", 1),
        Evicted(NONE, 0, b"", 0),
        Begin(),
    )
    assert list(events_of(SENDER, Batch(records=records), 9, ())) == []


def test_numbers_that_no_field_can_carry_are_the_largest_or_no_event() -> None:
    records = (
        Event(2**31),
        Event(-(2**31) - 1),
        Event(2**31 - 1, timestamp_us=2**64 - 1),
        Cleared(-(2**63)),
    )
    events = list(events_of(SENDER, Batch(records=records), 9, ()))
    assert [(event.type, event.timestamp_us) for event in events] == [
        (2**31 - 1, 2**63 - 1),
        (CLEARED, -(2**63) + 1),
    ]
    old = Batch(age_ms=2**64 - 1, records=(Cleared(),))
    assert [event.timestamp_us for event in events_of(SENDER, old, 9, ())] == [-(2**63) + 1]


def test_empty_hashes_are_one_key() -> None:
    records = (Stored(HashScheme("s"), NONE, 1, 0, b"", bytes(8)), Evicted(NONE, 0, b"", 2**40))
    events = list(events_of(SENDER, Batch(records=records), 9, ()))
    assert [(event.type, event.prefix_hash) for event in events] == [(ADDED, b""), (EVICTED, b"")]
