"""The object that shows the index as a whole, `cluster-default` [CTL-167..180].

It is written when what it says changes, so that its versions and its watchers stay quiet while the index
does. When no complete aggregate can be had it keeps what it said, and says that this is old.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from inferencecache.controller.aggregate import Source
from inferencecache.controller.kube.recording import utc_now
from inferencecache.controller.kube.writing import Writer
from inferencecache.core.index.aggregate import rate_text
from inferencecache.core.kube.api import KubeApi, RefusedCallError
from inferencecache.core.kube.conditions import (
    Verdict,
    read_timestamp,
    timestamp,
    with_conditions,
)
from inferencecache.core.kube.kinds import CACHE_INDICES, Document, ObjectKey
from inferencecache.schemas.aggregate import NEVER, AggregateReplica, AggregateTenant
from inferencecache.schemas.resources.cache_index import CLUSTER_INDEX

STALE: Final = "Stale"
_KEY: Final = ObjectKey("", CLUSTER_INDEX)
ROOM: Final = 1_000_000
"""Bytes of rows that the object may have: a store that takes 1.5 MB takes them with all else of it."""


class IndexStatus(NamedTuple):
    """`data` is all that is told of an aggregate, without what depends on when it is told; `left_out` counts
    rows that the object has no room for.
    """

    data: Document
    left_out: int

    @property
    def verdict(self) -> Verdict:
        """The condition `Stale` beside it."""
        message = "every partition of the index is counted"
        if self.left_out:
            message += f"; an object has no room for {self.left_out} of the rows"
        return Verdict("False", "AggregateComplete", message)


class CacheIndexProjection:
    """Makes the object if there is none, and tells it."""

    name = "cacheindex"
    is_required = True

    def __init__(self, api: KubeApi, writer: Writer, clock: Callable[[], datetime] = utc_now) -> None:
        self._api = api
        self._writer = writer
        self._clock = clock

    async def prepare(self) -> None:
        """Make the object if there is none. Raises `KubeError`."""
        if await self._api.get(CACHE_INDICES, *_KEY) is not None:
            return
        made = {
            "apiVersion": CACHE_INDICES.api_version,
            "kind": CACHE_INDICES.name,
            "metadata": {"name": CLUSTER_INDEX},
            "spec": {},
        }
        try:
            await self._writer.create(CACHE_INDICES, made)
        except RefusedCallError as error:
            if not error.is_conflict:  # somebody else was quicker
                raise

    async def project(self, source: Source) -> None:
        """Raises `KubeError`."""
        told = index_status(source)
        await self._tell(told.verdict, told.data)

    async def stale(self, problem: str) -> None:
        """Raises `KubeError`."""
        await self._tell(Verdict("True", "AggregateIncomplete", problem), {})

    async def _tell(self, verdict: Verdict, data: Document) -> None:
        document = await self._api.get(CACHE_INDICES, *_KEY)
        if document is not None:
            fields = changed_fields(document, verdict, data, self._clock())
            await self._writer.set_status(CACHE_INDICES, document, fields)


def index_status(source: Source) -> IndexStatus:
    """As much of the aggregate as the object has room for, tenants first."""
    aggregate = source.aggregate
    replicas: dict[str, Document] = {}
    for row in sorted(aggregate.replicas, key=lambda row: (row.replica_id, row.tenant or "")):
        if row.last_update != NEVER:
            replicas[row.replica_id] = _replica(row)  # of two tenants' rows the later stays
    tenants = [_tenant(row) for row in aggregate.tenants]
    shown_tenants, room = _fitting(tenants, ROOM)
    shown_replicas, _ = _fitting(replicas.values(), room)
    data: Document = {
        "observedServer": source.observed_server,
        "prefixes": {"summary": {"total": aggregate.total_prefixes, "hot": aggregate.hot_prefixes}},
        "replicas": shown_replicas,
        "tenants": shown_tenants,
    }
    left_out = len(tenants) - len(shown_tenants) + len(replicas) - len(shown_replicas)
    return IndexStatus(data, left_out)


def _fitting(rows: Iterable[Document], room: int) -> tuple[list[Document], int]:
    """The first rows that fit, and the bytes left."""
    fitting: list[Document] = []
    for row in rows:
        room -= len(msgspec.json.encode(row)) + 1
        if room < 0:
            return fitting, 0
        fitting.append(row)
    return fitting, room


def changed_fields(document: Document, verdict: Verdict, data: Document, now: datetime) -> Document:
    """Fields of the status to set: the data only if it says something new; `lastUpdated` is when it last did
    [CTL-178].
    """
    status = document.get("status") or {}
    conditions = with_conditions(
        status.get("conditions") or (),
        {STALE: verdict},
        generation=document["metadata"]["generation"],
        now=now,
    )
    fields: Document = {"conditions": conditions}
    if any(_telling(data, field) != _telling(status, field) for field in data):
        fields |= data | {"lastUpdated": timestamp(now)}
    return fields


def _telling(status: Mapping[str, Any], field: str) -> Any:
    """A field without what moves though nothing has happened."""
    value = status.get(field)
    if field != "replicas":
        return value
    return [{key: row[key] for key in row if key != "lastUpdate"} for row in value or ()]


def _replica(row: AggregateReplica) -> Document:
    return {
        "id": row.replica_id,
        "tenant": row.tenant or "",
        "cacheMemoryBytes": row.cache_memory_bytes,
        "hitRate": rate_text(row.hit_rate),
        "pressure": rate_text(row.pressure),
        "lastUpdate": timestamp(read_timestamp(row.last_update)),
    }


def _tenant(row: AggregateTenant) -> Document:
    """A rate that nobody reported is absent, unlike one of 0 [CTL-176]."""
    told: Document = {"id": row.tenant_id, "indexEntries": row.index_entries, "memoryUsed": 0}
    if row.hit_rate_reported or row.hit_rate:
        told["hitRate"] = rate_text(row.hit_rate)
    return told
