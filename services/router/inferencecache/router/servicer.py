"""The eight calls of the contract [WIRE-002], each with its answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import grpc

from inferencecache.core.index.cache_state import cache_state
from inferencecache.router.calls import client_stream, server_stream, unary
from inferencecache.router.ingest import Ingest
from inferencecache.router.lookup import Lookup
from inferencecache.router.views import Following, index_of
from inferencecache.schemas.ids import ModelId, TenantId
from inferencecache.v1alpha1.inferencecache_pb2 import (
    CacheEvent,
    CacheStateUpdate,
    CacheSummary,
    GetCacheStateRequest,
    GetCacheStateResponse,
    LookupPDRouteRequest,
    LookupPDRouteResponse,
    LookupRouteRequest,
    Metric,
    RenderTemplateRequest,
    RenderTemplateResponse,
    ReplicaStats,
    StreamEventsRequest,
    StreamMetricsRequest,
)

SERVICE: Final = "inferencecache.v1alpha1.InferenceCache"
_MOST: Final = 2**63 - 1
"""Largest number of an int64 field; a record of the log can carry a larger one."""


class Servicer:
    """The service over one replica of the index and one log."""

    def __init__(self, following: Following, lookup: Lookup, ingest: Ingest) -> None:
        self._following = following
        self._lookup = lookup
        self._ingest = ingest

    def handler(self) -> grpc.GenericRpcHandler:
        """The calls by name, for a server."""
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "RenderTemplate": unary(RenderTemplateRequest, self.render_template),
                "LookupRoute": unary(LookupRouteRequest, self._lookup.answer),
                "LookupPDRoute": unary(LookupPDRouteRequest, self.lookup_pd_route),
                "GetCacheState": unary(GetCacheStateRequest, self.get_cache_state),
                "ReportCacheState": client_stream(CacheStateUpdate, self._ingest.report),
                "PublishEvent": unary(CacheEvent, self._ingest.publish),
                "StreamCacheEvents": server_stream(StreamEventsRequest, self.stream_cache_events),
                "StreamMetrics": server_stream(StreamMetricsRequest, self.stream_metrics),
            },
        )

    async def get_cache_state(self, request: GetCacheStateRequest) -> GetCacheStateResponse:
        """Statistics and key count of one (tenant, model) [WIRE-110..114]."""
        tenant, model = TenantId(request.tenant_id), ModelId(request.model_id)
        state = cache_state(index_of(self._following, tenant, model), tenant, model)
        replicas = [
            ReplicaStats(
                replica_id=replica,
                cache_memory_bytes=min(row.cache_memory_bytes, _MOST),
                hit_rate=row.hit_rate,
                pressure=row.pressure,
                t2_hit_tokens=min(row.t2_hit_tokens, _MOST),
                t2_query_tokens=min(row.t2_query_tokens, _MOST),
                requests_running=min(row.requests_running, _MOST),
                requests_waiting=min(row.requests_waiting, _MOST),
                kv_usage=row.kv_usage,
            )
            for replica, row in state.replicas
        ]
        return GetCacheStateResponse(
            replicas=replicas, summary=CacheSummary(total_prefixes=state.total_prefixes)
        )

    async def render_template(self, request: RenderTemplateRequest) -> RenderTemplateResponse:
        """Render nothing: the caller hashes the raw prompt itself [WIRE-120]."""
        return RenderTemplateResponse(reason_code="OK")

    async def lookup_pd_route(self, request: LookupPDRouteRequest) -> LookupPDRouteResponse:
        """No hint [WIRE-121]."""
        return LookupPDRouteResponse(reason_code="NO_HINT")

    async def stream_cache_events(self, request: StreamEventsRequest) -> AsyncIterator[CacheEvent]:
        """No event [WIRE-122]."""
        events: tuple[CacheEvent, ...] = ()
        for event in events:
            yield event

    async def stream_metrics(self, request: StreamMetricsRequest) -> AsyncIterator[Metric]:
        """No metric [WIRE-123]."""
        metrics: tuple[Metric, ...] = ()
        for metric in metrics:
            yield metric
