"""The document that the controller reads, as JSON writes it [IDX section 17]."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from inferencecache.core.index.aggregate import merge, summarize
from inferencecache.core.index.view import View
from inferencecache.schemas.deltas import StatsRow
from inferencecache.schemas.ids import PROBE_TENANT
from tests.oracle.model import NaiveFold

Document = dict[str, Any]


def naive_aggregate(*folds: NaiveFold) -> Document:
    """One document over all partitions."""
    holds = [(key, fold) for fold in folds for key in fold.holds if key.tenant != PROBE_TENANT]
    stats = [
        (of, row.stats)
        for fold in folds
        for of, row in fold.rows.items()
        if row.stats is not None and of.tenant != PROBE_TENANT
    ]
    names = {(key.tenant, key.replica) for key, _ in holds} | {(of.tenant, of.replica) for of, _ in stats}
    replicas: list[Document] = []
    rates: dict[str, list[float]] = {tenant: [] for tenant, _ in names}
    for tenant, replica in sorted(names):
        reported = [(of.model, row) for of, row in stats if (of.tenant, of.replica) == (tenant, replica)]
        held = [(key, fold) for key, fold in holds if (key.tenant, key.replica) == (tenant, replica)]
        newest = min(reported, key=lambda item: (-item[1].live_us, item[0]))[1] if reported else StatsRow()
        if reported:
            rates[tenant].append(newest.hit_rate)
        row = {
            "tenant": tenant,
            "replicaId": replica,
            "cacheMemoryBytes": newest.cache_memory_bytes,
            "hitRate": newest.hit_rate,
            "pressure": newest.pressure,
            "lastUpdate": _time(newest.live_us if reported else None),
            "prefixCount": len(held),
            "lastEventAt": _time(max((fold.holds[key].last_seen_us for key, fold in held), default=None)),
            "statsReported": bool(reported),
            "t2HitTokens": newest.t2_hit_tokens,
            "t2QueryTokens": newest.t2_query_tokens,
        }
        replicas.append(_without(row, "tenant", "statsReported", "t2HitTokens", "t2QueryTokens"))
    tenants = [
        {
            "tenantId": tenant,
            "indexEntries": len({key.prefix for key, _ in holds if key.tenant == tenant}),
            "hitRate": sum(rates[tenant]) / len(rates[tenant]) if rates[tenant] else 0.0,
            "hitRateReported": bool(rates[tenant]),
            "memoryUsed": 0,
        }
        for tenant in sorted(rates)
    ]
    document = {
        "replicas": replicas,
        "tenants": [_without(row, "hitRateReported") for row in tenants],
        "totalPrefixes": len({key.prefix for key, _ in holds}),
        "hotPrefixes": 0,
    }
    return rounded(document)


def product_aggregate(*views: View) -> Document:
    """The product's document over all partitions."""
    document: Document = msgspec.json.decode(msgspec.json.encode(merge(map(summarize, views))))
    return rounded(document)


def _without(row: Document, *names: str) -> Document:
    """The row without those of the named fields that are empty."""
    return {name: value for name, value in row.items() if value or name not in names}


def rounded(document: Document) -> Document:
    """Means depend on the order of a sum in their last digits only."""
    for row in document["tenants"]:
        row["hitRate"] = round(row["hitRate"], 9)
    return document


def _time(time_us: int | None) -> str:
    never = "0001-01-01T00:00:00Z"
    if time_us is None:
        return never
    try:
        time = datetime(1970, 1, 1) + timedelta(microseconds=time_us)  # noqa: DTZ001 - UTC throughout
    except OverflowError:
        return never
    return time.isoformat(timespec="microseconds") + "Z"
