"""`LookupRoute`: a shell over the pure decision that watches the time [WIRE section 4].

A lookup never fails. Whatever goes wrong while answering one ends as `NO_HINT`, and the caller routes
as if there were no cache plane [WIRE-026]; what takes too long ends as `TIMEOUT` [WIRE-081].
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping
from logging import DEBUG
from typing import Final, NamedTuple

import msgspec

from inferencecache.core.fingerprint import prefix_digests
from inferencecache.core.index.credits import Credits
from inferencecache.core.index.explaining import explain, explanation
from inferencecache.core.index.joined import JoinedView
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
from inferencecache.schemas.explanations import Explanation
from inferencecache.schemas.ids import PROBE_TENANT, AdapterId, HashScheme, ModelId, ReplicaId, TenantId
from inferencecache.schemas.policy import ResolvedPolicy
from inferencecache.v1alpha1.inferencecache_pb2 import (
    LookupRouteRequest,
    LookupRouteResponse,
    ReplicaScore,
)

QUICK_TOKENS: Final = 1 << 14
"""Most that are fingerprinted between other calls; more may take a third of a second, in a thread."""
NOBODYS: Final = (TenantId(""), ModelId(""))
"""The account of work for models that the index does not know."""

log = get_logger("lookup")


class Consulted(NamedTuple):
    """What was asked, with what was made of it; the answer; and the work that it took into account.

    `account` is whose work the request is.
    """

    request: RouteRequest
    decision: Decision
    work: Mapping[ReplicaId, float] = NO_WORK
    account: tuple[TenantId, ModelId] = NOBODYS


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
        self._is_explaining = log.is_enabled_for(DEBUG)

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
        consulted = await self.consult(self._request(message), granted_s)
        decision = consulted.decision
        if decision.scores:
            self.assign(consulted, decision.scores[0].replica, decision.uncached_tokens)
        self.credit(consulted)
        return decision

    async def consult(self, request: RouteRequest, granted_s: float | None) -> Consulted:
        """The steps of the contract that concern time; `route` does the others [WIRE-056].

        Nothing is assigned or credited by it: that is for whoever follows the hint, or does not.
        """
        policy = self._following.policy(request.tenant)
        if request.tenant == PROBE_TENANT:
            return Consulted(request, UNANSWERED)
        now_s = time.monotonic()
        deadline_s = now_s + _limit_s(granted_s, knobs_of(policy), needs_tokens(policy, request))
        if now_s >= deadline_s:
            return Consulted(request, TIMED_OUT)
        completed = await self._completed(request, policy, deadline_s - now_s)
        if completed is None:
            return Consulted(request, TIMED_OUT)
        request = completed
        index = index_of(self._following, request.tenant, request.model)
        account = account_of(index, request)
        work = believed_work(self._work, index, request, account, time.monotonic())
        now_us = index.now_us
        decision = route(index, policy, request, now_us, work)
        if self._is_explaining:
            why = explanation(index, policy, request, now_us, work, decision)
            worth_telling = tuple([each for each in why.replicas if each.rank or each.value])
            told = msgspec.to_builtins(msgspec.structs.replace(why, replicas=worth_telling))
            log.debug("lookup_decided", tenant=request.tenant, model=request.model, **told)
        if time.monotonic() >= deadline_s and decision.reason is not Reason.POLICY_REQUIRES_CHAIN:
            decision = TIMED_OUT._replace(echo_tokens=request.prompt_tokens)
        return Consulted(request, decision, work, account)

    def assign(self, consulted: Consulted, replica: ReplicaId, tokens: float) -> None:
        """The request goes to this replica and has it compute so many tokens."""
        if self._work is not None:
            self._work.assign(Assigned(*consulted.account, replica, tokens), time.monotonic())

    def take_back(self, consulted: Consulted, replica: ReplicaId, tokens: float, assigned_s: float) -> None:
        """It was assigned at `assigned_s`, and the replica has not begun it."""
        if self._work is not None:
            assigned = Assigned(*consulted.account, replica, tokens)
            self._work.take_back(assigned, assigned_s, time.monotonic())

    def credit(self, consulted: Consulted) -> None:
        """Count the accesses of a hint, for tenants that evict by use."""
        request = consulted.request
        if self._credited is not None and knobs_of(self._following.policy(request.tenant)).lfu:
            self._credited.add(request, consulted.decision)

    def unanswered(self, request: RouteRequest) -> Consulted:
        """The request without a hint, with what its replicas are believed to have to do."""
        index = index_of(self._following, request.tenant, request.model)
        account = account_of(index, request)
        work = believed_work(self._work, index, request, account, time.monotonic())
        return Consulted(request, UNANSWERED, work, account)

    async def explain(self, message: LookupRouteRequest) -> Explanation:
        """Why the lookup would be answered as it would now; nothing is assigned, credited or counted."""
        request = self._request(message)
        policy = self._following.policy(request.tenant)
        completed = await self._completed(request, policy, DEFAULT_LIMIT_S)
        if completed is None:
            return Explanation(reason=TIMED_OUT.reason.value)
        index = index_of(self._following, request.tenant, request.model)
        account = account_of(index, completed)
        work = believed_work(self._work, index, completed, account, time.monotonic())
        return explain(index, policy, completed, index.now_us, work)

    async def _completed(
        self, request: RouteRequest, policy: ResolvedPolicy | None, limit_s: float
    ) -> RouteRequest | None:
        """The request with what is made of it beforehand: tokens of its text, digests of many tokens.

        `None` when its text took too long.
        """
        if needs_tokens(policy, request):
            tokenized = await self._tokenizing.prompt(request.model, request.prompt_text, limit_s)
            if tokenized.refusal is Refusal.TIMED_OUT:
                return None
            request = request._replace(prompt_tokens=tokenized.tokens)
        tokens = needs_digests(policy, request)
        if len(tokens) > QUICK_TOKENS:
            digests = await asyncio.to_thread(prefix_digests, tokens, request.block_size)
            request = request._replace(digests=digests)
        return request

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


def account_of(index: JoinedView, request: RouteRequest) -> tuple[TenantId, ModelId]:
    """Whose work a request is: its tenant's and model's, where the index knows them.

    All others are one account. Callers choose the names, and a table of all that were ever chosen would
    grow without end, in every router that hears of it.
    """
    if index.has_model(request.tenant, request.model):
        return request.tenant, request.model
    return NOBODYS


def believed_work(
    work: AssignedWork | None,
    index: JoinedView,
    request: RouteRequest,
    account: tuple[TenantId, ModelId],
    now_s: float,
) -> Mapping[ReplicaId, float]:
    """What the replicas that a request of this account may go to are believed to have to do."""
    if work is None:
        return NO_WORK
    return work.believed(*account, now_s, index.stats(request.tenant, request.model), index.now_us)


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
