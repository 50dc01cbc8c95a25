"""`LookupRoute`: a shell over the pure decision that watches the time [WIRE section 4].

A lookup never fails. Whatever goes wrong while answering one ends as `NO_HINT`, and the caller routes
as if there were no cache plane [WIRE-026]; what takes too long ends as `TIMEOUT` [WIRE-081].
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import Final

from inferencecache.core.fingerprint import prefix_digests
from inferencecache.core.index.credits import Credits
from inferencecache.core.index.policy import Knobs, knobs_of
from inferencecache.core.index.reason import Reason
from inferencecache.core.index.request import RouteRequest
from inferencecache.core.index.routing import (
    TIMED_OUT,
    UNANSWERED,
    Decision,
    needs_digests,
    needs_tokens,
    route,
)
from inferencecache.core.index.work import NO_WORK, Assigned, AssignedWork
from inferencecache.core.service import get_logger
from inferencecache.router.metrics import ServerMetrics
from inferencecache.router.tokenizing import DEFAULT_LIMIT_S, Refusal, Tokenizing
from inferencecache.router.views import Following, index_of
from inferencecache.schemas.ids import PROBE_TENANT, AdapterId, HashScheme, ModelId, TenantId
from inferencecache.v1alpha1.inferencecache_pb2 import (
    LookupRouteRequest,
    LookupRouteResponse,
    ReplicaScore,
)

QUICK_TOKENS: Final = 1 << 14
"""Most that are fingerprinted between other calls; more may take a third of a second, in a thread."""

log = get_logger("lookup")


class Lookup:
    """Answers lookups from the views as they are; `block_size` is that of the engines [WIRE-159].

    `work` is what hints have cost replicas lately; without it ranking is blind to load. `credited` takes
    the accesses of tenants that evict by use.
    """

    def __init__(
        self,
        following: Following,
        metrics: ServerMetrics,
        block_size: int,
        work: AssignedWork | None = None,
        tokenizing: Tokenizing | None = None,
        credited: Credits | None = None,
    ) -> None:
        self._following = following
        self._metrics = metrics
        self._block_size = block_size
        self._work = work
        self._tokenizing = tokenizing or Tokenizing({})
        self._credited = credited

    async def answer(
        self, message: LookupRouteRequest, granted_s: float | None = None
    ) -> LookupRouteResponse:
        """Decide within the time that the caller grants, and count the call once [WIRE-080].

        A call that is cancelled, as one is whose deadline passes, counts as timed out.
        """
        start_ns = time.perf_counter_ns()
        decision = TIMED_OUT
        elapsed_ns = 0
        try:
            decision = await self._decide(message, granted_s)
        except Exception:
            log.exception("lookup_failed")
            decision = UNANSWERED
        finally:
            if message.tenant_id != PROBE_TENANT:
                elapsed_ns = time.perf_counter_ns() - start_ns
            self._metrics.answered(
                message.model_id,
                decision.reason.value,
                bool(decision.scores),
                elapsed_ns / 1e9,
                lambda: self._knows_model(message),
            )
        return _response(message, decision, elapsed_ns // 1000)

    async def _decide(self, message: LookupRouteRequest, granted_s: float | None) -> Decision:
        """The steps of the contract that concern time; `route` does the others [WIRE-056]."""
        request = self._request(message)
        policy = self._following.policy(request.tenant)
        knobs = knobs_of(policy)
        if request.tenant == PROBE_TENANT:
            return UNANSWERED
        is_about_text = needs_tokens(policy, request)
        now_s = time.monotonic()
        deadline_s = now_s + _limit_s(granted_s, knobs, is_about_text)
        if now_s >= deadline_s:
            return TIMED_OUT
        if is_about_text:
            tokenized = await self._tokenizing.prompt(request.model, request.prompt_text, deadline_s - now_s)
            if tokenized.refusal is Refusal.TIMED_OUT:
                return TIMED_OUT
            request = request._replace(prompt_tokens=tokenized.tokens)
        tokens = needs_digests(policy, request)
        if len(tokens) > QUICK_TOKENS:
            request = request._replace(
                digests=await asyncio.to_thread(prefix_digests, tokens, request.block_size)
            )
        index = index_of(self._following, request.tenant, request.model)
        now_s = time.monotonic()
        work = self._work.of(request.tenant, request.model, now_s) if self._work is not None else NO_WORK
        decision = route(index, policy, request, index.now_us, work)
        if time.monotonic() >= deadline_s and decision.reason is not Reason.POLICY_REQUIRES_CHAIN:
            return TIMED_OUT._replace(echo_tokens=request.prompt_tokens)
        if self._work is not None and decision.scores:
            replica = decision.scores[0].replica
            self._work.assign(
                Assigned(request.tenant, request.model, replica, decision.uncached_tokens), now_s
            )
        if self._credited is not None and knobs.lfu:
            self._credited.add(request, decision)
        return decision

    def _request(self, message: LookupRouteRequest) -> RouteRequest:
        return RouteRequest(
            TenantId(message.tenant_id),
            ModelId(message.model_id),
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

    def _knows_model(self, message: LookupRouteRequest) -> bool:
        tenant, model = TenantId(message.tenant_id), ModelId(message.model_id)
        return index_of(self._following, tenant, model).has_model(tenant, model)


def _limit_s(granted_s: float | None, knobs: Knobs, is_about_text: bool) -> float:
    """The tighter of the caller's and the policy's limit; text has one in any case [WIRE-053, WIRE-083]."""
    limits = [] if granted_s is None else [granted_s]
    if knobs.lookup_timeout_ms > 0:
        limits.append(knobs.lookup_timeout_ms / 1000)
    return min(limits, default=DEFAULT_LIMIT_S if is_about_text else math.inf)


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
