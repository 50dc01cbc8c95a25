"""Counting the index: each owner summarises its partition, a reader merges what the owners put.

The reserved tenant appears nowhere in it [IDX-181]. A replica that reports several models has several
statistics; the row with the newest liveness is taken whole, whichever partition it is in [IDX-176,
IDX-203].
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from inferencecache.core.index.single import single
from inferencecache.schemas.aggregate import (
    NEVER,
    Aggregate,
    AggregateReplica,
    AggregateTenant,
    PartitionAggregate,
    ReplicaSummary,
    StatsSummary,
)
from inferencecache.schemas.deltas import ReplicaRow
from inferencecache.schemas.ids import PROBE_TENANT, ReplicaId, TenantId

if TYPE_CHECKING:
    from inferencecache.core.index.view import View  # whoever only merges loads no compiled kernels

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_Who = tuple[TenantId, ReplicaId]


def summarize(view: View) -> PartitionAggregate:
    """One partition's part; a pass over all its holds."""
    holds: Counter[_Who] = Counter()
    newest: dict[_Who, int] = {}
    for name, entries, newest_us in view.holdings():
        who = (name.tenant, name.replica)
        holds[who] += entries
        newest[who] = max(newest.get(who, newest_us), newest_us)
    stats: dict[_Who, StatsSummary] = {}
    for row in view.rows.values():
        if (summary := _stats(row)) is not None:
            who = (row.name.tenant, row.name.replica)
            stats[who] = _chosen(stats.get(who), summary)
    return PartitionAggregate(
        log_epoch=view.log_epoch,
        sequence=view.log.sequence,
        time_us=view.time_us,
        replicas=tuple(
            ReplicaSummary(tenant, replica, holds[tenant, replica], newest.get(who, 0), stats.get(who))
            for who in sorted(holds.keys() | stats.keys())
            for tenant, replica in [who]
            if tenant != PROBE_TENANT
        ),
        keys={
            TenantId(name): tenant.keys
            for name, tenant in view.holders.tenants.items()
            if name != PROBE_TENANT and tenant.keys
        },
    )


def merge(parts: Iterable[PartitionAggregate]) -> Aggregate:
    """The document over all partitions, sorted as its readers expect [IDX-177, IDX-178]."""
    prefixes: Counter[_Who] = Counter()
    events: dict[_Who, int] = {}
    stats: dict[_Who, StatsSummary] = {}
    keys: Counter[TenantId] = Counter()
    for part in parts:
        keys.update(part.keys)
        for replica in part.replicas:
            who = (replica.tenant, replica.replica)
            prefixes[who] += replica.prefix_count
            if replica.prefix_count:
                events[who] = max(events.get(who, replica.last_event_us), replica.last_event_us)
            if replica.stats is not None:
                stats[who] = _chosen(stats.get(who), replica.stats)
    tenants = sorted(keys.keys() | {tenant for tenant, _ in prefixes})
    return Aggregate(
        replicas=tuple(
            _replica(who, prefixes[who], events.get(who), stats.get(who)) for who in sorted(prefixes)
        ),
        tenants=tuple(
            _tenant(tenant, keys[tenant], [row.hit_rate for who, row in stats.items() if who[0] == tenant])
            for tenant in tenants
        ),
        total_prefixes=keys.total(),
    )


class Tier2(NamedTuple):
    """Tokens that were looked up in the second tier, and those of them that it served."""

    hits: int = 0
    queries: int = 0

    @property
    def rate(self) -> float | None:
        """Share served, 0 to 1; None when nothing was looked up [IDX-184]."""
        return min(1.0, max(0.0, self.hits / self.queries)) if self.queries > 0 else None


def tier2_of(replicas: Sequence[AggregateReplica]) -> Tier2:
    """Over these replicas."""
    return Tier2(
        sum(replica.t2_hit_tokens or 0 for replica in replicas),
        sum(replica.t2_query_tokens or 0 for replica in replicas),
    )


def rate_text(rate: float) -> str:
    """The shortest decimal that is this single-precision number: `0.78`, `0`, `1` [IDX-185]."""
    exact = single(rate)
    texts = (f"{exact:.{digits}g}" for digits in range(1, 10))  # nine digits tell any two singles apart
    shortest = next(text for text in texts if single(float(text)) == exact)
    return f"{Decimal(shortest):f}"


def _stats(row: ReplicaRow) -> StatsSummary | None:
    stats = row.stats
    if stats is None:
        return None
    return StatsSummary(
        model=row.name.model,
        live_us=stats.live_us,
        cache_memory_bytes=stats.cache_memory_bytes,
        hit_rate=stats.hit_rate,
        pressure=stats.pressure,
        t2_hit_tokens=stats.t2_hit_tokens,
        t2_query_tokens=stats.t2_query_tokens,
    )


def _chosen(one: StatsSummary | None, other: StatsSummary) -> StatsSummary:
    """The row that stands for the replica: the newest, of equals that of the smallest model."""
    if one is None or (-other.live_us, other.model) < (-one.live_us, one.model):
        return other
    return one


def _replica(
    who: _Who, prefixes: int, last_event_us: int | None, stats: StatsSummary | None
) -> AggregateReplica:
    tenant, replica = who
    reported = stats or StatsSummary(msgspec.UNSET, 0)  # type: ignore[arg-type] # the model is not read
    return AggregateReplica(
        replica_id=replica,
        tenant=tenant or msgspec.UNSET,
        cache_memory_bytes=reported.cache_memory_bytes,
        hit_rate=reported.hit_rate,
        pressure=reported.pressure,
        last_update=_time(stats.live_us) if stats is not None else NEVER,
        prefix_count=prefixes,
        last_event_at=_time(last_event_us) if last_event_us is not None else NEVER,
        stats_reported=stats is not None or msgspec.UNSET,
        t2_hit_tokens=reported.t2_hit_tokens or msgspec.UNSET,
        t2_query_tokens=reported.t2_query_tokens or msgspec.UNSET,
    )


def _tenant(tenant: TenantId, keys: int, hit_rates: list[float]) -> AggregateTenant:
    return AggregateTenant(
        tenant_id=tenant,
        index_entries=keys,
        hit_rate=sum(hit_rates) / len(hit_rates) if hit_rates else 0.0,
        hit_rate_reported=bool(hit_rates) or msgspec.UNSET,
    )


def _time(time_us: int) -> str:
    """RFC 3339 in UTC; a time that no calendar has counts as never."""
    try:
        time = _EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        return NEVER
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z")
