"""What the index holds, counted: per partition as its owner puts it, and merged as the controller reads it.

`PartitionAggregate` is the value of `IC_AGGREGATE` under `<generation>.<partition>`. `Aggregate` is the
document of all partitions together; its field names are a contract between separately upgraded processes,
so fields are added and never renamed [section 17 of the index rules].
"""

from __future__ import annotations

from typing import Final

import msgspec

from inferencecache.schemas.budgets import PartitionUse
from inferencecache.schemas.ids import LogEpoch, ModelId, ReplicaId, TenantId

NEVER: Final = "0001-01-01T00:00:00Z"
"""How a time that never was is written [IDX-182]."""


class StatsSummary(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One model's statistics of a replica; log time `live_us` decides which model's count [IDX-176]."""

    model: ModelId
    live_us: int
    cache_memory_bytes: int = 0
    hit_rate: float = 0.0
    pressure: float = 0.0
    t2_hit_tokens: int = 0
    t2_query_tokens: int = 0


class ReplicaSummary(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One replica of a tenant in one partition; `last_event_us` is log time, 0 when it holds nothing."""

    tenant: TenantId
    replica: ReplicaId
    prefix_count: int = 0
    last_event_us: int = 0
    stats: StatsSummary | None = None


class PartitionAggregate(msgspec.Struct, frozen=True, rename="camel"):
    """One partition at log time `time_us`; `keys` counts distinct keys by tenant.

    By `use` the cap and quotas are divided over partitions.
    """

    log_epoch: LogEpoch
    sequence: int
    time_us: int
    replicas: tuple[ReplicaSummary, ...] = ()
    keys: dict[TenantId, int] = {}
    use: PartitionUse | None = None


class AggregateReplica(msgspec.Struct, frozen=True, kw_only=True):
    """One (tenant, replica) that is in statistics or in holds. Its statistics mean nothing unless
    `statsReported` [IDX-179].
    """

    replica_id: str = msgspec.field(name="replicaId")
    tenant: str | msgspec.UnsetType = msgspec.UNSET
    cache_memory_bytes: int = msgspec.field(name="cacheMemoryBytes", default=0)
    hit_rate: float = msgspec.field(name="hitRate", default=0.0)
    pressure: float = 0.0
    last_update: str = msgspec.field(name="lastUpdate", default=NEVER)
    prefix_count: int = msgspec.field(name="prefixCount", default=0)
    last_event_at: str = msgspec.field(name="lastEventAt", default=NEVER)
    stats_reported: bool | msgspec.UnsetType = msgspec.field(name="statsReported", default=msgspec.UNSET)
    t2_hit_tokens: int | msgspec.UnsetType = msgspec.field(name="t2HitTokens", default=msgspec.UNSET)
    t2_query_tokens: int | msgspec.UnsetType = msgspec.field(name="t2QueryTokens", default=msgspec.UNSET)


class AggregateTenant(msgspec.Struct, frozen=True, kw_only=True):
    """One tenant with keys or statistics; `memoryUsed` is deprecated and always 0."""

    tenant_id: str = msgspec.field(name="tenantId")
    index_entries: int = msgspec.field(name="indexEntries", default=0)
    hit_rate: float = msgspec.field(name="hitRate", default=0.0)
    hit_rate_reported: bool | msgspec.UnsetType = msgspec.field(name="hitRateReported", default=msgspec.UNSET)
    memory_used: int = msgspec.field(name="memoryUsed", default=0)


class Aggregate(msgspec.Struct, frozen=True, rename="camel"):
    """The whole index; `totalPrefixes` is the sum of the tenants' `indexEntries` [IDX-166]."""

    replicas: tuple[AggregateReplica, ...] = ()
    tenants: tuple[AggregateTenant, ...] = ()
    total_prefixes: int = 0
    hot_prefixes: int = 0
