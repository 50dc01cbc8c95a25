"""What a gRPC client sees around the answers: statuses, health, reflection, metrics, the stop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from prometheus_client import CollectorRegistry, generate_latest
from structlog.testing import capture_logs

from inferencecache.core.index import routing
from inferencecache.core.index.request import RouteRequest
from inferencecache.core.service import MOST_NAMES, OTHER, ListenError
from inferencecache.router import calls, ingest, lookup, server
from inferencecache.router.metrics import ServerMetrics
from inferencecache.router.packing import pack
from inferencecache.router.server import GrpcServer
from inferencecache.schemas.records import AnyRecord
from inferencecache.v1alpha1.inferencecache_pb2 import (
    Ack,
    CacheEvent,
    CacheStateUpdate,
    GetCacheStateRequest,
    LookupRouteRequest,
    PrefixEntry,
    StreamEventsRequest,
)
from tests.support.router import FoldedLog, Router, served_router
from tests.support.waiting import eventually, set_within

SERVICE = "inferencecache.v1alpha1.InferenceCache"
UNARY = ["RenderTemplate", "LookupRoute", "LookupPDRoute", "GetCacheState", "PublishEvent"]


async def raw(router: Router, method: str, payload: bytes) -> bytes:
    call: Any = router.channel.unary_unary(f"/{SERVICE}/{method}")
    return bytes(await call(payload))


async def status_of(call: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    assert "Traceback" not in (failed.value.details() or "")
    return failed.value.code()


def update(replica: str = "r1", **more: Any) -> CacheStateUpdate:
    keys: dict[str, Any] = {"tenant_id": "t", "model_id": "m", "hash_scheme": "vllm", "replica_id": replica}
    prefixes = [PrefixEntry(prefix_hash=b"p", token_count=128)]
    return CacheStateUpdate(**keys | {"prefixes": prefixes} | more)


async def test_a_large_update_is_translated_beside_the_lookups(
    router: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def watched(records: Iterable[AnyRecord], limit: int) -> Iterator[bytes]:
        threads.append(threading.current_thread())
        yield from pack(records, limit)

    monkeypatch.setattr(ingest, "pack", watched)
    small = update(prefixes=[PrefixEntry(prefix_hash=b"p", token_count=1)])
    large = update(
        prefixes=[PrefixEntry(prefix_hash=b"%05d" % n, adapter_id=str(n % 2)) for n in range(2000)]
    )
    assert large.ByteSize() > ingest.QUICK_BYTES
    assert await router.stub.ReportCacheState(iter([small, large])) == Ack(accepted=True)
    state = await router.stub.GetCacheState(GetCacheStateRequest(tenant_id="t", model_id="m"))
    assert state.summary.total_prefixes == 2001
    assert [thread is threading.main_thread() for thread in threads] == [True, False]


# ------------------------------------------------------------------------------------------- statuses


@pytest.mark.rule("WIRE-C43", "WIRE-031", "WIRE-200")
async def test_a_message_above_4_mib_is_refused_and_one_at_the_limit_is_not(router: Router) -> None:
    assert await status_of(raw(router, "LookupRoute", bytes(5 * 2**20))) is grpc.StatusCode.RESOURCE_EXHAUSTED
    request = LookupRouteRequest(prompt_text="x" * (4 * 2**20 - 5))
    assert request.ByteSize() == 4 * 2**20
    assert (await router.stub.LookupRoute(request)).reason_code == "NO_HINT"


@pytest.mark.rule("WIRE-C43", "WIRE-032")
@pytest.mark.parametrize("payload", [b"\x0a\xff\xff\xff", b"\x0a\x02\xff\xfe"], ids=["cut", "no UTF-8"])
@pytest.mark.parametrize("method", UNARY)
async def test_bytes_that_are_no_request_are_an_internal_error(
    router: Router, method: str, payload: bytes
) -> None:
    if method == "PublishEvent":
        payload = payload.replace(b"\x0a", b"\x12")
    assert await status_of(raw(router, method, payload)) is grpc.StatusCode.INTERNAL


@pytest.mark.rule("WIRE-032", "WIRE-034", "WIRE-086")
async def test_a_broken_message_ends_a_stream_and_leaves_what_came_before(router: Router) -> None:
    call: Any = router.channel.stream_unary(f"/{SERVICE}/ReportCacheState")
    messages = [update().SerializeToString(), b"\x0a\xff\xff\xff"]
    assert await status_of(call(iter(messages))) is grpc.StatusCode.INTERNAL
    state = await router.stub.GetCacheState(GetCacheStateRequest(tenant_id="t", model_id="m"))
    assert state.summary.total_prefixes == 1


@pytest.mark.rule("RPC-E7", "WIRE-122")
async def test_a_caller_that_stops_reading_a_stream_holds_nothing_and_is_told_when_it_reads_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calls, "TAKE_LIMIT_S", 0.3)
    left = asyncio.Event()

    @asynccontextmanager
    async def endless(_: StreamEventsRequest) -> AsyncIterator[AsyncIterator[CacheEvent]]:
        async def events() -> AsyncIterator[CacheEvent]:
            while True:
                yield CacheEvent(prefix_hash=bytes(64 * 1024))

        try:
            yield events()
        finally:
            left.set()

    handlers = {"Endless": calls.server_stream(StreamEventsRequest, endless)}
    serving = grpc.aio.server()
    serving.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", handlers),))
    port = serving.add_insecure_port("127.0.0.1:0")
    await serving.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            endless_call: Any = channel.unary_stream("/test/Endless")
            call = endless_call(b"")
            await call.initial_metadata()
            assert await set_within(left, 30.0)
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                _ = [event async for event in call]
            assert ended.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    finally:
        await serving.stop(None)


@pytest.mark.rule("WIRE-033")
async def test_an_unknown_method_is_unimplemented(router: Router) -> None:
    assert await status_of(raw(router, "Guess", b"")) is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.rule("WIRE-008", "WIRE-007")
async def test_unknown_fields_are_ignored_and_counts_may_be_unpacked(router: Router) -> None:
    assert await router.stub.ReportCacheState(iter([update()])) == Ack(accepted=True)
    keys = LookupRouteRequest(tenant_id="t", model_id="m", hash_scheme="vllm", block_hashes=[b"p", b"q"])
    unpacked = b"\x40\x40\x40\x10"
    unknown = b"\xfa\x7f\x01x"
    answer = await raw(router, "LookupRoute", keys.SerializeToString() + unpacked + unknown)
    assert b"PREFIX_MATCH" in answer


@pytest.mark.rule("WIRE-026")
async def test_a_lookup_that_fails_inside_is_answered_with_no_hint(
    router: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> routing.Decision:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(lookup, "route", broken)
    answer = await router.stub.LookupRoute(LookupRouteRequest(tenant_id="t", adapter_id="a"))
    assert (answer.reason_code, len(answer.replica_scores), answer.adapter_id) == ("NO_HINT", 0, "")
    counted = {"model": "other", "reason_code": "NO_HINT", "hint_used": "false"}
    assert router.metric("inferencecache_lookup_route_calls_total", **counted) == 1


@pytest.mark.rule("WIRE-024")
async def test_call_metadata_is_ignored(router: Router) -> None:
    metadata = (("authorization", "Bearer nobody"), ("tenant", "x"))
    answer = await router.stub.LookupRoute(LookupRouteRequest(), metadata=metadata)
    assert answer.reason_code == "NO_HINT"


@pytest.mark.rule("WIRE-023")
async def test_neither_text_nor_tokens_of_a_prompt_leave_the_call(
    router: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object, __: object, request: RouteRequest, ___: object) -> routing.Decision:
        raise RuntimeError("unforeseen")

    requests = [
        LookupRouteRequest(tenant_id="t", model_id="m", hash_scheme="vllm", **prompt)
        for prompt in ({"prompt_text": "marker-1777"}, {"token_ids": [1777] * 32})
    ]
    with capture_logs() as lines:
        for request in requests:
            await router.stub.LookupRoute(request)
        monkeypatch.setattr(lookup, "route", broken)
        for request in requests:
            await router.stub.LookupRoute(request)
    logged = [line["event"] for line in lines]
    assert logged == ["lookup_decided", "lookup_decided", "lookup_failed", "lookup_failed"]
    assert "1777" not in repr(lines)
    assert "1777" not in generate_latest(router.registry).decode()
    assert "1777" not in repr(router.log.messages)


# ------------------------------------------------------------------------------------------- producers


@pytest.mark.rule("WIRE-085")
async def test_a_stream_without_messages_is_accepted(router: Router) -> None:
    assert await router.stub.ReportCacheState(iter(())) == Ack(accepted=True)


@pytest.mark.rule("WIRE-037", "WIRE-098")
async def test_what_the_log_does_not_store_is_unavailable_and_never_accepted(router: Router) -> None:
    router.log.is_storing = False
    assert await status_of(router.stub.ReportCacheState(iter([update()]))) is grpc.StatusCode.UNAVAILABLE
    event = CacheEvent(type=CacheEvent.ALL_CLEARED, tenant_id="t", model_id="m", replica_id="r1")
    assert await status_of(router.stub.PublishEvent(event)) is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("field", ["tenant_id", "model_id", "replica_id", "adapter_id", "hash_scheme"])
async def test_an_id_that_no_subject_can_carry_is_an_invalid_argument(router: Router, field: str) -> None:
    longest: dict[str, Any] = {field: "é" * 127 + "x"}
    longer: dict[str, Any] = {field: "é" * 128}
    assert await router.stub.ReportCacheState(iter([update(**longest)])) == Ack(accepted=True)
    stream = router.stub.ReportCacheState(iter([update(**longer)]))
    assert await status_of(stream) is grpc.StatusCode.INVALID_ARGUMENT
    if field != "hash_scheme":
        event = CacheEvent(type=CacheEvent.PREFIX_EVICTED, **longer)
        assert await status_of(router.stub.PublishEvent(event)) is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.rule("WIRE-085", "WIRE-092")
async def test_messages_of_one_stream_are_stored_in_order_each_under_an_id_of_its_own(router: Router) -> None:
    updates = [update(timestamp_us=number) for number in range(1, 50)]
    before = len(router.log.messages)
    assert await router.stub.ReportCacheState(iter(updates)) == Ack(accepted=True)
    stored = router.log.messages[before:]
    assert [batch.records[0].timestamp_us for _, batch in stored] == list(range(1, 50))  # type: ignore[union-attr]
    assert len(set(router.log.message_ids)) == 49
    assert {(batch.incarnation, batch.sequence) for _, batch in stored} == {("", 0)}


@pytest.mark.rule("WIRE-202")
async def test_a_stopping_router_ends_open_streams_after_what_they_sent_is_stored() -> None:
    async with served_router() as router:
        call = router.stub.ReportCacheState()
        await call.write(update())
        await eventually(lambda: len(router.log.message_ids) > 0)
        router.servicer.stop()
        assert await status_of(call) is grpc.StatusCode.UNAVAILABLE
        async with asyncio.timeout(2):
            await router.server.stop()


@pytest.mark.rule("WIRE-036")
async def test_a_router_that_has_stopped_is_unavailable() -> None:
    async with served_router() as router:
        await router.stub.LookupRoute(LookupRouteRequest())
        await router.server.stop()
        assert await status_of(router.stub.LookupRoute(LookupRouteRequest())) is grpc.StatusCode.UNAVAILABLE


@pytest.mark.rule("WIRE-200", "WIRE-201")
def test_nothing_but_message_sizes_and_the_port_differs_from_the_librarys_defaults() -> None:
    assert {name for name, _ in server._OPTIONS} == {
        "grpc.max_receive_message_length",
        "grpc.max_send_message_length",
        "grpc.so_reuseport",
    }


# --------------------------------------------------------------------------------------- not loaded


@pytest.mark.rule("WIRE-027", "IDX-204")
async def test_a_router_without_its_whole_index_reads_as_empty(router: Router) -> None:
    await router.stub.ReportCacheState(iter([update()]))
    router.log.complete = False
    for model in ("m", "unknown"):
        request = LookupRouteRequest(
            tenant_id="t", model_id=model, hash_scheme="vllm", prefix_hash=b"p", adapter_id="a"
        )
        answer = await router.stub.LookupRoute(request)
        assert (answer.reason_code, answer.adapter_id) == ("NO_HINT", "a")
    state = await router.stub.GetCacheState(GetCacheStateRequest(tenant_id="t", model_id="m"))
    assert state.summary.total_prefixes == 0


# ------------------------------------------------------------------------------- health and reflection


@pytest.mark.rule("WIRE-C45", "WIRE-220", "OPS-06")
async def test_health_knows_the_process_and_no_service_by_name(router: Router) -> None:
    health: Any = health_pb2_grpc.HealthStub(router.channel)
    answer = await health.Check(health_pb2.HealthCheckRequest())
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    unknown = health.Check(health_pb2.HealthCheckRequest(service=SERVICE))
    assert await status_of(unknown) is grpc.StatusCode.NOT_FOUND
    watch = health.Watch(health_pb2.HealthCheckRequest(service=SERVICE))
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    watch.cancel()


async def reflected(router: Router, version: str, request: Any) -> Any:
    call: Any = router.channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    return [answer async for answer in call(iter([request]))]


@pytest.mark.rule("WIRE-221", "OPS-06")
@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_tools_can_list_and_describe_the_services(router: Router, version: str) -> None:
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    (answer,) = await reflected(router, version, request)
    listed = {service.name for service in answer.list_services_response.service}
    assert {SERVICE, "grpc.health.v1.Health", f"grpc.reflection.{version}.ServerReflection"} <= listed
    for symbol in (SERVICE, f"grpc.reflection.{version}.ServerReflection"):
        request = reflection_pb2.ServerReflectionRequest(file_containing_symbol=symbol)
        (answer,) = await reflected(router, version, request)
        assert answer.file_descriptor_response.file_descriptor_proto


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_reflection_can_be_turned_off(version: str) -> None:
    async with served_router(reflection=False) as router:
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        assert await status_of(reflected(router, version, request)) is grpc.StatusCode.UNIMPLEMENTED


# --------------------------------------------------------------------------------- latency and metrics


@pytest.mark.rule("WIRE-080", "WIRE-074")
async def test_every_lookup_is_counted_once_with_its_latency(router: Router) -> None:
    await router.stub.ReportCacheState(iter([update()]))
    keys: dict[str, Any] = {"tenant_id": "t", "model_id": "m", "hash_scheme": "vllm"}
    for prefix, reason, used in ((b"p", "PREFIX_MATCH", "true"), (b"n", "AFFINITY_HINT", "true")):
        answer = await router.stub.LookupRoute(LookupRouteRequest(**keys, prefix_hash=prefix))
        assert 0 < answer.lookup_latency_us < 10_000_000
        labels = {"model": "m", "reason_code": reason, "hint_used": used}
        assert router.metric("inferencecache_lookup_route_calls_total", **labels) == 1
    await router.stub.LookupRoute(LookupRouteRequest(**keys | {"hash_scheme": "x"}))
    labels = {"model": "m", "reason_code": "UNKNOWN_HASH_SCHEME", "hint_used": "false"}
    assert router.metric("inferencecache_lookup_route_calls_total", **labels) == 1
    assert router.metric("inferencecache_lookup_route_latency_seconds_count", model="m") == 3
    assert router.metric("inferencecache_lookup_route_latency_seconds_bucket", model="m", le="0.1") == 3
    assert (
        router.metric("inferencecache_lookup_route_latency_seconds_bucket", model="m", le="0.0001")
        is not None
    )


async def test_names_that_only_callers_know_become_no_labels(router: Router) -> None:
    await router.stub.ReportCacheState(iter([update()]))
    for number in range(5):
        await router.stub.LookupRoute(LookupRouteRequest(tenant_id="t", model_id=f"guess-{number}"))
    models = {
        sample.labels["model"]
        for metric in router.registry.collect()
        for sample in metric.samples
        if "model" in sample.labels
    }
    assert models == {"other"}


def test_at_most_a_thousand_models_become_labels() -> None:
    registry = CollectorRegistry()
    metrics = ServerMetrics(registry)
    for number in range(MOST_NAMES + 5):
        metrics.answered(f"m-{number}", "NO_HINT", False, 0.001, lambda: True)
    labels = {"reason_code": "NO_HINT", "hint_used": "false"}
    name = "inferencecache_lookup_route_calls_total"
    assert registry.get_sample_value(name, labels | {"model": f"m-{MOST_NAMES - 1}"}) == 1
    assert registry.get_sample_value(name, labels | {"model": f"m-{MOST_NAMES}"}) is None
    assert registry.get_sample_value(name, labels | {"model": OTHER}) == 5


@pytest.mark.rule("WIRE-203")
async def test_a_taken_port_is_an_error_that_names_the_flag(router: Router) -> None:
    servicer = router.server._servicer
    second = GrpcServer(("127.0.0.1", int(router.server.address.rpartition(":")[2])), servicer)
    with pytest.raises(ListenError, match="--grpc-bind-address"):
        await second.start()


async def test_an_update_that_does_not_fit_one_message_becomes_several_in_order() -> None:
    log = FoldedLog()
    log.payload_limit = 4096
    async with served_router(log) as router:
        entry = PrefixEntry(
            block_hashes=[number.to_bytes(8, "big") for number in range(2000)], block_token_counts=[16] * 2000
        )
        assert await router.stub.ReportCacheState(iter([update(prefixes=[entry])])) == Ack(accepted=True)
        state = await router.stub.GetCacheState(GetCacheStateRequest(tenant_id="t", model_id="m"))
        assert state.summary.total_prefixes == 2000
        assert len(log.message_ids) > 5
