"""Calls of every kind answer the same where they are traced, and are spans below their callers'."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from inferencecache.v1alpha1 import inferencecache_pb2 as pb
from tests.support.router import FoldedLog, Router, served_router
from tests.support.traces import kept_spans

CALLER = 0x00F067AA0BA902B7
METADATA = (("traceparent", f"00-{0x4BF92F3577B34DA6A3CE929D0E0E4736:032x}-{CALLER:016x}-01"),)
SERVICE = "inferencecache.v1alpha1.InferenceCache"


@pytest.fixture
def exported() -> Iterator[InMemorySpanExporter]:
    with kept_spans() as exporter:
        yield exporter


async def test_calls_of_every_kind_are_spans_below_their_callers(exported: InMemorySpanExporter) -> None:
    async with served_router(FoldedLog()) as router:
        stub = router.stub
        lookup = pb.LookupRouteRequest(tenant_id="t", model_id="m", hash_scheme="vllm", token_ids=range(64))
        update = pb.CacheStateUpdate(tenant_id="t", model_id="m", replica_id="r", hash_scheme="vllm")
        assert (await stub.LookupRoute(lookup, metadata=METADATA)).reason_code == "NO_HINT"
        assert (await stub.ReportCacheState(iter([update]), metadata=METADATA)).accepted
        events = stub.StreamCacheEvents(pb.StreamEventsRequest(), metadata=METADATA)
        await events.initial_metadata()
        events.cancel()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.PublishEvent(pb.CacheEvent(tenant_id="x" * 300), metadata=METADATA)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        await health_pb2_grpc.HealthStub(router.channel).Check(health_pb2.HealthCheckRequest())
    spans = [span for span in exported.get_finished_spans() if span.kind is SpanKind.SERVER]
    calls = {"LookupRoute", "ReportCacheState", "StreamCacheEvents", "PublishEvent"}
    assert {span.name for span in spans} == {f"{SERVICE}/{call}" for call in calls}
    assert {span.parent.span_id for span in spans if span.parent is not None} == {CALLER}


async def test_without_a_collector_calls_are_not_intercepted(router: Router) -> None:
    answer = await router.stub.LookupRoute(pb.LookupRouteRequest(), metadata=METADATA)
    assert answer.reason_code == "NO_HINT"
