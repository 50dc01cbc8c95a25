"""One trace leads from a caller through a router and the log to the views of all routers."""

from __future__ import annotations

from pathlib import Path

import grpc.aio
import pytest

from inferencecache.v1alpha1 import inferencecache_pb2 as pb
from inferencecache.v1alpha1.inferencecache_pb2_grpc import InferenceCacheStub
from tests.integration.tracing.collector import Collector, Span
from tests.support.local_stack import MODEL, LocalStack
from tests.support.waiting import eventually

ROUTER, INDEXER = "inference-cache-router", "inference-cache-indexer"
SERVICE = "inferencecache.v1alpha1.InferenceCache"
REPORTED, ASKED = "4bf92f3577b34da6a3ce929d0e0e4736", "4bf92f3577b34da6a3ce929d0e0e4737"
CALLER = "00f067aa0ba902b7"
WAY_TO_A_VIEW = [
    (ROUTER, "apply delta"),
    (INDEXER, "publish"),
    (INDEXER, "tell"),
    (INDEXER, "fold"),
    (ROUTER, "publish"),
    (ROUTER, f"{SERVICE}/ReportCacheState"),
]


def traced_by(trace: str) -> tuple[tuple[str, str]]:
    """Metadata of a caller that traces what it does."""
    return (("traceparent", f"00-{trace}-{CALLER}-01"),)


def way_back(last: Span, spans: list[Span]) -> list[Span]:
    """The span and those above it."""
    by_id = {span.id: span for span in spans}
    way = [last]
    while way[-1].parent in by_id:
        way.append(by_id[way[-1].parent])
    return way


@pytest.mark.timeout(240)
async def test_one_trace_crosses_caller_router_log_and_both_routers_views(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
        async with (
            LocalStack(tmp_path, "--engines=1", "--indexers=1") as stack,
            grpc.aio.insecure_channel(stack.option("router-1", "--grpc-bind-address")) as channel,
        ):
            router = InferenceCacheStub(channel)
            update = pb.CacheStateUpdate(
                replica_id="traced",
                model_id=MODEL,
                tenant_id="demo",
                hash_scheme="vllm",
                prefixes=[pb.PrefixEntry(prefix_hash=b"12345678", token_count=16)],
            )
            await router.ReportCacheState(iter([update]), metadata=traced_by(REPORTED), timeout=10)
            await router.LookupRoute(
                pb.LookupRouteRequest(model_id=MODEL, tenant_id="demo", hash_scheme="vllm"),
                metadata=traced_by(ASKED),
                timeout=10,
            )

            def applied() -> list[Span]:
                return [span for span in collector.of_trace(REPORTED) if span.name == "apply delta"]

            await eventually(lambda: len(applied()) == 2, within_s=20, what="a span of each router's view")
            await eventually(lambda: collector.of_trace(ASKED), within_s=20, what="the lookup's span")

    spans = collector.of_trace(REPORTED)
    for last in applied():
        way = way_back(last, spans)
        assert [(span.service, span.name) for span in way] == WAY_TO_A_VIEW
        assert way[-1].parent == CALLER
    [lookup] = collector.of_trace(ASKED)
    assert (lookup.service, lookup.name, lookup.parent) == (ROUTER, f"{SERVICE}/LookupRoute", CALLER)
    # Nobody traced what the sidecar appended, so nothing else was traced.
    assert {span.trace for span in collector.spans} == {REPORTED, ASKED}
