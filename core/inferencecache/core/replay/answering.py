"""A lookup as the log alone answers it: the work that hints assigned lately is not in the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from inferencecache.core.index.explaining import explain
from inferencecache.core.index.fold import Fold
from inferencecache.core.index.joined import JoinedView, Lane
from inferencecache.core.index.policy import Policies
from inferencecache.core.index.request import RouteRequest
from inferencecache.schemas.explanations import Explanation
from inferencecache.schemas.ids import TenantId
from inferencecache.schemas.policy import PolicySet, ResolvedPolicy, ResolvedQuota


def explain_at(
    folds: Mapping[int, Fold], lanes: Sequence[int], policies: Policies, request: RouteRequest
) -> Explanation:
    """Why the lookup is answered as it is where the folds stand, by partition.

    `lanes` are the partitions that may hold replicas of the request's model; those that are not among the
    folds hold nothing.
    """
    index = JoinedView(
        [Lane(folds[number].view, log_time_us(folds[number])) for number in lanes if number in folds],
        [fold.view for fold in folds.values()],
    )
    return explain(index, policies.policy(request.tenant), request, index.now_us)


def log_time_us(fold: Fold) -> int:
    """Log time at the last message."""
    return fold.clock.message_time(fold.view.log.time_ns)


def policies_at(fold: Fold) -> Policies:
    """What the log itself says of policies: time to live, algorithm and quotas; all else is default."""
    applied = fold.policy
    policies = tuple(
        ResolvedPolicy(row.tenant, "lfu" if row.lfu else "lru", row.ttl_us // 1000)
        for row in applied.policies
    )
    quotas = tuple(ResolvedQuota(TenantId(row.tenant), row.max_keys) for row in applied.quotas)
    return Policies(PolicySet(policies=policies, quotas=quotas))
