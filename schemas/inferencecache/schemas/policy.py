"""The resolved policy set as routers and owners hold it; `policy_document` is how it travels.

Absent values mean what section 11.2 of the index rules says: an absent `minimum_matched_tokens` is
no floor, while absent `routing_floor_score` and `affinity_routing` are their defaults [IDX-122].
"""

from __future__ import annotations

from typing import Final

import msgspec

from inferencecache.schemas.ids import TenantId

POLICY_SCHEMA: Final = 8


class ResolvedPolicy(msgspec.Struct, frozen=True):
    """The `CachePolicy` of one namespace, flattened. Durations in milliseconds, 0 = not set."""

    namespace: str
    eviction: str = "lru"
    eviction_ttl_ms: int = 0
    minimum_prefix_tokens: int = 0
    minimum_matched_tokens: int = 0
    routing_floor_score: float | None = None
    lookup_timeout_ms: int = 0
    affinity_routing: bool | None = None
    enable_chain_matching: bool | None = None
    require_chain: bool | None = None
    enable_tenant_hot: bool | None = None
    load_balancing: bool | None = None
    load_weight: float | None = None


class ResolvedQuota(msgspec.Struct, frozen=True):
    """The `CacheTenant` of one tenant: at most `max_index_entries` distinct keys; negative admits nothing."""

    tenant_id: TenantId
    max_index_entries: int
    isolation_mode: str = ""


class PolicySet(msgspec.Struct, frozen=True):
    """All policies and quotas; it replaces the previous set as a whole [IDX-119]."""

    schema: int = POLICY_SCHEMA
    policies: tuple[ResolvedPolicy, ...] = ()
    quotas: tuple[ResolvedQuota, ...] = ()
