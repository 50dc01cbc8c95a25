"""The worked cases of `StreamMetrics` in docs/rpc-cases.md."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import grpc
import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

from inferencecache.router.calls import CallError
from inferencecache.router.metric_streams import MetricStreams, samples
from inferencecache.schemas.ids import PROBE_TENANT
from inferencecache.v1alpha1.inferencecache_pb2 import (
    LookupRouteRequest,
    Metric,
    StreamMetricsRequest,
)
from tests.support.router import Router

CALLS = "inferencecache_lookup_route_calls_total"
LATENCY = "inferencecache_lookup_route_latency_seconds"


@pytest.fixture
def registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    Gauge("g", "", ("model",), registry=registry).labels("m").set(2.5)
    Counter("c", "", registry=registry).inc(3)
    Histogram("h", "", buckets=(1.0,), registry=registry).observe(0.5)
    Info("i", "", registry=registry).info({"version": "1"})
    return registry


async def taken(rounds: AsyncIterator[Metric], count: int) -> list[Metric]:
    async with asyncio.timeout(10):
        return [await anext(rounds) for _ in range(count)]


@pytest.mark.rule("RPC-M1", "WIRE-123")
async def test_without_names_every_sample_comes_at_once_and_again(registry: CollectorRegistry) -> None:
    before_us = time.time_ns() // 1000
    async with MetricStreams(registry, 0.001).watch(StreamMetricsRequest()) as rounds:
        got = await taken(rounds, 14)
    first, second = got[:7], got[7:]
    assert [(m.name, m.type, dict(m.labels), m.value) for m in first] == [
        ("g", "gauge", {"model": "m"}, 2.5),
        ("c_total", "counter", {}, 3.0),
        ("h_bucket", "histogram", {"le": "1.0"}, 1.0),
        ("h_bucket", "histogram", {"le": "+Inf"}, 1.0),
        ("h_count", "histogram", {}, 1.0),
        ("h_sum", "histogram", {}, 0.5),
        ("i_info", "gauge", {"version": "1"}, 1.0),
    ]
    assert before_us <= first[0].timestamp_us < second[0].timestamp_us
    assert [m.name for m in first] == [m.name for m in second]


@pytest.mark.rule("RPC-M2", "WIRE-123")
async def test_a_round_a_second_has_what_happened_meanwhile(router: Router) -> None:
    call: Any = router.stub.StreamMetrics(StreamMetricsRequest(names=[CALLS]))
    await call.initial_metadata()
    await router.stub.LookupRoute(LookupRouteRequest(model_id="m"))
    async with asyncio.timeout(10):
        got: list[Metric] = [await call.read() for _ in range(2)]
    call.cancel()
    assert {m.name for m in got} == {CALLS}
    assert got[1].value == 1
    assert all(0.8e6 < b.timestamp_us - a.timestamp_us < 5e6 for a, b in pairwise(got))


@pytest.mark.rule("RPC-M3")
async def test_a_histogram_is_named_by_its_family(router: Router) -> None:
    await router.stub.LookupRoute(LookupRouteRequest(model_id="m"))
    got = list(samples(router.registry, {LATENCY}, 7))
    assert {m.name for m in got} == {f"{LATENCY}_bucket", f"{LATENCY}_count", f"{LATENCY}_sum"}
    assert {(m.type, m.timestamp_us, m.labels["model"]) for m in got} == {("histogram", 7, "other")}


@pytest.mark.rule("RPC-M4", "RPC-M5", "WIRE-124")
async def test_a_name_that_nothing_has_is_waited_for_until_the_router_stops(router: Router) -> None:
    call: Any = router.stub.StreamMetrics(StreamMetricsRequest(names=["nobody's"]))
    await call.initial_metadata()
    reading = asyncio.ensure_future(call.read())
    done, _ = await asyncio.wait([reading], timeout=0.05)
    assert not done
    router.servicer.stop()
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        await reading
    assert ended.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.rule("RPC-M5")
async def test_a_stopping_router_ends_every_stream(registry: CollectorRegistry) -> None:
    streams = MetricStreams(registry)
    streams.stop()
    async with streams.watch(StreamMetricsRequest(names=["c_total"])) as rounds:
        assert (await anext(rounds)).value == 3
        with pytest.raises(CallError):
            await anext(rounds)


@pytest.mark.rule("WIRE-047")
async def test_no_metric_names_the_reserved_tenant(router: Router) -> None:
    await router.stub.LookupRoute(LookupRouteRequest(tenant_id=PROBE_TENANT, model_id="m"))
    assert all(PROBE_TENANT not in m.labels.values() for m in samples(router.registry, (), 0))
