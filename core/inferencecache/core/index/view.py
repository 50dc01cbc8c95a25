"""One partition's replicated state: what routers hold, and the base of what indexers fold.

A view changes only by the changes of deltas (`apply`), or by the fold through the same methods, so both
ends stand at the same digest after the same range of the log. It answers the questions of `reading`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, TypeVar

import msgspec
import numpy as np

from inferencecache.core.index.damage import damage_of
from inferencecache.core.index.digest import MASK, row_hash
from inferencecache.core.index.holders import Holder, HolderKind, Holders, Replica
from inferencecache.core.index.kernels import Difference
from inferencecache.core.index.keys import Keys, chain_keys, key_of
from inferencecache.core.index.reading import Hit, Run, Scope
from inferencecache.core.index.table import AccessColumns, Columns, Counts, HoldTable, RemovedColumns
from inferencecache.schemas.deltas import (
    AnyChange,
    Delta,
    Held,
    HolderCleared,
    HolderDoubted,
    HolderName,
    Released,
    ReplicaForgotten,
    ReplicaName,
    ReplicaRow,
    StatsRow,
    TimeStarted,
)
from inferencecache.schemas.ids import (
    PROBE_TENANT,
    AdapterId,
    LogEpoch,
    ModelId,
    OwnerId,
    ReplicaId,
    TenantId,
)
from inferencecache.schemas.positions import Position

START: Final = Position()
_NO_STATS: Final[Mapping[ReplicaId, StatsRow]] = MappingProxyType({})
_NO_KEYSPACE: Final = -1

_Value = TypeVar("_Value")

Part = tuple[Holder, Keys]
"""Keys of one holder."""


class Holding(NamedTuple):
    """How many keys a holder holds, and when it last stored one."""

    name: HolderName
    entries: int
    newest_us: int


class DeltaMismatchError(Exception):
    """A delta does not continue the view, which is to be loaded anew.

    `kind`: `hole`, it begins elsewhere than the view ends; `epoch`, it is of another log epoch;
    `damage`, its changes make no sense; `digest`, they led to another state than the owner's. After the
    last the view is not `proven` any more; the others leave it as it was.
    """

    def __init__(self, kind: Literal["hole", "epoch", "damage", "digest"], text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind: Final = kind


class View:
    """The holds and replica rows of one partition at `log`, with the digest that proves them.

    `capacity` is the number of holds to make room for; more cost a pause. `delta` is for the reader of
    deltas to keep its place in. `opened` and `closed` are told of a holder's first and last hold.
    """

    def __init__(self, capacity: int = 1 << 16, *, is_indexer: bool = False) -> None:
        self.log_epoch = LogEpoch("")
        self.owner = OwnerId("")
        self.owner_epoch = 0
        self.log = START
        self.delta = START
        self.opened: Callable[[Holder], None] = _ignore
        self.closed: Callable[[Holder], None] = _ignore
        self._capacity = capacity
        self._is_indexer = is_indexer
        self.empty()

    def empty(self) -> None:
        """Forget what is held, all rows and log time: a log epoch begins."""
        self.time_us = 0
        self.proven = True
        """Was every delta's digest that of the state it led to? If not, what is held here is unknown."""
        self.digest = 0
        self.access_digest = 0
        self.holders = Holders()
        self.table = HoldTable(self._capacity, is_indexer=self._is_indexer)

    # ---------------------------------------------------------------------------------- numbers

    @property
    def entries(self) -> int:
        """Storage entries, those of the reserved tenant not counted [IDX-188]."""
        probe = self.holders.tenants.get(PROBE_TENANT)
        return len(self.table) - (probe.entries if probe is not None else 0)

    @property
    def rows(self) -> Mapping[ReplicaName, ReplicaRow]:
        """The rows of all replicas that have one."""
        replicas = self.holders.replicas.values()
        return {replica.name: replica.row for replica in replicas if replica.row is not None}

    def holdings(self) -> Iterator[Holding]:
        """What each holder holds, in any order; a pass over all holds."""
        newest_us = self.table.newest_us().tolist()
        for number, holder in self.holders.by_number.items():
            yield Holding(holder.name, holder.entries, newest_us[number])

    # ---------------------------------------------------------------------------------- answers

    def exact(self, scope: Scope, adapter: AdapterId, hash_: bytes, now_us: int, ttl_us: int) -> list[Hit]:
        width, key = key_of(hash_)
        keyspace = self.holders.keyspaces.get((*scope, adapter, width))
        if keyspace is None:
            return []
        ids = self.holders.replica_ids
        hits = self.table.exact(keyspace.number, keyspace.seed, key, now_us - ttl_us)
        return [Hit(ids[replica], tokens, seen_us, tier) for replica, tokens, seen_us, tier in hits]

    def leading_runs(
        self, scope: Scope, adapter: AdapterId, hashes: Sequence[bytes], now_us: int, ttl_us: int
    ) -> list[Run]:
        if not hashes:
            return []
        widths, keys = chain_keys(hashes)
        spaces = [self.holders.keyspaces.get((*scope, adapter, width)) for width in widths]
        if spaces[0] is None:
            return []
        numbers = np.array([_NO_KEYSPACE if space is None else space.number for space in spaces], np.int32)
        seeds = np.array([0 if space is None else space.seed for space in spaces], np.uint64)
        ids = self.holders.replica_ids
        runs = self.table.leading_runs(numbers, seeds, keys, now_us - ttl_us)
        return [Run(ids[replica], blocks, oldest_us, tier) for replica, blocks, oldest_us, tier in runs]

    def members(self, scope: Scope) -> Sequence[ReplicaId]:
        domain = self.holders.domains.get(scope)
        return domain.members if domain is not None else ()

    def newcomers(self, scope: Scope, since_us: int) -> Sequence[ReplicaId]:
        model = self.holders.models.get((scope.tenant, scope.model))
        if model is None:
            return ()
        domain = self.holders.domains.get(scope)
        return sorted(
            replica
            for replica, row in model.begun.items()
            if not (domain is not None and domain.has(replica))
            and row.scheme == scope.scheme
            and row.heard_us > since_us
        )

    def stats(self, tenant: TenantId, model: ModelId) -> Mapping[ReplicaId, StatsRow]:
        known = self.holders.models.get((tenant, model))
        return known.stats if known is not None else _NO_STATS

    def is_empty(self) -> bool:
        return self.entries == 0

    def has_tenant(self, tenant: TenantId) -> bool:
        known = self.holders.tenants.get(tenant)
        return known is not None and known.entries > 0

    def has_model(self, tenant: TenantId, model: ModelId) -> bool:
        return self.distinct_keys(tenant, model) > 0

    def distinct_keys(self, tenant: TenantId, model: ModelId) -> int:
        known = self.holders.models.get((tenant, model))
        return known.keys if known is not None else 0

    # ---------------------------------------------------------------------------------- changes

    def hold(
        self, replica: Replica, kind: HolderKind, keys: Keys, token_counts: Counts, tier: int, seen_us: int
    ) -> Holder | None:
        """The replica holds these keys, certainly. Answers who holds them; None when there are no keys."""
        if not len(keys):
            return None
        holder = replica.holders.get(kind)
        if holder is None:
            holder = self._open(replica, kind)
        self._change(holder, self.table.hold(holder.number, keys, token_counts, tier, seen_us))
        return holder

    def release(self, holder: Holder, keys: Keys) -> int:
        """The holder holds these keys no longer; answers how many it did hold."""
        return -self._change(holder, self.table.release(holder.number, keys))

    def clear(self, holder: Holder) -> int:
        """The holder holds nothing any more; answers how many keys it did hold."""
        return -self._change(holder, self.table.clear(holder.number))

    def doubt(self, holder: Holder) -> Keys:
        """All that the holder holds now is uncertain; answers the keys that were not."""
        keys, difference = self.table.doubt(holder.number)
        self._add(difference)
        return keys

    def put_row(self, row: ReplicaRow) -> None:
        """The replica has this row from now on."""
        self.set_row(self.holders.replica(row.name), row)

    def forget_row(self, name: ReplicaName) -> None:
        """The replica has no row any more; one that has none is no error."""
        replica = self.holders.replicas.get((name.tenant, name.model, name.replica))
        if replica is not None:
            self.set_row(replica, None)
            self.holders.forget(replica)

    def start_time(self, time_us: int) -> None:
        """Log time begins: every time recorded so far becomes this one, of holds and of rows."""
        self.time_us = time_us
        self._add(self.table.restamp(time_us))
        for replica in self.holders.replicas.values():
            if replica.row is not None:
                self.set_row(replica, _restamped(replica.row, time_us))

    def open_holder(self, name: HolderName) -> Holder:
        """The holder of that name, for a loader that gives it something to hold."""
        replica = self.holders.replica(ReplicaName(name.tenant, name.model, name.replica))
        kind = (name.scheme, name.adapter, name.width)
        return replica.holders.get(kind) or self._open(replica, kind)

    def load(self, owners: Sequence[Holder], numbers: Counts, columns: Columns) -> None:
        """Take columns of holds, whose owners index `owners` and, for the table, `numbers`."""
        new = np.zeros(len(owners), np.int64)
        new_keys = np.zeros(len(owners), np.int64)
        self._add(self.table.load(numbers, columns, new, new_keys))
        for index in np.flatnonzero(new).tolist():
            self._count(owners[index], int(new[index]), int(new_keys[index]))

    def remove(self, columns: RemovedColumns, difference: Difference) -> list[Part]:
        """Account for holds that the table removed; answers them by holder."""
        self._add(difference)
        order = np.argsort(columns.owners, kind="stable")
        owners, keys, vanished = columns.owners[order], columns.keys[order], columns.vanished[order]
        starts = np.flatnonzero(np.concatenate(([True], owners[1:] != owners[:-1])))
        gone = np.add.reduceat(vanished, starts).tolist()
        numbers = owners[starts].tolist()
        parts = []
        for number, gone_keys, (start, end) in zip(
            numbers, gone, pairwise([*starts.tolist(), len(owners)]), strict=True
        ):
            holder = self.holders.by_number[number]
            parts.append((holder, keys[start:end]))
            self._count(holder, start - end, -gone_keys)
        return parts

    def credit(self, columns: AccessColumns) -> None:
        """Add to access counts, whose owners are the table's numbers."""
        self._add(self.table.credit(*columns))

    def set_row(self, replica: Replica, row: ReplicaRow | None) -> None:
        """As `put_row` and `forget_row`, of a replica that is at hand; it stays known."""
        hash_ = row_hash(row) if row is not None else 0
        self.digest = (self.digest + hash_ - replica.row_hash) & MASK
        before_us, before = replica.alive_us, replica.stats
        had_begun = replica.row is not None and bool(replica.row.scheme)
        replica.row, replica.row_hash = row, hash_
        if replica.alive_us != before_us:
            for holder in replica.holders.values():
                self.table.set_alive(holder.number, replica.alive_us)
        name, stats = replica.name, replica.stats
        has_begun = row is not None and bool(row.scheme)
        if stats is before and not (has_begun or had_begun):
            return
        model = self.holders.model(name.tenant, name.model)
        _put(model.stats, name.replica, stats)
        _put(model.begun, name.replica, row if has_begun else None)
        self.holders.forget_model(model)

    def _open(self, replica: Replica, kind: HolderKind) -> Holder:
        holder = self.holders.open(replica, kind)
        keyspace = holder.keyspace
        number = self.table.open_holder(
            holder.identity, keyspace.seed, keyspace.number, replica.number, replica.alive_us
        )
        self.holders.enter(holder, number)
        self.opened(holder)
        return holder

    def _count(self, holder: Holder, entries: int, keys: int) -> None:
        """The holder holds so many more, and so many more keys are held by anybody."""
        if entries:
            model = holder.keyspace.domain.model
            model.keys += keys
            model.tenant.keys += keys
            model.tenant.entries += entries
            before = holder.entries
            holder.entries = before + entries
            if not before:
                holder.keyspace.domain.join(holder.replica.name.replica)
            elif not holder.entries:
                holder.keyspace.domain.leave(holder.replica.name.replica)
                self.closed(holder)
                self.table.close_holder(holder.number)
                self.holders.close(holder)

    def _change(self, holder: Holder, difference: Difference) -> int:
        """The table changed what the holder holds; answers how many holds came."""
        self._add(difference)
        self._count(holder, difference[0], difference[1])
        return difference[0]

    def _add(self, difference: Difference) -> None:
        self.digest = (self.digest + difference[2]) & MASK
        self.access_digest = (self.access_digest + difference[3]) & MASK

    # ----------------------------------------------------------------------------------- deltas

    def apply(self, delta: Delta) -> None:
        """Move from the delta's `from_` to its `to`. Raises `DeltaMismatchError`."""
        if not delta.emptied:
            self._check_continues(delta)
        damage = damage_of(delta)
        if damage is not None:
            raise DeltaMismatchError("damage", damage)
        if delta.emptied:
            self.empty()
        for change in delta.changes:
            self._apply(delta.holders, change)
        if self.digest != delta.digest:
            self.proven = False
            raise DeltaMismatchError("digest", f"{self.digest:016x}, the delta says {delta.digest:016x}")
        self.log_epoch = delta.log_epoch
        self.owner, self.owner_epoch = delta.owner, delta.owner_epoch
        self.log = delta.to
        self.time_us = delta.time_us

    def _check_continues(self, delta: Delta) -> None:
        if (delta.from_.sequence, delta.from_.time_ns) != (self.log.sequence, self.log.time_ns):
            text = f"a delta from {delta.from_.sequence}, the view is at {self.log.sequence}"
            raise DeltaMismatchError("hole", text)
        if self.log_epoch not in ("", delta.log_epoch):
            text = f"a delta of {delta.log_epoch}, the view is of {self.log_epoch}"
            raise DeltaMismatchError("epoch", text)

    def _apply(self, names: Sequence[HolderName], change: AnyChange) -> None:
        match change:
            case Held():
                self._apply_held(names[change.holder], change)
            case ReplicaRow():
                self.put_row(change)
            case ReplicaForgotten():
                self.forget_row(change.name)
            case TimeStarted():
                self.start_time(change.time_us)
            case Released() | HolderCleared() | HolderDoubted():
                holder = self.holders.find(names[change.holder])
                if holder is None:
                    return
                if isinstance(change, Released):
                    self.release(holder, np.frombuffer(change.keys, np.uint64))
                elif isinstance(change, HolderCleared):
                    self.clear(holder)
                else:
                    self.doubt(holder)

    def _apply_held(self, name: HolderName, change: Held) -> None:
        keys = np.frombuffer(change.keys, np.uint64)
        token_counts = np.frombuffer(change.token_counts, np.int32)
        replica = self.holders.replica(ReplicaName(name.tenant, name.model, name.replica))
        kind = (name.scheme, name.adapter, name.width)
        if self.hold(replica, kind, keys, token_counts, change.tier, change.last_seen_us) is None:
            self.holders.forget(replica)


def _put(values: dict[ReplicaId, _Value], replica: ReplicaId, value: _Value | None) -> None:
    if value is not None:
        values[replica] = value
    else:
        values.pop(replica, None)


def _ignore(holder: Holder) -> None:
    """Nobody wants to know."""


def _restamped(row: ReplicaRow, time_us: int) -> ReplicaRow:
    stats = row.stats
    if stats is not None:
        stats = msgspec.structs.replace(stats, reported_us=time_us, live_us=time_us)
    alive_us = time_us if row.alive_us else 0
    return msgspec.structs.replace(row, alive_us=alive_us, heard_us=time_us, stats=stats)
