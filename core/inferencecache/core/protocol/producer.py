"""How a sidecar gets its records into the log: in order, once, and never silently less than it knows.

A producer lives in incarnations. Each begins with a `Begin` that voids what the replica held before,
followed by everything the sidecar knows; then records follow as they happen. One publish is in flight
at a time and the same bytes are sent until it is acknowledged, so the log has them in order; the
sequence in each batch lets the fold drop what comes twice and see what is missing. Whatever breaks
that order (an outbox that ran over, an owner that missed something, another engine process, another
place in the log) is answered in one way: by beginning anew.

Records leave at once after a quiet moment and are gathered for at most a window under load. What
waits longer is gathered further, as long as one age is about right for all of a batch.

Nothing here does I/O or reads a clock: events are method calls with the time in seconds of a
monotonic clock, and each answers with what to do next, in order.
"""

from __future__ import annotations

import random
import secrets
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from inferencecache.schemas.ids import Incarnation
from inferencecache.schemas.records import (
    Alive,
    AnyRecord,
    Batch,
    Begin,
    Cleared,
    Evicted,
    Stats,
    Stored,
    encode_batch,
)
from inferencecache.schemas.requests import ResyncRequest

MAX_ENTRIES: Final = 4096
"""Most keys in one record, and from how many on a batch waits for no more [SUB-110, SUB-112]."""
MERGE_SPAN_S: Final = 1.0
"""Records that wait may share a batch, and so an age, when they were observed within this time."""
FIRST_RETRY_S: Final = 0.1
LAST_RETRY_S: Final = 5.0
RESYNC_PAUSE_S: Final = 1.0
"""A request to resync that names no incarnation is ignored this long after a begin."""
DEFAULT_PAYLOAD_LIMIT: Final = 1024 * 1024 - 64 * 1024

_RECORD_OVERHEAD: Final = 64

Reason = Literal["start", "layout", "engine_restart", "outbox_full", "requested", "message_too_large"]


class Publish(NamedTuple):
    """Store these bytes; tell the outcome by `acknowledged`, `refused` or `failed` with the message id.

    It replaces any publish before it: an outcome of an earlier one is of no interest any more.
    """

    subject: str
    payload: bytes
    msg_id: str
    expect_last_subject_sequence: int | None = None


class TellState(NamedTuple):
    """Call `restate` with everything that is known, before any further `submit`."""


class Begun(NamedTuple):
    """A new incarnation is beginning, for this reason."""

    incarnation: Incarnation
    reason: Reason


class Fenced(NamedTuple):
    """Another process has begun as this replica, later in the log: nothing is published any more."""

    begun_at: int


class StatsStored(NamedTuple):
    """The last statistics sample is in the log."""


Action = Publish | TellState | Begun | Fenced | StatsStored


class Group(NamedTuple):
    """Records that were observed at about one time."""

    observed_at: float
    records: Sequence[AnyRecord]


class ProducerSettings(msgspec.Struct, frozen=True):
    """`window_s` is the longest wait for company, `outbox_max` the most records that wait."""

    window_s: float = 0.02
    outbox_max: int = 1024
    alive_interval_s: float = 20.0


DEFAULT_SETTINGS: Final = ProducerSettings()


class _Parcel:
    """Records that will travel as one batch. `restated` ones are not news and do not count as waiting."""

    def __init__(self, observed_at: float, *, restated: bool = False) -> None:
        self.observed_at = observed_at
        self.restated = restated
        self.records: list[AnyRecord] = []
        self.size = 0
        self.entries = 0

    def append(self, record: AnyRecord) -> None:
        self.size += size_of(record)
        self.entries += entries_of(record)
        if self.records:
            self.records[-1:] = join(self.records[-1], record)
        else:
            self.records.append(record)


class _Sent(NamedTuple):
    publish: Publish
    is_begin: bool
    stats: Group | None


class Producer:
    """One replica's way into the log. `subject` is unknown until `placed`."""

    def __init__(
        self,
        begin: Begin,
        settings: ProducerSettings = DEFAULT_SETTINGS,
        *,
        mint: Callable[[], Incarnation] = lambda: Incarnation(secrets.token_hex(8)),
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.begin = begin
        """What the next `Begin` says."""
        self.certain = False
        """Is all that was reported known to be still there? Only then `Alive` is sent."""
        self.payload_limit = DEFAULT_PAYLOAD_LIMIT
        self.counters: Counter[str] = Counter()
        self.incarnation = Incarnation("")
        self._settings = settings
        self._mint = mint
        self._jitter = jitter
        self._phase: Literal["unplaced", "beginning", "live", "fenced"] = "unplaced"
        self._subject = ""
        self._last_subject_sequence = 0
        self._sequence = 0
        self._begun_at = 0
        self._begun_time = 0.0
        self._outbox: deque[_Parcel] = deque()
        self._stats: Group | None = None
        self._alive_at = 0.0
        self._departed_at = float("-inf")
        self._in_flight: _Sent | None = None
        self._retry_at: float | None = None
        self._retry_wait = FIRST_RETRY_S
        self._draining = False

    @property
    def idle(self) -> bool:
        """Is nothing waiting and nothing in flight?"""
        return not self._outbox and self._stats is None and self._in_flight is None

    @property
    def waiting_records(self) -> int:
        """News that wait to be sent."""
        return sum(len(parcel.records) for parcel in self._outbox if not parcel.restated)

    @property
    def beginning(self) -> bool:
        """Is an incarnation's `Begin` still on its way into the log?"""
        return self._phase == "beginning"

    @property
    def live(self) -> bool:
        """Has the current incarnation begun in the log?"""
        return self._phase == "live"

    @property
    def has_begun(self) -> bool:
        """Has any incarnation begun in the log, and is this still the replica's producer?"""
        return self._begun_at > 0 and not self.fenced

    @property
    def fenced(self) -> bool:
        """Has another process taken this replica's name over?"""
        return self._phase == "fenced"

    # ------------------------------------------------------------------ what happens around it

    def placed(self, subject: str, now: float) -> list[Action]:
        """The layout says where this replica's records go; another place than before is begun anew."""
        if subject == self._subject or self.fenced:
            return []
        reason: Reason = "layout" if self._subject else "start"
        self._subject = subject
        self._last_subject_sequence = 0
        return self._begin(reason, now)

    def begin_anew(self, reason: Reason, now: float) -> list[Action]:
        """Everything told so far is void."""
        return [] if self._phase in ("unplaced", "fenced") else self._begin(reason, now)

    def requested(self, request: ResyncRequest, now: float) -> list[Action]:
        """An owner of the partition asks for something; what is about another incarnation is ignored."""
        if self._phase != "live" or request.incarnation not in ("", self.incarnation):
            return []
        if request.kind == "fenced":
            if not request.incarnation:
                return []
            if request.begun_at <= self._begun_at:  # the log has lost this incarnation's begin
                return self._begin("requested", now)
            self._phase = "fenced"
            self._outbox.clear()
            self._stats = self._in_flight = self._retry_at = None
            return [Fenced(request.begun_at)]
        is_telling = any(parcel.restated for parcel in self._outbox)
        if not request.incarnation and (is_telling or now < self._begun_time + RESYNC_PAUSE_S):
            return []
        return self._begin("requested", now)

    def submit(self, records: Iterable[AnyRecord], observed_at: float, now: float) -> list[Action]:
        """Records of one engine batch. While an incarnation begins they are part of what is told then."""
        if self._phase != "live":
            return []
        for record in records:
            if type(record) is Cleared:
                self._outbox.clear()
            self._parcel_for(record, observed_at).append(record)
        if self.waiting_records > self._settings.outbox_max:
            self.counters["outbox_overflows"] += 1
            self.counters["outbox_dropped_records"] += self.waiting_records
            return self._begin("outbox_full", now)
        return self._pump(now)

    def submit_stats(self, stats: Stats, observed_at: float, now: float) -> list[Action]:
        """A statistics sample; it replaces one that still waits."""
        if self.fenced:
            return []
        self._stats = Group(observed_at, (stats,))
        return self._pump(now)

    def restate(self, groups: Iterable[Group], now: float) -> list[Action]:
        """All that is known, as `TellState` asked for."""
        for group in groups:
            parcel: _Parcel | None = None
            for record in group.records:
                if parcel is None or not self._has_room(parcel, record):
                    parcel = _Parcel(group.observed_at, restated=True)
                    self._outbox.append(parcel)
                parcel.append(record)
        return self._pump(now)

    def drain(self, now: float) -> list[Action]:
        """The process is about to end: from now on nothing waits for company."""
        self._draining = True
        return self._pump(now)

    # ------------------------------------------------------------------ outcomes of a publish

    def acknowledged(self, msg_id: str, sequence: int, now: float) -> list[Action]:
        """The message is stored under this stream sequence."""
        sent = self._in_flight
        if sent is None or sent.publish.msg_id != msg_id:
            return []
        self._in_flight = self._retry_at = None
        self._retry_wait = FIRST_RETRY_S
        self._last_subject_sequence = sequence
        self.counters["published_batches"] += 1
        out: list[Action] = [StatsStored()] if sent.stats is not None else []
        if sent.is_begin:
            self._phase = "live"
            self._begun_at, self._begun_time = sequence, now
            # Old blocks are told with their age; without this they would be stale until the next one.
            self._alive_at = now
            if self.certain:
                self._alive_at = now + self._settings.alive_interval_s
                out.extend(self._send((Alive(),), now, now))
            return [*out, TellState()]
        return [*out, *self._pump(now)]

    def refused(self, msg_id: str, last: int, now: float) -> list[Action]:
        """The expectation did not hold; `last` is the subject's last sequence as the server has it."""
        sent = self._in_flight
        if sent is None or sent.publish.msg_id != msg_id:
            return []
        self._last_subject_sequence = last
        publish = sent.publish._replace(expect_last_subject_sequence=last)
        self._in_flight = sent._replace(publish=publish)
        self._retry_at = None
        return [publish]

    def failed(self, msg_id: str, now: float) -> list[Action]:
        """The message may not be stored; it is sent again after a while [SUB-114]."""
        if self._in_flight is not None and self._in_flight.publish.msg_id == msg_id:
            self._retry_at = now + self._retry_wait * (1.0 + 0.1 * self._jitter())
            self._retry_wait = min(LAST_RETRY_S, 2.0 * self._retry_wait)
        return []

    def tick(self, now: float) -> list[Action]:
        """Time passed."""
        if self._in_flight is not None and self._retry_at is not None and now >= self._retry_at:
            self._retry_at = None
            return [self._in_flight.publish]
        return self._pump(now)

    def wake_at(self) -> float | None:
        """When `tick` has something to do."""
        if self._in_flight is not None:
            return self._retry_at
        if self._phase != "live":
            return None
        if self._outbox:
            return self._departed_at + self._settings.window_s
        return self._alive_at if self.certain else None

    # ------------------------------------------------------------------ within

    def _begin(self, reason: Reason, now: float) -> list[Action]:
        self.incarnation = self._mint()
        self.counters["begins"] += 1
        self._phase = "beginning"
        self._sequence = 0
        self._outbox.clear()
        if self._stats is None and self._in_flight is not None:
            self._stats = self._in_flight.stats
        self._in_flight = self._retry_at = None
        sent = self._send((self.begin,), now, now, expect=self._last_subject_sequence)
        return [Begun(self.incarnation, reason), *sent]

    def _parcel_for(self, record: AnyRecord, observed_at: float) -> _Parcel:
        last = self._outbox[-1] if self._outbox else None
        if (
            last is None
            or last.restated
            or observed_at - last.observed_at > MERGE_SPAN_S
            or last.entries >= MAX_ENTRIES
            or not self._has_room(last, record)
        ):
            last = _Parcel(observed_at)
            self._outbox.append(last)
        return last

    def _has_room(self, parcel: _Parcel, record: AnyRecord) -> bool:
        return not parcel.records or parcel.size + size_of(record) <= self.payload_limit

    def _pump(self, now: float) -> list[Action]:
        """Send what may leave now, if nothing is in flight."""
        if self._phase != "live" or self._in_flight is not None:
            return []
        if not self._outbox:
            observed_at = self._stats.observed_at if self._stats is not None else now
            due = self._take_due(now)
            return self._send(due, observed_at, now) if due else []
        head = self._outbox[0]
        is_open = len(self._outbox) == 1 and not head.restated and head.entries < MAX_ENTRIES
        if is_open and not self._draining and now < self._departed_at + self._settings.window_s:
            return []
        self._outbox.popleft()
        if not self._outbox and now - head.observed_at <= MERGE_SPAN_S:
            head.records += self._take_due(now)
        return self._send(head.records, head.observed_at, now)

    def _take_due(self, now: float) -> list[AnyRecord]:
        due: list[AnyRecord] = []
        if self.certain and now >= self._alive_at:
            self._alive_at = now + self._settings.alive_interval_s
            due.append(Alive())
        if self._stats is not None:
            due += self._stats.records
            self._stats = None
        return due

    def _send(
        self, records: Sequence[AnyRecord], observed_at: float, now: float, *, expect: int | None = None
    ) -> list[Action]:
        self._sequence += 1
        self._departed_at = now
        payload = encode_batch(
            Batch(
                incarnation=self.incarnation,
                sequence=self._sequence,
                age_ms=max(0, round((now - observed_at) * 1000)),
                records=tuple(records),
            )
        )
        publish = Publish(self._subject, payload, f"{self.incarnation}.{self._sequence}", expect)
        sample = next((Group(observed_at, (record,)) for record in records if type(record) is Stats), None)
        self._in_flight = _Sent(publish, expect is not None, sample)
        return [publish]


def size_of(record: AnyRecord) -> int:
    """About how many bytes a record takes in a batch, never too few."""
    match record:
        case Stored():
            texts = 4 * (len(record.scheme) + len(record.adapter))
            return _RECORD_OVERHEAD + texts + len(record.hashes) + len(record.token_counts)
        case Evicted():
            return _RECORD_OVERHEAD + 4 * len(record.adapter) + len(record.hashes)
        case _:
            return _RECORD_OVERHEAD


def entries_of(record: AnyRecord) -> int:
    """How many keys a record names."""
    match record:
        case Stored():
            return len(record.token_counts) // 4
        case Evicted():
            return len(record.hashes) // record.width if record.width else record.count
        case _:
            return 0


def join(last: AnyRecord, record: AnyRecord) -> list[AnyRecord]:
    """Two neighbours as one record if they say the same of different keys, at most `MAX_ENTRIES` in each."""
    if type(last) is Stored and type(record) is Stored and _alike(last, record):
        room = max(0, MAX_ENTRIES - entries_of(last))
        hashes, counts = room * record.width, room * 4
        return _without_empty(
            msgspec.structs.replace(
                last,
                hashes=last.hashes + record.hashes[:hashes],
                token_counts=last.token_counts + record.token_counts[:counts],
            ),
            msgspec.structs.replace(
                record, hashes=record.hashes[hashes:], token_counts=record.token_counts[counts:]
            ),
        )
    if type(last) is Evicted and type(record) is Evicted and _alike(last, record):
        hashes = max(0, MAX_ENTRIES - entries_of(last)) * record.width
        return _without_empty(
            msgspec.structs.replace(last, hashes=last.hashes + record.hashes[:hashes]),
            msgspec.structs.replace(record, hashes=record.hashes[hashes:]),
        )
    return [last, record]


def _alike(last: Stored | Evicted, record: Stored | Evicted) -> bool:
    same = (last.adapter, last.width, last.timestamp_us) == (
        record.adapter,
        record.width,
        record.timestamp_us,
    )
    if isinstance(last, Stored) and isinstance(record, Stored):
        same = same and (last.scheme, last.tier) == (record.scheme, record.tier)
    return same and record.width > 0


def _without_empty(first: Stored | Evicted, second: Stored | Evicted) -> list[AnyRecord]:
    return [first, second] if second.hashes else [first]
