"""One index out of several partitions.

A (tenant, model) lives in one partition a lane, and its replicas are spread over the lanes, so what
the lanes answer is disjoint and is joined by putting it together. Only the cold-start check and the
question whether a tenant is known concern the other partitions [IDX-204].

Each partition has a log time of its own. The join speaks the first lane's; times of the others are
moved by the difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from inferencecache.core.index.reading import Hit, IndexView, Run, Scope
from inferencecache.schemas.deltas import StatsRow
from inferencecache.schemas.ids import AdapterId, ModelId, ReplicaId, TenantId


class Lane(NamedTuple):
    """One lane's view and its log time now."""

    view: IndexView
    now_us: int


class JoinedView:
    """An `IndexView` for one (tenant, model): `lanes` hold it, `partitions` are all there are."""

    def __init__(self, lanes: Sequence[Lane], partitions: Sequence[IndexView]) -> None:
        self.now_us = lanes[0].now_us if lanes else 0
        self._lanes = [(lane.view, lane.now_us - self.now_us) for lane in lanes]
        self._partitions = partitions

    @property
    def time_us(self) -> int:
        return self._lanes[0][0].time_us if self._lanes else 0

    def exact(self, scope: Scope, adapter: AdapterId, hash_: bytes, now_us: int, ttl_us: int) -> list[Hit]:
        joined: list[Hit] = []
        for view, ahead_us in self._lanes:
            hits = view.exact(scope, adapter, hash_, now_us + ahead_us, ttl_us)
            if ahead_us:
                hits = [hit._replace(last_seen_us=hit.last_seen_us - ahead_us) for hit in hits]
            joined += hits
        return joined

    def leading_runs(
        self, scope: Scope, adapter: AdapterId, hashes: Sequence[bytes], now_us: int, ttl_us: int
    ) -> list[Run]:
        joined: list[Run] = []
        for view, ahead_us in self._lanes:
            runs = view.leading_runs(scope, adapter, hashes, now_us + ahead_us, ttl_us)
            if ahead_us:
                runs = [run._replace(oldest_seen_us=run.oldest_seen_us - ahead_us) for run in runs]
            joined += runs
        return joined

    def members(self, scope: Scope) -> Sequence[ReplicaId]:
        if len(self._lanes) == 1:
            return self._lanes[0][0].members(scope)
        return sorted(replica for view, _ in self._lanes for replica in view.members(scope))

    def newcomers(self, scope: Scope, since_us: int) -> Sequence[ReplicaId]:
        return sorted(
            replica
            for view, ahead_us in self._lanes
            for replica in view.newcomers(scope, since_us + ahead_us)
        )

    def stats(self, tenant: TenantId, model: ModelId) -> Mapping[ReplicaId, StatsRow]:
        if len(self._lanes) == 1:
            return self._lanes[0][0].stats(tenant, model)
        return {
            replica: _earlier(row, ahead_us)
            for view, ahead_us in self._lanes
            for replica, row in view.stats(tenant, model).items()
        }

    def is_empty(self) -> bool:
        return all(view.is_empty() for view in self._partitions)

    def has_tenant(self, tenant: TenantId) -> bool:
        return any(view.has_tenant(tenant) for view in self._partitions)

    def has_model(self, tenant: TenantId, model: ModelId) -> bool:
        return any(view.has_model(tenant, model) for view, _ in self._lanes)

    def distinct_keys(self, tenant: TenantId, model: ModelId) -> int:
        """With several lanes a key that is held in two of them counts twice."""
        return sum(view.distinct_keys(tenant, model) for view, _ in self._lanes)


NOTHING: Final = JoinedView((), ())
"""The index of a reader that has not loaded every partition: it reads as empty [WIRE-027, IDX-204]."""


def _earlier(row: StatsRow, by_us: int) -> StatsRow:
    reported_us, live_us = row.reported_us - by_us, row.live_us - by_us
    return msgspec.structs.replace(row, reported_us=reported_us, live_us=live_us) if by_us else row
