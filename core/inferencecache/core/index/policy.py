"""From the resolved policy set to the values that lookups and owners act on.

A policy set passes three steps: `accept` refuses schemas this version cannot read and fills what an
older schema could not carry, `Policies` finds a tenant's policy and quota in it, and `knobs_of` turns
a policy, or its absence, into effective values with every default and clamp applied.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from inferencecache.core.index.single import single
from inferencecache.schemas.ids import PROBE_TENANT, TenantId
from inferencecache.schemas.policy import POLICY_SCHEMA, PolicySet, ResolvedPolicy

DEFAULT_TTL_US: Final = 1_800_000_000
DEFAULT_MINIMUM_MATCHED_TOKENS: Final = 64
DEFAULT_ROUTING_FLOOR_SCORE: Final = 0.1
DEFAULT_LOAD_WEIGHT: Final = 0.5
OLDEST_POLICY_SCHEMA: Final = 3


class Knobs(NamedTuple):
    """Effective values for one tenant. A number of 0 switches its gate off, save that of `ttl_us`."""

    ttl_us: int = DEFAULT_TTL_US
    lfu: bool = False
    minimum_prefix_tokens: int = 0
    minimum_matched_tokens: int = DEFAULT_MINIMUM_MATCHED_TOKENS
    routing_floor_score: float = DEFAULT_ROUTING_FLOOR_SCORE
    lookup_timeout_ms: int = 0
    affinity_routing: bool = True
    chain_matching: bool = True
    require_chain: bool = False
    tenant_hot: bool = True
    load_balancing: bool = True
    load_weight: float = DEFAULT_LOAD_WEIGHT


NO_POLICY: Final = Knobs()


def knobs_of(policy: ResolvedPolicy | None) -> Knobs:
    """Effective values of a policy; those of a tenant without one for `None` [IDX-122..125, WIRE-055]."""
    if policy is None:
        return NO_POLICY
    floor = policy.routing_floor_score
    return Knobs(
        ttl_us=policy.eviction_ttl_ms * 1000 if policy.eviction_ttl_ms > 0 else DEFAULT_TTL_US,
        lfu=policy.eviction.lower() == "lfu",
        minimum_prefix_tokens=max(0, policy.minimum_prefix_tokens),
        minimum_matched_tokens=max(0, policy.minimum_matched_tokens),
        routing_floor_score=DEFAULT_ROUTING_FLOOR_SCORE if floor is None else max(0.0, floor),
        lookup_timeout_ms=max(0, policy.lookup_timeout_ms),
        affinity_routing=policy.affinity_routing is not False,
        chain_matching=policy.enable_chain_matching is not False,
        require_chain=policy.require_chain is True,
        tenant_hot=policy.enable_tenant_hot is not False,
        load_balancing=policy.load_balancing is not False,
        load_weight=DEFAULT_LOAD_WEIGHT if policy.load_weight is None else max(0.0, policy.load_weight),
    )


class UnsupportedPolicySchemaError(ValueError):
    """The set is of a schema that this version does not read; the previous set stays [IDX-128]."""

    def __init__(self, schema: int) -> None:
        super().__init__(
            f"policy schema {schema}: this version reads {OLDEST_POLICY_SCHEMA} to {POLICY_SCHEMA}; "
            "upgrade routers and indexers before the controller"
        )
        self.schema = schema


def accept(policy_set: PolicySet) -> PolicySet:
    """The set with the fields filled that its schema could not carry [IDX-128..130].

    Raises `UnsupportedPolicySchemaError` for a schema outside the readable range.
    """
    schema = policy_set.schema
    if not OLDEST_POLICY_SCHEMA <= schema <= POLICY_SCHEMA:
        raise UnsupportedPolicySchemaError(schema)
    if schema == POLICY_SCHEMA:
        return policy_set
    policies = tuple(_filled(policy, schema) for policy in policy_set.policies)
    return msgspec.structs.replace(policy_set, schema=POLICY_SCHEMA, policies=policies)


def _filled(policy: ResolvedPolicy, schema: int) -> ResolvedPolicy:
    filled: dict[str, object] = {}
    if schema < 4 and policy.minimum_matched_tokens == 0:
        filled["minimum_matched_tokens"] = DEFAULT_MINIMUM_MATCHED_TOKENS
    if schema < 5 and policy.routing_floor_score is None:
        filled["routing_floor_score"] = DEFAULT_ROUTING_FLOOR_SCORE
    if schema < 6:
        flags = (("enable_chain_matching", True), ("require_chain", False), ("enable_tenant_hot", True))
        filled.update((name, value) for name, value in flags if getattr(policy, name) is None)
    if schema < 7 and policy.affinity_routing is None:
        filled["affinity_routing"] = True
    return msgspec.structs.replace(policy, **filled)


class Policies:
    """One accepted set, by whom its items are about [IDX-117..120]; the first about somebody counts.

    The reserved tenant is exempt from quotas [WIRE-048].
    """

    def __init__(self, policy_set: PolicySet) -> None:
        self._policies = {policy.namespace: policy for policy in reversed(policy_set.policies)}
        self._quotas = {
            quota.tenant_id: max(0, quota.max_index_entries) for quota in reversed(policy_set.quotas)
        }
        self._policies.pop("", None)
        for nobody in (TenantId(""), PROBE_TENANT):
            self._quotas.pop(nobody, None)

    @property
    def policies(self) -> Mapping[str, ResolvedPolicy]:
        """All policies by namespace."""
        return self._policies

    @property
    def quotas(self) -> Mapping[TenantId, int]:
        """All quotas by tenant."""
        return self._quotas

    def policy(self, tenant: TenantId) -> ResolvedPolicy | None:
        """The policy of the namespace that is named like the tenant."""
        return self._policies.get(tenant)

    def quota(self, tenant: TenantId) -> int | None:
        """How many distinct keys the tenant may hold; `None` is unbounded, 0 admits nothing [IDX-124]."""
        return self._quotas.get(tenant)


_DECIMAL: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def resolve_floor(text: str | None) -> float | None:
    """The number of a `routingFloorScore` string, `None` when absent, never 0 by accident [IDX-127]."""
    return resolve_decimal(text, DEFAULT_ROUTING_FLOOR_SCORE)


def resolve_decimal(text: str | None, otherwise: float) -> float | None:
    """The number of a decimal string; `otherwise` for what is no finite, non-negative single."""
    if text is None:
        return None
    if _DECIMAL.fullmatch(text):
        value = float(text)
        if math.isfinite(single(value)) and value >= 0:
            return abs(value)
    return otherwise
