"""The fold: what the records of one partition's log make of its state, one message after the other.

The state is a pure function of the log (or of a snapshot and the log behind it): no clock, no settings,
no chance. A message of a sidecar is judged first: it counts when its incarnation is the one that began
last and its sequence is the next. Then its records apply in list order, and the batch as a whole is
followed by the tenant's quota and the global cap [IDX-16]. What the fold cannot do itself it asks for in
`Folded.wanted`; only the owner's shell sends that.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Final, Literal, NamedTuple

import msgspec

from inferencecache.core.index.changes import MAX_BYTES, ChangeLog
from inferencecache.core.index.clock import SECOND_US, LogClock
from inferencecache.core.index.eviction import DEFAULT_SWEEP_S, Begun, Eviction
from inferencecache.core.index.holders import Replica
from inferencecache.core.index.keys import MalformedHashesError, key_array
from inferencecache.core.index.lives import Life, Lives
from inferencecache.core.index.observing import Observer
from inferencecache.core.index.view import View
from inferencecache.core.index.writer import Writer, changed
from inferencecache.schemas.deltas import ReplicaName, ReplicaRow, StatsRow
from inferencecache.schemas.ids import PROBE_TENANT, ModelId, ReplicaId, TenantId
from inferencecache.schemas.positions import Position
from inferencecache.schemas.records import (
    TIER_COLDEST,
    TIER_T1,
    Alive,
    Batch,
    Begin,
    Budget,
    Claim,
    Cleared,
    Complete,
    Credit,
    DecodedBatch,
    Event,
    Evicted,
    Gap,
    Gone,
    PolicyApplied,
    Stats,
    Stored,
    Tick,
)
from inferencecache.schemas.requests import ResyncRequest
from inferencecache.schemas.senders import ControlSender, ReplicaSender, Sender

REMEMBER_GONE_US: Final = 600 * SECOND_US
"""How long the uid of a deleted pod, and its incarnation, are remembered against late messages."""
REPLICA_UPDATED: Final = 3
"""`CacheEvent.Type` of the event that says a replica with statistics is alive [IDX-48]."""

Dropped = Literal[
    "undecodable", "reserved", "no_incarnation", "unknown", "fenced", "gone", "duplicate", "jump"
]
"""Why a whole batch did not count. `unknown`: no `Begin` of its incarnation in reach; `fenced`: another
incarnation is current; `gone`: its pod is deleted; `jump`: a batch before it is missing."""


_TIMED: Final = (Stored, Stats, Event)


class LogMessage(NamedTuple):
    """One message of an events stream; `batch` is None when its payload is no batch at all."""

    position: Position
    sender: Sender
    batch: DecodedBatch | None


class ResyncWanted(NamedTuple):
    """A request that a producer should get."""

    tenant: TenantId
    model: ModelId
    replica: ReplicaId
    request: ResyncRequest


class Folded(NamedTuple):
    """What came of a message.

    `wanted`: what to ask of producers. `dropped`: why the batch did not count. Records left out of it:
    `malformed` ones, `misplaced` ones that its sender may not send, `unknown` kinds, and `outdated` ones
    of an owner that is not the last claim's.
    """

    wanted: tuple[ResyncWanted, ...] = ()
    dropped: Dropped | None = None
    malformed: int = 0
    misplaced: int = 0
    unknown: int = 0
    outdated: int = 0


class Fold:
    """A view and what only indexers keep: incarnations, remembered uids, clock, policy and budgets."""

    def __init__(
        self,
        capacity: int = 1 << 16,
        *,
        max_change_bytes: int = MAX_BYTES,
        observer: Observer | None = None,
    ) -> None:
        self.view = View(capacity, is_indexer=True)
        self.changes = ChangeLog(max_bytes=max_change_bytes)
        self._write = Writer(self.view, self.changes, observer)
        self._eviction = Eviction(self._write)
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        self.clock = LogClock()
        self.lives = Lives()
        self.gone_uids: dict[str, int] = {}
        self.policy = PolicyApplied(self.view.owner, 0, 0)
        self.budget = Budget(self.view.owner, 0, -1)

    @property
    def evictions(self) -> Counter[tuple[str, str]]:
        """Evicted holds by (algorithm, reason), since this process began."""
        return self._eviction.evictions

    @property
    def tenant_evictions(self) -> Counter[str]:
        """Keys evicted for a quota by tenant, since this process began."""
        return self._eviction.tenant_evictions

    @property
    def begun(self) -> Begun:
        """Enforcements of quotas and of the cap that go on at the next tick."""
        return self._eviction.begun

    def recall(
        self,
        clock: LogClock,
        gone_uids: dict[str, int],
        policy: PolicyApplied,
        budget: Budget,
        begun: Begun,
    ) -> None:
        """Go on with what a snapshot kept."""
        self.clock = clock
        self.gone_uids = gone_uids
        self.policy = policy
        self.budget = budget
        self._eviction.apply_policy(policy)
        self._eviction.apply_budget(budget)
        self._eviction.begun = begun

    def fold(self, message: LogMessage) -> Folded:
        """Take the next message of the log."""
        position, sender, decoded = message
        if decoded is None:
            folded = Folded(dropped="undecodable")
        elif isinstance(sender, ControlSender):
            folded = self._fold_control(sender, position, decoded)
        else:
            folded = self._fold_replica(sender, position, decoded)
        self._write.close(position)
        return folded

    # ---------------------------------------------------------------------------- about a replica

    def _fold_replica(self, sender: ReplicaSender, position: Position, decoded: DecodedBatch) -> Folded:
        name = ReplicaName(sender.tenant, sender.model, sender.replica)
        batch = decoded.batch
        if sender.channel == "e":
            dropped, request = self._judge(name, position, batch)
            if dropped is not None:
                wanted = (ResyncWanted(name.tenant, name.model, name.replica, request),) if request else ()
                return Folded(wanted, dropped)
        message_us = self.clock.message_time(position.time_ns)
        replica = self.view.holders.replica(name)
        row = heard = changed(replica.row or ReplicaRow(name), heard_us=message_us)
        self._write.set_row(replica, heard)
        observed_us = self.clock.observed(message_us, batch.age_ms)
        is_literal = sender.channel == "g"
        malformed, misplaced, is_update, stored = decoded.malformed, 0, False, 0
        for record in batch.records:
            time_us = observed_us
            if is_literal and isinstance(record, _TIMED) and record.timestamp_us:
                time_us = self.clock.literal(record.timestamp_us, observed_us)
            match record:
                case Stored():
                    malformed += not self._store(replica, record, time_us)
                    is_update = True
                    stored += len(record.token_counts) // 4
                case Evicted():
                    malformed += not self._evict(replica, record)
                case Stats():
                    row = changed(row, stats=_stats_row(record, time_us))
                    is_update = True
                case Cleared():
                    self._write.clear(replica, "cleared")
                    row = changed(row, stats=None)
                case Event():
                    if record.type == REPLICA_UPDATED and row.stats is not None:
                        row = changed(row, stats=msgspec.structs.replace(row.stats, live_us=time_us))
                case Alive() if sender.channel == "e":
                    row = changed(row, alive_us=time_us)
                case Gap() if sender.channel == "e":
                    self._write.doubt(replica, "gap")
                case Complete() if sender.channel == "e":
                    self._write.release_uncertain(replica)
                case Begin() if sender.channel == "e":
                    pass
                case _:
                    misplaced += 1
        if row is not heard:
            self._write.set_row(replica, row)
        if is_update:
            self._eviction.enforce(name.tenant, stored)
        return Folded((), None, malformed, misplaced, decoded.unknown)

    def _store(self, replica: Replica, record: Stored, seen_us: int) -> bool:
        """Answers whether the record made sense; one without a scheme does, but is empty [IDX-21]."""
        if record.scheme == "":
            return True
        count, rest = divmod(len(record.token_counts), 4)
        try:
            width, keys = key_array(record.width, record.hashes, count)
        except MalformedHashesError:
            return False
        if rest or len(keys) != count:
            return False
        kind = (record.scheme, record.adapter, width)
        self._write.hold(replica, kind, keys, record.token_counts, _stored_tier(record.tier), seen_us)
        return True

    def _evict(self, replica: Replica, record: Evicted) -> bool:
        """Answers whether the record made sense. An empty adapter means every one [IDX-45]."""
        try:
            # All empty hashes are one key, so that no count, however large, takes room.
            width, keys = key_array(record.width, record.hashes, min(record.count, 1))
        except MalformedHashesError:
            return False
        for holder in list(replica.holders.values()):
            of = holder.name
            if of.width == width and record.adapter in {"", of.adapter}:
                self._write.release(holder, keys, "evicted")
        return True

    # ----------------------------------------------------------------------------- incarnations

    def _judge(
        self, name: ReplicaName, position: Position, batch: Batch
    ) -> tuple[Dropped | None, ResyncRequest | None]:
        """Does a sidecar's batch count? Answers why not, and what to tell its sender."""
        incarnation = batch.incarnation
        if name.tenant == PROBE_TENANT:
            return "reserved", None
        if not incarnation:
            return "no_incarnation", None
        life = self.lives.get(name)
        if life is None or incarnation != life.incarnation:
            begin = batch.records[0] if batch.records else None
            if isinstance(begin, Begin):
                if begin.pod_uid in self.gone_uids:
                    return "gone", None
                self._begin(name, position, batch, begin)
                return None, None
            if life is None:
                return "unknown", ResyncRequest("resync", incarnation)
            return "fenced", ResyncRequest("fenced", incarnation, life.begun_at)
        if life.gone_us is not None:
            return "gone", None
        if batch.sequence <= life.sequence:
            return "duplicate", None
        if batch.sequence > life.sequence + 1:
            self._write.doubt(self.view.holders.replica(name), "jump")
            return "jump", ResyncRequest("resync", incarnation, life.begun_at)
        life.sequence = batch.sequence
        return None, None

    def _begin(self, name: ReplicaName, position: Position, batch: Batch, begin: Begin) -> None:
        """Another incarnation: earlier holds go, unless it certainly reads the same engine process."""
        life, begun_at = self.lives.get(name), position.sequence
        replica = self.view.holders.replica(name)
        row = ReplicaRow(name, batch.incarnation, begun_at, stats=replica.stats, scheme=begin.scheme)
        self._write.set_row(replica, row)
        if begin.engine and life is not None and begin.engine == life.engine:
            self._write.doubt(replica, "same_engine")
        else:
            self._write.clear(replica, "replaced")
        self.lives[name] = Life(batch.incarnation, begun_at, batch.sequence, begin.pod_uid, begin.engine)

    # ---------------------------------------------------------------------- about the partition

    def _fold_control(self, sender: ControlSender, position: Position, decoded: DecodedBatch) -> Folded:
        malformed, misplaced, outdated = decoded.malformed, 0, 0
        for record in decoded.batch.records:
            match sender.role, record:
                case "o", Claim():
                    self._claim(record, position)
                case "o", Tick() | PolicyApplied() | Budget() if not self._is_owners(record):
                    outdated += 1
                case "o", Tick():
                    self._tick(record, position)
                case "o", PolicyApplied():
                    self.policy = record
                    self._eviction.apply_policy(record)
                case "o", Budget() if record.division < self.budget.division:
                    outdated += 1
                case "o", Budget():
                    self.budget = record
                    self._eviction.apply_budget(record)
                case "c", Gone():
                    self._gone(record, position)
                case "r", Credit():
                    malformed += self._eviction.credit(record)
                case _:
                    misplaced += 1
        return Folded((), None, malformed, misplaced, decoded.unknown, outdated)

    def _is_owners(self, record: Tick | PolicyApplied | Budget) -> bool:
        """Is the record of the last claim's owner? A paused former owner's are not."""
        view = self.view
        return bool(view.owner) and (record.owner, record.owner_epoch) == (view.owner, view.owner_epoch)

    def _claim(self, claim: Claim, position: Position) -> None:
        """The last claim wins; one of another log epoch empties the partition for everybody."""
        view = self.view
        if view.log_epoch and view.log_epoch != claim.log_epoch:
            self._write.empty()
            self._eviction.restart()
            self._begin_epoch()
        view.log_epoch = claim.log_epoch
        view.owner = claim.owner
        view.owner_epoch = position.sequence

    def _tick(self, tick: Tick, position: Position) -> None:
        starts = self.clock.tick(tick.wall_us, position.time_ns)
        self.view.time_us = time_us = self.clock.time_us
        interval_s = tick.sweep_interval_s if tick.sweep_interval_s > 0 else DEFAULT_SWEEP_S
        if starts:
            self._write.start_time(time_us)
            self.gone_uids = dict.fromkeys(self.gone_uids, time_us)
            for life in self.lives.values():
                life.gone_us = None if life.gone_us is None else time_us
        self._eviction.sweep(time_us, interval_s, (self.clock.ticks - 1) % interval_s)
        self._forget_rows(time_us)
        self._forget_gone(time_us)
        self._eviction.go_on()

    def _forget_rows(self, now_us: int) -> None:
        """Statistics go when nothing was heard of them for one time to live [IDX-149]; so does the row, and
        with it the incarnation, of a replica that has none and holds nothing.
        """
        for replica in list(self.view.holders.replicas.values()):
            row, ttl_us = replica.row, self._eviction.ttl_us(replica.name.tenant)
            if row is None:
                continue
            if row.stats is not None and now_us - row.stats.live_us >= ttl_us:
                self._write.set_row(replica, changed(row, stats=None))
            if replica.stats is None and not replica.holders and now_us - row.heard_us >= ttl_us:
                self._write.forget_row(replica)
                life = self.lives.get(replica.name)
                if life is not None and life.gone_us is None:
                    del self.lives[replica.name]

    def _forget_gone(self, now_us: int) -> None:
        """A deleted pod is remembered for a while."""
        for uid, gone_us in list(self.gone_uids.items()):
            if now_us - gone_us >= REMEMBER_GONE_US:
                del self.gone_uids[uid]
        for name, life in list(self.lives.items()):
            if life.gone_us is not None and now_us - life.gone_us >= REMEMBER_GONE_US:
                del self.lives[name]

    def _gone(self, gone: Gone, position: Position) -> None:
        """A pod is deleted: it and its ranks hold nothing any more, in every model of the tenant."""
        if not gone.pod_uid:
            return
        gone_us = self.clock.message_time(position.time_ns)
        self.gone_uids.pop(gone.pod_uid, None)
        self.gone_uids[gone.pod_uid] = gone_us
        for name, life in self.lives.of_pod(gone.pod_uid):
            if name.tenant == gone.tenant and _is_rank_of(name.replica, gone.replica):
                life.gone_us = gone_us
                replica = self.view.holders.replica(name)
                self._write.clear(replica, "gone")
                self._write.forget_row(replica)


def _stored_tier(tier: int) -> int:
    """As it is kept: unspecified is T1, negative the coldest [IDX-35, IDX-36]."""
    if tier == 0:
        return TIER_T1
    return tier if 0 < tier < TIER_COLDEST else TIER_COLDEST


def _stats_row(stats: Stats, time_us: int) -> StatsRow:
    return StatsRow(
        stats.cache_memory_bytes,
        _finite(stats.hit_rate),
        _finite(stats.pressure),
        stats.t2_hit_tokens,
        stats.t2_query_tokens,
        stats.requests_running,
        stats.requests_waiting,
        _finite(stats.kv_usage),
        reported_us=time_us,
        live_us=time_us,
    )


def _finite(value: float) -> float:
    """No number and no bound count as 0 [IDX-40]."""
    return float(value) if math.isfinite(value) else 0.0


def _is_rank_of(replica: str, pod: str) -> bool:
    """Is this the pod, or one of its data-parallel ranks, `<pod>@dp<n>`?"""
    if not replica.startswith(pod):
        return False
    rank = replica[len(pod) :]
    return not rank or (rank.startswith("@dp") and rank[3:].isascii() and rank[3:].isdigit())
