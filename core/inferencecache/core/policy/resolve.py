"""From custom resources to the policy set in force, and to what each resource contributes to it.

Policy and quota are separate axes: a policy is about the tenant named like its namespace, a quota
about the tenant that a `CacheTenant` names [IDX-117, IDX-118]. Where several resources are about the
same, the first by namespace and name counts and the others contribute nothing [IDX-121].
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from inferencecache.core.index.policy import DEFAULT_LOAD_WEIGHT, resolve_decimal, resolve_floor
from inferencecache.core.policy.document import milliseconds
from inferencecache.schemas.ids import MAX_ID_BYTES, PROBE_TENANT, TenantId
from inferencecache.schemas.policy import PolicySet, ResolvedPolicy, ResolvedQuota
from inferencecache.schemas.resources import (
    AnyResource,
    CachePolicy,
    CacheTenant,
    ResourceRef,
    Strategy,
    parse_duration,
)

SHORT_TTL_MS: Final = 60_000
"""Three of a sidecar's signs of life (`--alive-interval`, 20 s by default): a shorter TTL may forget what
an idle engine still holds.
"""


class Effect(NamedTuple):
    """What one resource does: `in_force` when it counts, `text` says how or why not, `warning` what
    about it is probably not meant.
    """

    ref: ResourceRef
    in_force: bool
    text: str
    warning: str = ""


class Resolution(NamedTuple):
    """The set in force, and the effect of each policy and tenant, in order of their names."""

    policy_set: PolicySet
    effects: tuple[Effect, ...]


def resolve(resources: Iterable[AnyResource]) -> Resolution:
    """The policies and quotas of all resources; resources of other kinds are passed over.

    Values are not judged: what got past admission is flattened as the rules of policy values say, a
    duration or number that cannot be read becoming the default [CRD-119..127, CTL-194..196].
    """
    ordered = sorted(resources, key=lambda resource: resource.ref)
    policies: dict[str, ResolvedPolicy] = {}
    quotas: dict[TenantId, ResolvedQuota] = {}
    first: dict[object, ResourceRef] = {}
    effects: list[Effect] = []
    for resource in ordered:
        match resource:
            case CachePolicy():
                about = ("policy", resource.metadata.namespace)
                if resource.metadata.namespace and first.setdefault(about, resource.ref) == resource.ref:
                    policies[resource.metadata.namespace] = resolve_policy(resource)
                effects.append(_effect_of_policy(resource, first.get(about)))
            case CacheTenant():
                quota = _quota(resource)
                about = ("quota", resource.spec.tenant_id)
                if quota is not None and first.setdefault(about, resource.ref) == resource.ref:
                    quotas[quota.tenant_id] = quota
                effects.append(_effect_of_tenant(resource, quota, first.get(about)))
    return Resolution(
        PolicySet(policies=tuple(policies.values()), quotas=tuple(quotas.values())), tuple(effects)
    )


def resolve_policy(policy: CachePolicy) -> ResolvedPolicy:
    """One policy, flattened. An absent `minimumMatchedTokens` becomes 0, as on a raw object [CRD-122]."""
    spec = policy.spec
    strategy = spec.strategy or Strategy()
    return ResolvedPolicy(
        namespace=policy.metadata.namespace,
        eviction="lfu" if spec.eviction == "LFU" else "lru",
        eviction_ttl_ms=_ttl_ms(spec.eviction_ttl),
        minimum_prefix_tokens=spec.minimum_prefix_tokens or 0,
        minimum_matched_tokens=spec.minimum_matched_tokens or 0,
        routing_floor_score=resolve_floor(spec.routing_floor_score),
        lookup_timeout_ms=spec.lookup_timeout_ms or 0,
        affinity_routing=_is_enabled(spec.affinity_routing),
        enable_chain_matching=strategy.enable_chain_matching,
        require_chain=strategy.require_chain,
        enable_tenant_hot=strategy.enable_tenant_hot,
        load_balancing=_is_enabled(strategy.load_balancing),
        load_weight=resolve_decimal(strategy.load_weight, DEFAULT_LOAD_WEIGHT),
    )


def _ttl_ms(text: str | None) -> int:
    try:
        return milliseconds(parse_duration(text)) if text is not None else 0
    except ValueError:
        return 0


def _is_enabled(switch: str | None) -> bool | None:
    return None if switch is None else switch == "Enabled"


def _quota(tenant: CacheTenant) -> ResolvedQuota | None:
    """The quota that the object sets; `None` when it sets none or may not [CTL-196, CTL-198]."""
    spec = tenant.spec
    most = spec.quota.max_index_entries if spec.quota is not None else None
    if most is None or not spec.tenant_id or _why_ignored(spec.tenant_id):
        return None
    return ResolvedQuota(spec.tenant_id, max(0, most), spec.isolation_mode or "")


def _why_ignored(id_: TenantId) -> str:
    """Why nobody's quota can be of that id. One too long for any traffic would take the room of others' in
    the set.
    """
    if id_ == PROBE_TENANT:
        return f"tenant {id_}: ignored, reserved"
    if (size := len(id_.encode())) > MAX_ID_BYTES:
        return f"ignored: spec.tenantID has {size} bytes, and no tenant more than {MAX_ID_BYTES}"
    return ""


def _effect_of_policy(policy: CachePolicy, first: ResourceRef | None) -> Effect:
    ref = policy.ref
    if first != ref:
        reason = f"{first.name} comes first in this namespace" if first else "it has no namespace"
        return Effect(ref, False, f"ignored: {reason}")
    ttl_ms = resolve_policy(policy).eviction_ttl_ms
    warning = ""
    if 0 < ttl_ms < SHORT_TTL_MS:
        warning = (
            f"evictionTTL {policy.spec.eviction_ttl} is less than three signs of life of a sidecar (20 s "
            "each by default): what idle engines hold may be forgotten; raise it to 1m or lower "
            "--alive-interval of the sidecars"
        )
    return Effect(ref, True, f"in force for tenant {ref.namespace}", warning)


def _effect_of_tenant(tenant: CacheTenant, quota: ResolvedQuota | None, first: ResourceRef | None) -> Effect:
    ref, id_ = tenant.ref, tenant.spec.tenant_id
    if reason := _why_ignored(id_):
        return Effect(ref, False, reason)
    if quota is None:
        return Effect(ref, True, f"tenant {id_}: no quota")
    if first != ref and first is not None:
        return Effect(ref, False, f"ignored: {first.namespace}/{first.name} comes first for tenant {id_}")
    warning = f"a quota of 0 keeps tenant {id_} out of the index" if quota.max_index_entries == 0 else ""
    return Effect(ref, True, f"tenant {id_}: at most {quota.max_index_entries} distinct keys", warning)
