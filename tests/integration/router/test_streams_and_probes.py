"""Event streams, credits and the functional self-test, through a real log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import msgspec
import pytest

from inferencecache.core.log import Bucket, NoAnswerError
from inferencecache.core.log.subjects import POLICY, POLICY_KEY, PROBE_SUBJECT, events_stream
from inferencecache.core.policy import encode_policy_set
from inferencecache.router import tailing
from inferencecache.schemas.ids import HashScheme, ModelId
from inferencecache.schemas.policy import PolicySet, ResolvedPolicy
from inferencecache.schemas.requests import ProbeRequest, ProbeResult
from inferencecache.v1alpha1.inferencecache_pb2 import (
    CacheEvent,
    CacheStateUpdate,
    LookupRouteRequest,
    PrefixEntry,
    StreamEventsRequest,
)
from tests.support.dataplane import DataPlane, fold_of
from tests.support.live_router import LiveRouter
from tests.support.nats import NatsServer
from tests.support.waiting import eventually

SCOPE: dict[str, Any] = {"tenant_id": "t", "model_id": "m", "hash_scheme": "vllm"}
Live = Callable[[], Awaitable[LiveRouter]]
PROBE = ProbeRequest("ns/cache", ModelId("functional-self-test"), HashScheme("vllm"))


async def report(router: LiveRouter, hash_: bytes, **more: Any) -> None:
    entry = PrefixEntry(prefix_hash=hash_, token_count=128)
    update = CacheStateUpdate(**SCOPE | {"replica_id": "r1", "prefixes": [entry]} | more)
    assert (await router.stub.ReportCacheState(iter([update]))).accepted


async def hashes(call: Any, count: int) -> list[bytes]:
    async with asyncio.timeout(20):
        return [(await call.read()).prefix_hash for _ in range(count)]


# ------------------------------------------------------------------------------------------ events


@pytest.mark.rule("RPC-E1", "RPC-E5", "RPC-E6", "WIRE-122")
async def test_any_router_shows_what_any_producer_appends_from_now_on(plane: DataPlane, live: Live) -> None:
    await plane.owner()
    first, second = await live(), await live()
    await report(first, b"before")
    call: Any = second.stub.StreamCacheEvents(StreamEventsRequest())
    await call.initial_metadata()
    for number in range(50):
        await report(first, number.to_bytes(8, "big"))
    assert await hashes(call, 50) == [number.to_bytes(8, "big") for number in range(50)]
    producer = await plane.producer("r2")
    await producer.begin()
    await producer.store(7, 2)
    async with asyncio.timeout(20):
        events: list[CacheEvent] = [await call.read() for _ in range(3)]
    assert [(event.type, event.replica_id, event.prefix_hash) for event in events] == [
        (CacheEvent.ALL_CLEARED, "r2", b""),
        (CacheEvent.PREFIX_ADDED, "r2", (7).to_bytes(8, "big")),
        (CacheEvent.PREFIX_ADDED, "r2", (8).to_bytes(8, "big")),
    ]
    call.cancel()


async def test_a_stream_has_no_hole_when_the_server_restarts(
    plane: DataPlane, nats_server: NatsServer, live: Live
) -> None:
    await plane.owner()
    router = await live()
    call: Any = router.stub.StreamCacheEvents(StreamEventsRequest())
    await call.initial_metadata()
    await report(router, b"1")
    assert await hashes(call, 1) == [b"1"]
    await asyncio.to_thread(nats_server.kill)
    await asyncio.to_thread(nats_server.start)
    for number in (2, 3):
        await report(router, str(number).encode())
    assert await hashes(call, 2) == [b"2", b"3"]
    call.cancel()


@pytest.mark.rule("RPC-E8")
async def test_streams_end_when_the_log_is_another_one(plane: DataPlane, live: Live) -> None:
    await plane.owner()
    router = await live()
    call: Any = router.stub.StreamCacheEvents(StreamEventsRequest())
    await call.initial_metadata()
    log = await plane.log()
    for number in range(2):
        await log.request(f"$JS.API.STREAM.DELETE.{events_stream(1, number)}", timeout_s=5)
    async with asyncio.timeout(20):
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await call.read()
    assert ended.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_stream_that_cannot_begin_is_unavailable(
    plane: DataPlane, nats_server: NatsServer, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tailing, "OPEN_LIMIT_S", 0.1)
    await plane.owner()
    router = await live()
    await asyncio.to_thread(nats_server.kill)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await router.stub.StreamCacheEvents(StreamEventsRequest()).read()
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


# ----------------------------------------------------------------------------------------- credits


@pytest.mark.rule("WIRE-079", "IDX-144", "IDX-147")
async def test_credits_reach_every_indexer_within_seconds(plane: DataPlane, live: Live) -> None:
    indexers = [await plane.owner(), await plane.indexer()]
    router = await live()
    policies = PolicySet(policies=(ResolvedPolicy("t", eviction="lfu", minimum_matched_tokens=0),))
    await Bucket(await plane.log(), POLICY).put(POLICY_KEY, encode_policy_set(policies))
    await eventually(lambda: router.following.intent.revision)
    await report(router, b"p")
    request = LookupRouteRequest(**SCOPE, prefix_hash=b"p")

    async def is_found() -> bool:
        return (await router.stub.LookupRoute(request)).reason_code == "PREFIX_MATCH"

    await eventually(is_found, within_s=20)

    def counted() -> bool:
        folds = [[fold_of(partition) for partition in indexer.partitions] for indexer in indexers]
        accesses = [[fold.view.access_digest for fold in each] for each in folds]
        return accesses[0] == accesses[1] and any(accesses[0])

    await eventually(counted)


# ------------------------------------------------------------------------------------------ probes


async def probe(plane: DataPlane, request: ProbeRequest | None = PROBE) -> ProbeResult:
    payload = b"" if request is None else msgspec.json.encode(request)
    log = await plane.log()
    answer = await log.request(PROBE_SUBJECT, payload, timeout_s=5)
    return msgspec.json.decode(answer.data, type=ProbeResult)


@pytest.mark.rule("IDX-188", "IDX-190", "WIRE-041")
async def test_one_router_of_all_answers_a_probe_through_the_log(plane: DataPlane, live: Live) -> None:
    indexer = await plane.owner()
    routers = {router.following.id: router for router in (await live(), await live())}
    results = await asyncio.gather(*(probe(plane) for _ in range(4)))
    assert {result.router for result in results} <= set(routers)
    assert {(r.backend, r.ingest, r.routing, r.t2, r.errors) for r in results} == {
        ("ns/cache", "ok", "ok", "skipped", ())
    }
    asked = await probe(plane, None)
    assert asked == ProbeResult(asked.router)
    assert asked.router in routers
    # Not one of its keys counts, and none of them stays.
    folds = [fold_of(partition) for partition in indexer.partitions]
    assert sum(fold.view.entries for fold in folds) == 0
    await eventually(lambda: sum(len(fold.view.table) for fold in folds) == 0)


async def test_without_an_indexer_the_stage_ingest_fails_in_time(plane: DataPlane, live: Live) -> None:
    indexer = await plane.owner()
    await live()
    await plane.kill(indexer)
    result = await probe(plane)
    assert (result.ingest, result.routing, result.t2) == ("failed", "skipped", "skipped")
    assert "did not come back" in result.errors[0].message


async def test_without_a_router_nobody_answers(plane: DataPlane) -> None:
    await plane.owner()
    with pytest.raises(NoAnswerError):
        await probe(plane)
