"""The eight calls of the contract [WIRE-002], each with its answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import grpc
from prometheus_client import CollectorRegistry

from inferencecache.core.index.cache_state import cache_state
from inferencecache.core.log.inbox import MOST_IN_FLIGHT
from inferencecache.core.service import Queue, QueueMetrics
from inferencecache.router import ingest
from inferencecache.router.calls import client_stream, server_stream, unary, unary_within
from inferencecache.router.event_streams import EventStreams
from inferencecache.router.ingest import Ingest
from inferencecache.router.lookup import Lookup
from inferencecache.router.metric_streams import MetricStreams
from inferencecache.router.metrics import ServerMetrics
from inferencecache.router.pair_lookup import PairLookup
from inferencecache.router.rendering import Rendering
from inferencecache.router.tokenizing import Tokenizing
from inferencecache.router.views import LiveFollowing, index_of
from inferencecache.schemas.ids import ModelId, TenantId
from inferencecache.v1alpha1.inferencecache_pb2 import (
    CacheEvent,
    CacheStateUpdate,
    CacheSummary,
    GetCacheStateRequest,
    GetCacheStateResponse,
    LookupPDRouteRequest,
    LookupRouteRequest,
    RenderTemplateRequest,
    ReplicaStats,
    StreamEventsRequest,
    StreamMetricsRequest,
)

SERVICE: Final = "inferencecache.v1alpha1.InferenceCache"
_MOST: Final = 2**63 - 1
"""Largest number of an int64 field; a record of the log can carry a larger one."""


class Servicer:
    """The service over one replica of the index and one log."""

    def __init__(
        self,
        following: LiveFollowing,
        registry: CollectorRegistry,
        metrics: ServerMetrics,
        tokenizing: Tokenizing,
        block_size: int,
    ) -> None:
        self._following = following
        work, credited = following.work, following.credited
        self.lookup = Lookup(following, metrics, block_size, work, tokenizing, credited)
        self._pair_lookup = PairLookup(following, block_size, work, credited)
        self._rendering = Rendering(following.template, tokenizing, block_size)
        self._ingest = Ingest(following.publisher, following)
        self._events = EventStreams(following.tail)
        self._metric_streams = MetricStreams(registry)
        self._tokenizing = tokenizing
        QueueMetrics("router", registry, self._queues)

    def _queues(self) -> Iterator[Queue]:
        following = self._following
        yield Queue("reports_bytes", self._ingest.waiting_bytes, ingest.MOST_WAITING_BYTES)
        yield Queue("listener_bytes", self._events.waiting_bytes, self._events.most_waiting_bytes)
        yield Queue("credits_accesses", following.credited.waiting, following.credited.most)
        yield Queue("tokenizing_texts", self._tokenizing.running, self._tokenizing.slots)
        yield Queue("nats_questions", following.publisher.in_flight, MOST_IN_FLIGHT)

    def stop(self) -> None:
        """End open streams with `UNAVAILABLE`, those of producers once what was read is stored [WIRE-202]."""
        self._ingest.stop()
        self._events.stop()
        self._metric_streams.stop()

    def handler(self) -> grpc.GenericRpcHandler:
        """The calls by name, for a server."""
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "RenderTemplate": unary(RenderTemplateRequest, self._rendering.answer),
                "LookupRoute": unary_within(LookupRouteRequest, self.lookup.answer),
                "LookupPDRoute": unary(LookupPDRouteRequest, self._pair_lookup.answer),
                "GetCacheState": unary(GetCacheStateRequest, self.get_cache_state),
                "ReportCacheState": client_stream(CacheStateUpdate, self._ingest.report),
                "PublishEvent": unary(CacheEvent, self._ingest.publish),
                "StreamCacheEvents": server_stream(StreamEventsRequest, self._events.listen),
                "StreamMetrics": server_stream(StreamMetricsRequest, self._metric_streams.watch),
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
