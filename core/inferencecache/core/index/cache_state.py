"""What `GetCacheState` reports about one (tenant, model) [IDX-172..175, WIRE-110..113]."""

from __future__ import annotations

from typing import NamedTuple

from inferencecache.core.index.reading import IndexView
from inferencecache.schemas.deltas import StatsRow
from inferencecache.schemas.ids import PROBE_TENANT, ModelId, ReplicaId, TenantId


class CacheState(NamedTuple):
    """Replicas with statistics, ascending, and the distinct keys of the pair."""

    replicas: tuple[tuple[ReplicaId, StatsRow], ...] = ()
    total_prefixes: int = 0


def cache_state(view: IndexView, tenant: TenantId, model: ModelId) -> CacheState:
    """Read exactly the given pair; "" is a value like any other, the reserved tenant reads as empty."""
    if tenant == PROBE_TENANT:
        return CacheState()
    replicas = tuple(sorted(view.stats(tenant, model).items()))
    return CacheState(replicas, view.distinct_keys(tenant, model))
