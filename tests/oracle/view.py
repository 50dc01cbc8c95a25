"""The questions a lookup asks, answered from naive folds; several folds are one logical index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from inferencecache.core.index.reading import Hit, Run, Scope
from inferencecache.schemas.deltas import StatsRow
from inferencecache.schemas.ids import PROBE_TENANT, ReplicaId
from tests.oracle.keys import key_of
from tests.oracle.model import HoldKey, NaiveFold


class NaiveView:
    """One view over the folds of all partitions and lanes."""

    def __init__(self, *folds: NaiveFold) -> None:
        self.folds = folds

    @property
    def time_us(self) -> int:
        return max((fold.time_us for fold in self.folds), default=0)

    def exact(self, scope: Scope, adapter: str, hash_: bytes, now_us: int, ttl_us: int) -> list[Hit]:
        prefix = (*scope, adapter, *key_of(hash_))
        hits = []
        for fold in self.folds:
            for key, hold in fold.holds.items():
                if key.prefix == prefix and now_us - fold.effective_us(key) < ttl_us:
                    replica, seen_us = ReplicaId(key.replica), fold.effective_us(key)
                    hits.append(Hit(replica, hold.token_count, seen_us, hold.tier))
        return sorted(hits)

    def leading_runs(
        self, scope: Scope, adapter: str, hashes: Sequence[bytes], now_us: int, ttl_us: int
    ) -> list[Run]:
        blocks = [
            {hit.replica: hit for hit in self.exact(scope, adapter, hash_, now_us, ttl_us)}
            for hash_ in hashes
        ]
        runs = []
        for replica in blocks[0] if blocks else ():
            run = []
            for block in blocks:
                if replica not in block:
                    break
                run.append(block[replica])
            oldest_us = min(hit.last_seen_us for hit in run)
            runs.append(Run(replica, len(run), oldest_us, max(hit.tier for hit in run)))
        return runs

    def members(self, scope: Scope) -> list[ReplicaId]:
        return sorted({ReplicaId(key.replica) for key in self._keys() if key[:3] == scope})

    def newcomers(self, scope: Scope, since_us: int) -> list[ReplicaId]:
        members = self.members(scope)
        return sorted(
            ReplicaId(of.replica)
            for fold in self.folds
            for of, row in fold.rows.items()
            if (of.tenant, of.model, row.scheme) == scope
            and row.heard_us > since_us
            and of.replica not in members
        )

    def stats(self, tenant: str, model: str) -> Mapping[ReplicaId, StatsRow]:
        return {
            ReplicaId(of.replica): row.stats
            for fold in self.folds
            for of, row in fold.rows.items()
            if (of.tenant, of.model) == (tenant, model) and row.stats is not None
        }

    def is_empty(self) -> bool:
        return all(key.tenant == PROBE_TENANT for key in self._keys())

    def has_tenant(self, tenant: str) -> bool:
        return any(key.tenant == tenant for key in self._keys())

    def has_model(self, tenant: str, model: str) -> bool:
        return any(key[:2] == (tenant, model) for key in self._keys())

    def has_scope(self, scope: Scope) -> bool:
        return any(key[:3] == scope for key in self._keys())

    def distinct_keys(self, tenant: str, model: str) -> int:
        """Counted by fold: lanes hold disjoint replicas, so a key held in two lanes counts twice."""
        return sum(
            len({key.prefix for key in fold.holds if key[:2] == (tenant, model)}) for fold in self.folds
        )

    def _keys(self) -> Iterator[HoldKey]:
        return (key for fold in self.folds for key in fold.holds)
