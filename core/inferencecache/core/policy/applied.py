"""What the fold needs of a policy set, as the record an owner appends."""

from __future__ import annotations

from inferencecache.core.index.policy import DEFAULT_TTL_US, Policies, knobs_of
from inferencecache.schemas.ids import OwnerId, TenantId
from inferencecache.schemas.policy import PolicySet
from inferencecache.schemas.records import PolicyApplied, TenantPolicy, TenantQuota


def policy_applied(policy_set: PolicySet, revision: int, owner: OwnerId, owner_epoch: int) -> PolicyApplied:
    """The record of an accepted set; `revision` is that of the bucket.

    Policies that change neither age nor eviction order are left out: to the fold they are none. Equal
    sets give equal records, whatever the order of their items.
    """
    policies = Policies(policy_set)
    rows = []
    for namespace, policy in sorted(policies.policies.items()):
        knobs = knobs_of(policy)
        ttl_us = knobs.ttl_us if knobs.ttl_us != DEFAULT_TTL_US else 0
        if ttl_us or knobs.lfu:
            rows.append(TenantPolicy(TenantId(namespace), ttl_us, knobs.lfu))
    quotas = [TenantQuota(tenant, most) for tenant, most in sorted(policies.quotas.items())]
    return PolicyApplied(owner, owner_epoch, revision, tuple(rows), tuple(quotas))
