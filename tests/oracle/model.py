"""The fold of one partition's log, one message at a time.

Everything is a dict; every question is a loop over all of it. Times are log time in µs. Where the
rules leave a choice, the choice is the name of a method or constant here, so that it can be found.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

import msgspec

from inferencecache.schemas.deltas import StatsRow
from inferencecache.schemas.ids import PROBE_TENANT
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
    TenantPolicy,
    Tick,
)
from inferencecache.schemas.senders import ControlSender, ReplicaSender, Sender
from tests.oracle.keys import key_of

SECOND_US: Final = 1_000_000
DEFAULT_TTL_US: Final = 1800 * SECOND_US
DEFAULT_SWEEP_S: Final = 60
REMEMBER_GONE_US: Final = 600 * SECOND_US
FUTURE_US: Final = 5 * SECOND_US
REPLICA_UPDATED: Final = 3
INT64_MIN: Final = -(2**63)
MOST_TTL_US: Final = 2**62
MOST_ACCESSES: Final = 2**32 - 1
MOST_VICTIMS: Final = 2048


class Message(Protocol):
    """A log message; `batch` is None when its payload could not be read."""

    @property
    def position(self) -> Position: ...
    @property
    def sender(self) -> Sender: ...
    @property
    def batch(self) -> DecodedBatch | None: ...


class Replica(NamedTuple):
    tenant: str
    model: str
    replica: str


Prefix = tuple[str, str, str, str, int, int]
"""A distinct key that several replicas may hold: (tenant, model, scheme, adapter, width class, key)."""


class HoldKey(NamedTuple):
    """Who holds what; its order is the order of eviction ties."""

    tenant: str
    model: str
    scheme: str
    adapter: str
    width: int
    key: int
    replica: str

    @property
    def of(self) -> Replica:
        return Replica(self.tenant, self.model, self.replica)

    @property
    def prefix(self) -> Prefix:
        return self[:6]


@dataclass
class Hold:
    token_count: int
    last_seen_us: int
    tier: int
    uncertain: bool = False
    access: int = 0


@dataclass
class Row:
    """What routers know of one replica. `incarnation` is empty when it never began."""

    incarnation: str = ""
    begun_at: int = 0
    alive_us: int = 0
    heard_us: int = 0
    stats: StatsRow | None = None
    scheme: str = ""


@dataclass
class Life:
    """What indexers remember of a replica's current incarnation; `gone_us` once its pod is deleted."""

    incarnation: str
    begun_at: int
    sequence: int
    pod_uid: str
    engine: str
    gone_us: int | None = None


class Wanted(NamedTuple):
    """What the owner has to tell a producer."""

    of: Replica
    kind: str
    incarnation: str
    begun_at: int


@dataclass
class NaiveFold:
    """All that follows from the log up to `position`."""

    position: Position = field(default_factory=Position)
    log_epoch: str = ""
    owner: str = ""
    owner_epoch: int = 0
    time_us: int = 0
    ticks: int = 0
    tick_stamp_ns: int = 0
    holds: dict[HoldKey, Hold] = field(default_factory=dict)
    rows: dict[Replica, Row] = field(default_factory=dict)
    lives: dict[Replica, Life] = field(default_factory=dict)
    gone_uids: dict[str, int] = field(default_factory=dict)
    policy_revision: int = 0
    policies: dict[str, TenantPolicy] = field(default_factory=dict)
    quotas: dict[str, int] = field(default_factory=dict)
    quota_parts: dict[str, int] = field(default_factory=dict)
    max_entries: int = -1
    division: int = 0
    begun_quotas: list[str] = field(default_factory=list)
    begun_cap: bool = False
    evictions: Counter[tuple[str, str]] = field(default_factory=Counter)
    tenant_evictions: Counter[str] = field(default_factory=Counter)

    # ------------------------------------------------------------------ one message

    def fold(self, message: Message) -> list[Wanted]:
        """Take one message; answers what the owner has to ask of producers."""
        self.position = message.position
        if message.batch is None:
            return []
        batch = message.batch.batch
        if isinstance(message.sender, ControlSender):
            self._fold_control(message.sender.role, message.position, batch)
            return []
        return self._fold_replica(message.sender, message.position, batch)

    def _fold_control(self, role: str, position: Position, batch: Batch) -> None:
        for record in batch.records:
            match record:
                case Claim() if role == "o":
                    self._claim(record, position)
                case Tick() if role == "o" and self._by_owner(record):
                    self._tick(record, position)
                case PolicyApplied() if role == "o" and self._by_owner(record):
                    self.policy_revision = record.revision
                    self.policies = {p.tenant: p for p in record.policies}
                    self.quotas = {q.tenant: q.max_keys for q in record.quotas}
                case Budget() if role == "o" and self._by_owner(record) and record.division >= self.division:
                    self.division = record.division
                    self.max_entries = record.max_entries
                    self.quota_parts = {q.tenant: q.max_keys for q in record.quotas}
                    if record.division:
                        self._begin_enforcing()
                case Credit() if role == "r":
                    self._credit(record)
                case Gone() if role == "c":
                    self._gone(record, position)
                case _:
                    pass

    def _by_owner(self, record: Tick | PolicyApplied | Budget) -> bool:
        return bool(self.owner) and (record.owner, record.owner_epoch) == (self.owner, self.owner_epoch)

    def _fold_replica(self, sender: ReplicaSender, position: Position, batch: Batch) -> list[Wanted]:
        of = Replica(sender.tenant, sender.model, sender.replica)
        if sender.channel == "e":
            wanted = self._judge(of, position, batch)
            if wanted is not None:
                return wanted
        message_us = self._message_time(position)
        row = self.rows.setdefault(of, Row())
        row.heard_us = message_us
        for record in batch.records:
            match record:
                case Stored():
                    self._store(of, record, self._record_time(sender, message_us, batch, record.timestamp_us))
                case Evicted():
                    self._evict(of, record)
                case Cleared():
                    self._release_all(of)
                    row.stats = None
                case Stats():
                    time_us = self._record_time(sender, message_us, batch, record.timestamp_us)
                    row.stats = _stats_row(record, time_us)
                case Event() if record.type == REPLICA_UPDATED and row.stats is not None:
                    time_us = self._record_time(sender, message_us, batch, record.timestamp_us)
                    row.stats = msgspec.structs.replace(row.stats, live_us=time_us)
                case Gap() if sender.channel == "e":
                    self._doubt(of)
                case Complete() if sender.channel == "e":
                    self._release(lambda key: key.of == of and self.holds[key].uncertain)
                case Alive() if sender.channel == "e":
                    row.alive_us = self._record_time(sender, message_us, batch, 0)
                case _:
                    pass
        if any(isinstance(record, Stored | Stats) for record in batch.records):
            stored = sum(len(r.token_counts) // 4 for r in batch.records if isinstance(r, Stored))
            self._enforce_cap(self._enforce_quota(of.tenant, MOST_VICTIMS + stored))
        return []

    # ------------------------------------------------------------------ incarnations

    def _judge(self, of: Replica, position: Position, batch: Batch) -> list[Wanted] | None:
        """None when the batch counts; else it is dropped and the list says what to ask for."""
        if batch.incarnation == "" or of.tenant == PROBE_TENANT:
            return []
        life = self.lives.get(of)
        if life is None or batch.incarnation != life.incarnation:
            begin = batch.records[0] if batch.records else None
            if isinstance(begin, Begin):
                if begin.pod_uid in self.gone_uids:
                    return []
                self._begin(of, begin, position, batch)
                return None
            if life is None:
                return [Wanted(of, "resync", batch.incarnation, 0)]
            return [Wanted(of, "fenced", batch.incarnation, life.begun_at)]
        if life.gone_us is not None or batch.sequence <= life.sequence:
            return []
        if batch.sequence > life.sequence + 1:
            self._doubt(of)
            return [Wanted(of, "resync", batch.incarnation, life.begun_at)]
        life.sequence = batch.sequence
        return None

    def _begin(self, of: Replica, begin: Begin, position: Position, batch: Batch) -> None:
        before = self.lives.get(of)
        if before is not None and begin.engine and begin.engine == before.engine:
            self._doubt(of)
        else:
            self._release_all(of)
        begun_at, incarnation = position.sequence, batch.incarnation
        self.lives[of] = Life(incarnation, begun_at, batch.sequence, begin.pod_uid, begin.engine)
        stats = self.rows[of].stats if of in self.rows else None
        self.rows[of] = Row(incarnation, begun_at, stats=stats, scheme=begin.scheme)

    def _gone(self, record: Gone, position: Position) -> None:
        if not record.pod_uid:
            return
        gone_us = self._message_time(position)
        self.gone_uids[record.pod_uid] = gone_us
        for of, life in self.lives.items():
            is_named = of.tenant == record.tenant and _is_rank_of(of.replica, record.replica)
            if is_named and life.pod_uid == record.pod_uid:
                self._release_all(of)
                self.rows.pop(of, None)
                life.gone_us = gone_us

    # ------------------------------------------------------------------ time

    def _message_time(self, position: Position) -> int:
        """T plus the distance of the message's timestamp from the last tick's, within 0 to 2 s."""
        if self.ticks == 0:
            return 0
        since_us = (position.time_ns - self.tick_stamp_ns) // 1000
        return self.time_us + min(max(since_us, 0), 2 * SECOND_US)

    def _record_time(self, sender: ReplicaSender, message_us: int, batch: Batch, timestamp_us: int) -> int:
        if self.ticks == 0:
            return 0
        if sender.channel == "g" and timestamp_us != 0 and timestamp_us <= self.time_us + FUTURE_US:
            return max(timestamp_us, INT64_MIN)
        return max(message_us - max(0, batch.age_ms) * 1000, INT64_MIN)

    def _claim(self, claim: Claim, position: Position) -> None:
        if self.log_epoch and self.log_epoch != claim.log_epoch:
            self._empty()
        self.log_epoch = claim.log_epoch
        self.owner = claim.owner
        self.owner_epoch = position.sequence

    def _empty(self) -> None:
        """All that the log says is void; only the counters of what this process did remain."""
        for name, value in vars(NaiveFold()).items():
            if name not in ("position", "evictions", "tenant_evictions"):
                setattr(self, name, value)

    def _tick(self, tick: Tick, position: Position) -> None:
        stamp_us = position.time_ns // 1000
        if self.ticks == 0:
            self._start_time(max(1, min(tick.wall_us, stamp_us)))
        else:
            now = self.time_us
            middle = sorted([now + SECOND_US, tick.wall_us, stamp_us])[1]
            self.time_us = min(now + 2 * SECOND_US, max(now, middle))
        self.tick_stamp_ns = position.time_ns
        interval = tick.sweep_interval_s if tick.sweep_interval_s > 0 else DEFAULT_SWEEP_S
        self._sweep(interval, self.ticks % interval)
        self._go_on()
        self.ticks += 1

    def _start_time(self, time_us: int) -> None:
        self.time_us = time_us
        for hold in self.holds.values():
            hold.last_seen_us = time_us
        for row in self.rows.values():
            row.heard_us = time_us
            row.alive_us = time_us if row.alive_us else 0
            if row.stats is not None:
                row.stats = msgspec.structs.replace(row.stats, live_us=time_us, reported_us=time_us)
        for life in self.lives.values():
            life.gone_us = None if life.gone_us is None else time_us
        self.gone_uids = dict.fromkeys(self.gone_uids, time_us)

    def effective_us(self, key: HoldKey) -> int:
        """When a hold was last known to be there."""
        hold = self.holds[key]
        row = self.rows.get(key.of)
        if hold.uncertain or row is None:
            return hold.last_seen_us
        return max(hold.last_seen_us, row.alive_us)

    # ------------------------------------------------------------------ holds

    def _store(self, of: Replica, record: Stored, time_us: int) -> None:
        hashes = _split(record.width, record.hashes, len(record.token_counts) // 4)
        if hashes is None or len(record.token_counts) != 4 * len(hashes) or record.scheme == "":
            return
        counts = struct.unpack(f"<{len(hashes)}i", record.token_counts)
        for hash_, count in zip(hashes, counts, strict=True):
            width, key = key_of(hash_)
            at = HoldKey(of.tenant, of.model, record.scheme, record.adapter, width, key, of.replica)
            access = self.holds[at].access if at in self.holds else 0
            self.holds[at] = Hold(count, time_us, _stored_tier(record.tier), False, access)

    def _evict(self, of: Replica, record: Evicted) -> None:
        hashes = _split(record.width, record.hashes, min(record.count, 1))  # all empty ones are one key
        if hashes is None:
            return
        keys = {key_of(hash_) for hash_ in hashes}
        self._release(
            lambda key: key.of == of and (key.width, key.key) in keys and record.adapter in ("", key.adapter)
        )

    def _release(self, is_released: Callable[[HoldKey], bool]) -> None:
        for key in [key for key in self.holds if is_released(key)]:
            del self.holds[key]

    def _release_all(self, of: Replica) -> None:
        self._release(lambda key: key.of == of)

    def _doubt(self, of: Replica) -> None:
        for key, hold in self.holds.items():
            if key.of == of:
                hold.uncertain = True

    def _credit(self, record: Credit) -> None:
        for credited in record.holds:
            if len(credited.keys) % 8 or len(credited.counts) * 2 != len(credited.keys):
                continue
            count = len(credited.keys) // 8
            keys = struct.unpack(f"<{count}Q", credited.keys)
            counts = struct.unpack(f"<{count}I", credited.counts)
            for key, accesses in zip(keys, counts, strict=True):
                at = HoldKey(
                    credited.tenant,
                    credited.model,
                    credited.scheme,
                    credited.adapter,
                    credited.width,
                    key,
                    credited.replica,
                )
                if at in self.holds:
                    hold = self.holds[at]
                    hold.access = min(hold.access + accesses, MOST_ACCESSES)

    # ------------------------------------------------------------------ eviction

    def ttl_us(self, tenant: str) -> int:
        policy = self.policies.get(tenant)
        return min(policy.ttl_us, MOST_TTL_US) if policy is not None and policy.ttl_us > 0 else DEFAULT_TTL_US

    def algorithm(self, tenant: str) -> str:
        policy = self.policies.get(tenant)
        return "lfu" if policy is not None and policy.lfu else "lru"

    def quota(self, tenant: str) -> int | None:
        if tenant in ("", PROBE_TENANT) or tenant not in self.quotas:
            return None
        return max(0, self.quota_parts.get(tenant, self.quotas[tenant]))

    def _sweep(self, interval: int, remainder: int) -> None:
        for key in [key for key in self.holds if key.key % interval == remainder]:
            if self.time_us - self.effective_us(key) >= self.ttl_us(key.tenant):
                del self.holds[key]
                self.evictions[self.algorithm(key.tenant), "ttl"] += 1
        for of, row in list(self.rows.items()):
            ttl_us = self.ttl_us(of.tenant)
            if row.stats is not None and self.time_us - row.stats.live_us >= ttl_us:
                row.stats = None
            is_silent = self.time_us - row.heard_us >= ttl_us
            if is_silent and row.stats is None and not any(key.of == of for key in self.holds):
                del self.rows[of]
                if of in self.lives and self.lives[of].gone_us is None:
                    del self.lives[of]
        for of, life in list(self.lives.items()):
            if life.gone_us is not None and self.time_us - life.gone_us >= REMEMBER_GONE_US:
                del self.lives[of]
        for uid, gone_us in list(self.gone_uids.items()):
            if self.time_us - gone_us >= REMEMBER_GONE_US:
                del self.gone_uids[uid]

    def _begin_enforcing(self) -> None:
        """A division's parts are kept to from the next tick on, whether there are updates or not."""
        for tenant in self.quota_parts:
            keys = {key.prefix for key in self.holds if key.tenant == tenant}
            quota = self.quota(tenant)
            is_over = quota is not None and len(keys) > quota
            if is_over and tenant not in self.begun_quotas:
                self.begun_quotas.append(tenant)
            elif not is_over and tenant in self.begun_quotas:
                self.begun_quotas.remove(tenant)
        held = sum(key.tenant != PROBE_TENANT for key in self.holds)
        self.begun_cap = 0 <= self.max_entries < held

    def _go_on(self) -> None:
        """Ticks go on with what updates have begun to enforce."""
        left = MOST_VICTIMS
        for tenant in list(self.begun_quotas):
            left = self._enforce_quota(tenant, left)
        if self.begun_cap:
            self._enforce_cap(left)

    def _enforce_quota(self, tenant: str, most_holds: int) -> int:
        """Removes keys until so many holds are gone; answers how many of these are left."""
        quota = self.quota(tenant)
        is_begun = tenant in self.begun_quotas
        if quota is None:
            if is_begun:
                self.begun_quotas.remove(tenant)
            return most_holds
        prefixes = {key.prefix for key in self.holds if key.tenant == tenant}

        def order(prefix: Prefix) -> tuple[int, Prefix]:
            return max(self.effective_us(key) for key in self.holds if key.prefix == prefix), prefix

        victims = sorted(prefixes, key=order)[: max(0, len(prefixes) - quota)]
        before = len(self.holds)
        for victim in victims:
            if before - len(self.holds) >= most_holds:
                break
            for key in [key for key in self.holds if key.prefix == victim]:
                del self.holds[key]
            prefixes.remove(victim)
            self.tenant_evictions[tenant] += 1
        if len(prefixes) > quota and not is_begun:
            self.begun_quotas.append(tenant)
        elif len(prefixes) <= quota and is_begun:
            self.begun_quotas.remove(tenant)
        return max(0, most_holds - before + len(self.holds))

    def _enforce_cap(self, most: int) -> None:
        if self.max_entries < 0:
            self.begun_cap = False
            return

        def order(key: HoldKey) -> tuple[int, int, HoldKey]:
            access = self.holds[key].access if self.algorithm(key.tenant) == "lfu" else 0
            return access, self.effective_us(key), key

        victims = sorted((key for key in self.holds if key.tenant != PROBE_TENANT), key=order)
        over = max(0, len(victims) - self.max_entries)
        self.begun_cap = over > most
        for key in victims[: min(over, most)]:
            del self.holds[key]
            self.evictions[self.algorithm(key.tenant), "cap"] += 1


def _split(width: int, hashes: bytes, count_of_empty: int) -> list[bytes] | None:
    """The single hashes of a packed column; None when it is malformed."""
    if width == 0:
        return [b""] * count_of_empty if not hashes and count_of_empty >= 0 else None
    if width < 0 or len(hashes) % width:
        return None
    return [hashes[start : start + width] for start in range(0, len(hashes), width)]


def _stored_tier(tier: int) -> int:
    if tier == 0:
        return TIER_T1
    return tier if 0 < tier < TIER_COLDEST else TIER_COLDEST


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 0.0


def _stats_row(stats: Stats, time_us: int) -> StatsRow:
    return StatsRow(
        cache_memory_bytes=stats.cache_memory_bytes,
        hit_rate=_finite(stats.hit_rate),
        pressure=_finite(stats.pressure),
        t2_hit_tokens=stats.t2_hit_tokens,
        t2_query_tokens=stats.t2_query_tokens,
        requests_running=stats.requests_running,
        requests_waiting=stats.requests_waiting,
        kv_usage=_finite(stats.kv_usage),
        reported_us=time_us,
        live_us=time_us,
    )


def _is_rank_of(replica: str, pod: str) -> bool:
    """Is `replica` the pod itself or one of its data-parallel ranks, `<pod>@dp<n>`?"""
    suffix = replica.removeprefix(pod)
    if not replica.startswith(pod):
        return False
    return suffix == "" or (suffix.startswith("@dp") and suffix[3:].isdecimal() and suffix[3:].isascii())
