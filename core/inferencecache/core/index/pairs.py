"""A prefill and a decode replica for one request, out of a topology's pools.

The prefill replica is the first of the ordinary ranking, with the index narrowed to the prefill pools.
The decode replica is the one with the most room: what matters there is not what is cached but how much
already runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from inferencecache.core.index.policy import knobs_of
from inferencecache.core.index.ranking import pressure_factor
from inferencecache.core.index.reading import Hit, IndexView, Run, Scope
from inferencecache.core.index.reason import Reason
from inferencecache.core.index.request import RouteRequest
from inferencecache.core.index.routing import Decision, route
from inferencecache.core.index.work import NO_WORK
from inferencecache.schemas.deltas import StatsRow
from inferencecache.schemas.ids import AdapterId, ModelId, ReplicaId, TenantId
from inferencecache.schemas.policy import ResolvedPolicy
from inferencecache.schemas.topologies import ResolvedPool, ResolvedTopology


class PairDecision(NamedTuple):
    """The answer to a prefill/decode lookup.

    `prefill` is the ordinary decision among the prefill replicas; `decode` and `transport` are there
    exactly when it has scores.
    """

    prefill: Decision
    decode: ReplicaId | None = None
    transport: str = ""


def route_pair(
    view: IndexView,
    policy: ResolvedPolicy | None,
    topology: ResolvedTopology,
    request: RouteRequest,
    now_us: int,
    work: Mapping[ReplicaId, float] = NO_WORK,
) -> PairDecision:
    """Choose from one view at one moment; arguments as those of `routing.route`."""
    prefill, decode = _replicas(topology.prefill_pools), _replicas(topology.decode_pools)
    if not (prefill and decode):
        return PairDecision(Decision(Reason.EMPTY_POOL))
    decision = route(Narrowed(view, prefill), policy, request, now_us, work)
    if not decision.scores:
        return PairDecision(decision)
    knobs = knobs_of(policy)
    stats = view.stats(request.tenant, request.model)
    tokens = decision.inputs.tokens if decision.inputs is not None else 0
    chosen = most_room(
        decode,
        {replica: row for replica, row in stats.items() if now_us - row.reported_us < knobs.ttl_us},
        work if knobs.load_balancing else NO_WORK,
        tokens,
    )
    return PairDecision(decision, chosen, topology.transport)


def most_room(
    replicas: Sequence[ReplicaId],
    stats: Mapping[ReplicaId, StatsRow],
    work: Mapping[ReplicaId, float],
    tokens: int,
) -> ReplicaId:
    """The replica with the least work, this request's tokens included, for its free capacity.

    So requests spread in proportion to free capacity also while statistics stand still. Where all are
    saturated the one with the least work is taken; of equal ones the first.
    """

    def load(replica: ReplicaId) -> tuple[float, float]:
        assigned = work.get(replica, 0.0) + max(tokens, 1)
        row = stats.get(replica)
        free = 1.0 if row is None else pressure_factor(row)
        return assigned / free if free > 0 else math.inf, assigned

    return min(replicas, key=load)


class Narrowed(IndexView):
    """An index in which only `replicas`, ascending, are candidates.

    What is known of tenants, models and schemes is the whole index's. Where a scope is known and none
    of the replicas holds anything in it, they all count as its members: the topology says that they
    serve it.
    """

    def __init__(self, view: IndexView, replicas: Sequence[ReplicaId]) -> None:
        self._view = view
        self._replicas = replicas
        self._among = frozenset(replicas)

    @property
    def time_us(self) -> int:
        return self._view.time_us

    def exact(self, scope: Scope, adapter: AdapterId, hash_: bytes, now_us: int, ttl_us: int) -> list[Hit]:
        hits = self._view.exact(scope, adapter, hash_, now_us, ttl_us)
        return [hit for hit in hits if hit.replica in self._among]

    def leading_runs(
        self, scope: Scope, adapter: AdapterId, hashes: Sequence[bytes], now_us: int, ttl_us: int
    ) -> list[Run]:
        runs = self._view.leading_runs(scope, adapter, hashes, now_us, ttl_us)
        return [run for run in runs if run.replica in self._among]

    def members(self, scope: Scope) -> Sequence[ReplicaId]:
        members = self._view.members(scope)
        if not members:
            return ()
        return [replica for replica in members if replica in self._among] or self._replicas

    def newcomers(self, scope: Scope, since_us: int) -> Sequence[ReplicaId]:
        """Those of them that are no members already, as they are where the replicas hold nothing."""
        members = self.members(scope)
        newcomers = self._view.newcomers(scope, since_us)
        return [replica for replica in newcomers if replica in self._among and replica not in members]

    def stats(self, tenant: TenantId, model: ModelId) -> Mapping[ReplicaId, StatsRow]:
        return self._view.stats(tenant, model)

    def is_empty(self) -> bool:
        return self._view.is_empty()

    def has_tenant(self, tenant: TenantId) -> bool:
        return self._view.has_tenant(tenant)

    def has_model(self, tenant: TenantId, model: ModelId) -> bool:
        return self._view.has_model(tenant, model)

    def distinct_keys(self, tenant: TenantId, model: ModelId) -> int:
        return self._view.distinct_keys(tenant, model)


def _replicas(pools: Iterable[ResolvedPool]) -> list[ReplicaId]:
    return sorted({replica for pool in pools for replica in pool.replicas})
