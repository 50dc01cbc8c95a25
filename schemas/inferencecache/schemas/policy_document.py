"""The resolved policy set as it travels: the value of `IC_POLICY` under `set`, one JSON object.

The shape is that of the controller's rules [CTL-193], so that a person who reads the bucket finds the
names of the custom resources. Absent values are left out; a quota or floor of 0 is not absent.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from inferencecache.schemas.ids import TenantId

_Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class _Part(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """Unknown keys are refused: a writer that means something by them must raise the version."""


class StrategyEntry(_Part, frozen=True):
    """`spec.strategy` of a policy; `load_balancing` and `load_weight` since version 8."""

    enable_chain_matching: bool | None = None
    require_chain: bool | None = None
    enable_tenant_hot: bool | None = None
    load_balancing: bool | None = None
    load_weight: float | None = None


class PolicyEntry(_Part, frozen=True):
    """The policy in force in one namespace."""

    namespace: str
    eviction_ttl: Annotated[_Int64, Meta(description="Nanoseconds; 0 or absent: the default.")] = (
        msgspec.field(name="evictionTTL", default=0)
    )
    minimum_prefix_tokens: _Int64 = 0
    minimum_matched_tokens: _Int64 = 0
    routing_floor_score: float | None = None
    lookup_timeout_ms: _Int64 = 0
    affinity_routing: bool | None = None
    eviction: Annotated[str, Meta(description="lru or lfu.")] = ""
    strategy: StrategyEntry | None = None


class TenantEntry(_Part, frozen=True):
    """The quota in force of one tenant."""

    tenant_id: TenantId = msgspec.field(name="tenantID")
    max_index_entries: _Int64
    isolation_mode: str = ""


class PolicyDocument(_Part, frozen=True):
    """The whole set. `version` is the schema number."""

    version: int
    policies: tuple[PolicyEntry, ...]
    tenants: tuple[TenantEntry, ...] = ()
