"""The document that the controller reads, as JSON names it [IDX section 17]."""

from __future__ import annotations

from typing import Any

from inferencecache.schemas.deltas import StatsRow
from inferencecache.schemas.ids import PROBE_TENANT
from tests.oracle.model import NaiveFold

Document = dict[str, Any]
"""Times are log time in µs, 0 for never; what may be omitted is there."""


def naive_aggregate(*folds: NaiveFold) -> Document:
    """One document over all partitions; each (tenant, model) is in one of them."""
    holds = [(key, fold) for fold in folds for key in fold.holds if key.tenant != PROBE_TENANT]
    stats = [
        (of, row.stats)
        for fold in folds
        for of, row in fold.rows.items()
        if row.stats is not None and of.tenant != PROBE_TENANT
    ]
    replicas = {(key.tenant, key.replica) for key, _ in holds} | {(of.tenant, of.replica) for of, _ in stats}
    tenants = {tenant for tenant, _ in replicas}
    rows: list[Document] = []
    for tenant, replica in sorted(replicas):
        reported = [(of.model, row) for of, row in stats if (of.tenant, of.replica) == (tenant, replica)]
        held = [(key, fold) for key, fold in holds if (key.tenant, key.replica) == (tenant, replica)]
        newest = min(reported, key=lambda item: (-item[1].live_us, item[0]))[1] if reported else StatsRow()
        row = {
            "tenant": tenant,
            "replicaId": replica,
            "cacheMemoryBytes": newest.cache_memory_bytes,
            "hitRate": newest.hit_rate,
            "pressure": newest.pressure,
            "lastUpdate": newest.live_us,
            "prefixCount": len(held),
            "lastEventAt": max((fold.holds[key].last_seen_us for key, fold in held), default=0),
            "statsReported": bool(reported),
            "t2HitTokens": newest.t2_hit_tokens,
            "t2QueryTokens": newest.t2_query_tokens,
        }
        rows.append(row)
    tenant_rows: list[Document] = []
    for tenant in sorted(tenants):
        rates = [row["hitRate"] for row in rows if row["tenant"] == tenant and row["statsReported"]]
        tenant_row = {
            "tenantId": tenant,
            "indexEntries": len({key.prefix for key, _ in holds if key.tenant == tenant}),
            "hitRate": sum(rates) / len(rates) if rates else 0.0,
            "hitRateReported": bool(rates),
            "memoryUsed": 0,
        }
        tenant_rows.append(tenant_row)
    return {
        "replicas": rows,
        "tenants": tenant_rows,
        "totalPrefixes": len({key.prefix for key, _ in holds}),
        "hotPrefixes": 0,
    }
