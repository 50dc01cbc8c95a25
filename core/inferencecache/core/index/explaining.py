"""A decision taken apart: what every replica of the domain was worth, by which factors and settings."""

from __future__ import annotations

from collections.abc import Mapping

from inferencecache.core.index.policy import knobs_of
from inferencecache.core.index.ranking import Factors, Score
from inferencecache.core.index.reading import IndexView, Scope
from inferencecache.core.index.request import RouteRequest
from inferencecache.core.index.routing import Decision, candidates, route
from inferencecache.core.index.work import NO_WORK, penalties
from inferencecache.schemas.explanations import ExplainedReplica, Explanation
from inferencecache.schemas.ids import ReplicaId
from inferencecache.schemas.policy import ResolvedPolicy


def explain(
    view: IndexView,
    policy: ResolvedPolicy | None,
    request: RouteRequest,
    now_us: int,
    work: Mapping[ReplicaId, float] = NO_WORK,
) -> Explanation:
    """Decide as `route` does, and say why."""
    return explanation(view, policy, request, now_us, work, route(view, policy, request, now_us, work))


def explanation(
    view: IndexView,
    policy: ResolvedPolicy | None,
    request: RouteRequest,
    now_us: int,
    work: Mapping[ReplicaId, float],
    decision: Decision,
) -> Explanation:
    """Why `route` decided so, of the same arguments."""
    knobs = knobs_of(policy)
    work = work if knobs.load_balancing else NO_WORK
    scope = Scope(request.tenant, request.model, request.scheme)
    members = set(view.members(scope))
    among = candidates(view, scope, now_us, work)
    burden = penalties(work, among, knobs.load_weight) if among else {}
    scores = {score.replica: score for score in (*decision.scores, *decision.found)}
    ranks = {score.replica: rank for rank, score in enumerate(decision.scores, 1)}
    replicas = [
        _replica(
            scores.get(replica) or Score(replica, factors=Factors(penalty=burden.get(replica, 0.0))),
            rank=ranks.get(replica, 0),
            is_member=replica in members,
            work=work.get(replica, 0.0),
        )
        for replica in among
    ]
    return Explanation(
        reason=decision.reason.value,
        gate=decision.gate,
        time_us=now_us,
        prompt_tokens=decision.inputs.tokens if decision.inputs is not None else 0,
        ttl_ms=knobs.ttl_us // 1000,
        minimum_prefix_tokens=knobs.minimum_prefix_tokens,
        minimum_matched_tokens=knobs.minimum_matched_tokens,
        routing_floor_score=knobs.routing_floor_score,
        load_balancing=knobs.load_balancing,
        load_weight=knobs.load_weight,
        replicas=tuple(sorted(replicas, key=_place)),
    )


def _replica(score: Score, *, rank: int, is_member: bool, work: float) -> ExplainedReplica:
    factors = score.factors
    return ExplainedReplica(
        score.replica,
        rank=rank,
        member=is_member,
        matched_tokens=score.matched_tokens,
        blocks=score.blocks,
        tier=score.tier,
        value=factors.value,
        freshness=factors.freshness if factors.value else 0.0,
        pressure_factor=factors.pressure,
        slo_bias=factors.slo_bias,
        distinguishing_power=factors.power,
        unbalanced_score=factors.product,
        work_tokens=work,
        penalty=factors.penalty,
        score=score.score,
    )


def _place(replica: ExplainedReplica) -> tuple[bool, int, float, ReplicaId]:
    """The answer in its order, then the others, best first."""
    return replica.rank == 0, replica.rank, -replica.score, replica.replica
