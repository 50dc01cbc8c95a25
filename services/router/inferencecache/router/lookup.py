"""`LookupRoute`: a thin shell over the pure decision [WIRE section 4].

A lookup never fails. Whatever goes wrong while answering one ends as `NO_HINT`, and the caller routes
as if there were no cache plane [WIRE-026].
"""

from __future__ import annotations

import time

from inferencecache.core.index.request import RouteRequest
from inferencecache.core.index.routing import UNANSWERED, Decision, route
from inferencecache.core.index.work import NO_WORK, Assigned, AssignedWork
from inferencecache.core.service import get_logger
from inferencecache.router.metrics import ServerMetrics
from inferencecache.router.views import Following, index_of
from inferencecache.schemas.ids import PROBE_TENANT, AdapterId, HashScheme, ModelId, TenantId
from inferencecache.v1alpha1.inferencecache_pb2 import (
    LookupRouteRequest,
    LookupRouteResponse,
    ReplicaScore,
)

log = get_logger("lookup")


class Lookup:
    """Answers lookups from the views as they are; `block_size` is that of the engines [WIRE-159].

    `work` is what hints have cost replicas lately; without it ranking is blind to load.
    """

    def __init__(
        self,
        following: Following,
        metrics: ServerMetrics,
        block_size: int,
        work: AssignedWork | None = None,
    ) -> None:
        self._following = following
        self._metrics = metrics
        self._block_size = block_size
        self._work = work

    async def answer(self, message: LookupRouteRequest) -> LookupRouteResponse:
        """Decide, and count the call once [WIRE-080]."""
        start_ns = time.perf_counter_ns()
        try:
            decision = self._decide(message)
        except Exception:
            log.exception("lookup_failed")
            decision = UNANSWERED
        is_probe = message.tenant_id == PROBE_TENANT
        elapsed_ns = 0 if is_probe else time.perf_counter_ns() - start_ns
        self._metrics.answered(
            message.model_id,
            decision.reason.value,
            bool(decision.scores),
            elapsed_ns / 1e9,
            lambda: self._knows_model(message),
        )
        return _response(message, decision, elapsed_ns // 1000)

    def _decide(self, message: LookupRouteRequest) -> Decision:
        tenant, model = TenantId(message.tenant_id), ModelId(message.model_id)
        request = RouteRequest(
            tenant,
            model,
            HashScheme(message.hash_scheme),
            AdapterId(message.adapter_id),
            message.prefix_hash,
            message.prefix_token_count,
            # Slices are lists, and the quickest way out of a message.
            message.block_hashes[:],
            message.block_token_counts[:],
            message.token_ids[:],
            message.prompt_text,
            ttft_ms=message.slo.ttft_ms,
            block_size=self._block_size,
        )
        index = index_of(self._following, tenant, model)
        now_s = time.monotonic()
        work = self._work.of(tenant, model, now_s) if self._work is not None else NO_WORK
        decision = route(index, self._following.policy(tenant), request, index.now_us, work)
        if self._work is not None and decision.scores:
            replica = decision.scores[0].replica
            self._work.assign(Assigned(tenant, model, replica, decision.uncached_tokens), now_s)
        return decision

    def _knows_model(self, message: LookupRouteRequest) -> bool:
        tenant, model = TenantId(message.tenant_id), ModelId(message.model_id)
        return index_of(self._following, tenant, model).has_model(tenant, model)


def _response(message: LookupRouteRequest, decision: Decision, latency_us: int) -> LookupRouteResponse:
    return LookupRouteResponse(
        replica_scores=[
            ReplicaScore(
                replica_id=score.replica,
                score=score.score,
                matched_tokens=score.matched_tokens,
                estimated_cache_hit_prob=score.hit_prob,
                tier=score.tier,  # type: ignore[arg-type] # 0 to 3, the numbers of CacheTier
            )
            for score in decision.scores
        ],
        reason_code=decision.reason.value,
        lookup_latency_us=latency_us,
        token_ids=decision.echo_tokens,
        adapter_id=message.adapter_id if decision.echo_adapter else "",
    )
