"""One indexer's part in one partition: claiming it, ticking its clock, and telling what changed in deltas.

Ownership is in the log. Whoever should own the partition appends a `Claim`; folding it makes this
machine the owner, folding a later claim of somebody else ends that. Deltas leave one at a time, each on
condition that it follows the last message its owner knows, so two owners cannot fork the stream: the
second write is refused, and its author reads what is there before it goes on.

The machine holds no clock and does no I/O. Events are method calls; `poll` answers what to do now, and
`due` when to poll again. Times `now` are seconds of any monotonic clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from msgspec.structs import replace

from inferencecache.core.index.changes import ChangesMissingError, Piece
from inferencecache.core.index.fold import Fold
from inferencecache.core.protocol.budgets import budget_kept_to, budget_of
from inferencecache.schemas.budgets import Division
from inferencecache.schemas.deltas import Delta, encode_delta
from inferencecache.schemas.ids import LogEpoch, OwnerId
from inferencecache.schemas.positions import Position
from inferencecache.schemas.records import AnyRecord, Budget, Claim, PolicyApplied, Tick

DELTA_BYTES: Final = 1024 * 1024
DELTA_COST: Final = 4096
"""What a delta costs its readers besides its changes: as much as so many bytes of these."""
CLAIM_RETRY_S: Final = 3.0
RETRY_S: Final = 0.1
BRIDGE_RETRY_S: Final = 1.0
NEVER: Final = math.inf


class OwnerSettings(NamedTuple):
    """`max_entries` is the cap of the whole index, -1 for none; it and quotas are divided over `partitions`,
    of which this is number `partition`.
    """

    delta_interval_s: float = 0.01
    tick_interval_s: float = 1.0
    sweep_interval_s: int = 60
    max_entries: int = -1
    partition: int = 0
    partitions: int = 1


class PublishRecords(NamedTuple):
    """Append the records to the partition's control subject of owners; losing them is no harm.

    With `folded` only if nothing was appended there behind that log sequence, and `claim_withheld` is told
    if something was: a claim by who has not folded the last claim would give the log a log epoch it has
    left, and empty everything.
    """

    records: tuple[AnyRecord, ...]
    message_id: str
    folded: int | None = None


class PublishDelta(NamedTuple):
    """Append to the deltas stream if its last message is `after`; tell `stored`, `refused` or `failed`."""

    payload: bytes
    message_id: str
    after: int


class ReadLastDelta(NamedTuple):
    """Read the last message of the deltas stream; tell `read_last` or `read_failed` with this number."""

    number: int


class TakeSnapshot(NamedTuple):
    """Copy the fold's state before anything else is folded, then tell `taken`.

    `delta` is the number of the last delta the state contains. A bridging snapshot (None) stands at the
    end of the deltas stream, read now; its fate is told by `bridged` or `bridge_failed`.
    """

    delta: int | None


Action = PublishRecords | PublishDelta | ReadLastDelta | TakeSnapshot


class _InFlight(NamedTuple):
    delta: Delta
    publish: PublishDelta


class Owner:
    """Begins as a standby. `fold` is the state it speaks for; it is folded by whoever polls this.

    `last_sequence` and `told` say where the deltas stream stands as far as the base tells: the number of
    the last delta contained in it, and by log epoch the log position through which deltas have spoken.
    `began_empty` means that the fold began with nothing, at the start of what its change log keeps.
    `ended` are log epochs whose log has lost something: a claim begins another one.
    """

    def __init__(
        self,
        fold: Fold,
        owner: OwnerId,
        new_log_epoch: LogEpoch,
        settings: OwnerSettings,
        *,
        last_sequence: int = 0,
        told: dict[LogEpoch, Position] | None = None,
        began_empty: bool = True,
        ended: AbstractSet[LogEpoch] = frozenset(),
    ) -> None:
        self._fold = fold
        self._id = owner
        self._new_log_epoch = new_log_epoch
        self._settings = settings
        self._last = last_sequence
        self._told = dict(told or {})
        self._ended = ended
        self._lived_through: int | None = None
        self._empty_at = fold.changes.kept_from.sequence if began_empty else None
        self._policy: PolicyApplied | None = None
        self._division: Division | None = None
        self._should_own = False
        self._was_owning = False
        self._epoch = 0
        self._deposed = False
        self._claims = 0
        self._claim_at = 0.0
        self._ticks = 0
        self._tick_at = 0.0
        self._cut_at = 0.0
        self._retry_at = 0.0
        self._in_flight: _InFlight | None = None
        self._stalled = False
        self._pieces: Iterator[Piece] | None = None
        self._asked = False
        self._reads = 0
        self._reading_last = False
        self._snapshot_wanted = False
        self._taking = False
        self._bridging = False
        self._bridge_asked = False
        self._bridge_at = 0.0
        self.deltas_stored = 0
        self.bytes_stored = 0

    # -- what the shell asks -----------------------------------------------------------------------

    @property
    def owning(self) -> bool:
        """Is the last claim this machine's, as far as the log is folded and nothing says otherwise?"""
        view = self._fold.view
        is_mine = view.owner == self._id and view.owner_epoch > (self._lived_through or 0)
        return is_mine and not self._deposed

    @property
    def holding(self) -> bool:
        """Nothing may be folded now: a snapshot of this very state is being made ready.

        A snapshot that waits for deltas holds nothing up while these cannot be stored.
        """
        if self._taking:
            return True
        if not self._snapshot_wanted or self._stalled or self._bridging or not self.owning:
            return False
        return self._fold.view.log.sequence >= self.told.sequence

    @property
    def last_sequence(self) -> int:
        """Number of the last delta that this machine knows of."""
        return self._last

    @property
    def reading_cost(self) -> int:
        """What reading all deltas costs that this machine has stored, in bytes of changes."""
        return self.bytes_stored + DELTA_COST * self.deltas_stored

    @property
    def told(self) -> Position:
        """Log position through which deltas have told the current log epoch."""
        return self._told.get(self._fold.view.log_epoch, Position())

    @property
    def untold(self) -> bool:
        """Is anything folded that no delta has told?"""
        log_epoch = self._fold.view.log_epoch
        return log_epoch not in self._told or self._fold.view.log.sequence > self.told.sequence

    # -- events ------------------------------------------------------------------------------------

    def opened(self, last: int) -> None:
        """The log is open, and ends with `last`. A claim up to there is not of this machine, but of one
        whose state this indexer has lost.
        """
        if self._lived_through is None:
            self._lived_through = last

    def should_own(self, verdict: bool) -> None:
        """Membership's verdict: this indexer is caught up and the partition is its."""
        self._should_own = verdict

    def policy_read(self, policy: PolicyApplied) -> None:
        """The policy bucket's values; whose record it is, is filled in when it is appended."""
        self._policy = policy

    def division_read(self, division: Division | None) -> None:
        """How cap and quotas are divided, None while nobody has divided them."""
        self._division = division

    def delta_read(self, sequence: int, delta: Delta | None) -> None:
        """A standby reads the deltas stream; None is a message that is no delta."""
        self._last = max(self._last, sequence)
        if delta is not None:
            self._heard(delta)

    def stored(self, message_id: str, sequence: int) -> None:
        """The delta in flight is stored under this number."""
        if self._is_in_flight(message_id):
            self._delta_stored(sequence)

    def refused(self, message_id: str) -> None:
        """The deltas stream ends otherwise than this machine believed."""
        if self._is_in_flight(message_id):
            self._reading_last = True
            self._asked = False

    def failed(self, message_id: str, now: float, *, too_large: bool = False) -> None:
        """The delta was not stored, or nobody knows: the same bytes are sent again, later."""
        if not self._is_in_flight(message_id):
            return
        self._asked = False
        self._stalled = True
        self._retry_at = now + RETRY_S
        if too_large:
            self._in_flight = self._pieces = None
            self._bridging = True

    def claim_withheld(self, now: float) -> None:
        """The claim is not stored: something before it is not folded yet, which is a matter of a moment."""
        self._claim_at = min(self._claim_at, now + RETRY_S)

    def read_last(self, number: int, sequence: int, message_id: str, delta: Delta | None) -> None:
        """What the deltas stream ends with; it is empty when `sequence` is 0."""
        if number != self._reads or not self._reading_last:
            return
        self._reading_last = self._asked = False
        if self._is_in_flight(message_id):
            self._delta_stored(sequence)
            return
        self._in_flight = self._pieces = None
        # Deltas went with their storage, or one is gone and nobody knows what it told: no reader can follow.
        self._bridging |= sequence < self._last or (delta is None and sequence > self._last)
        self._last = sequence
        if delta is None:
            return
        view = self._fold.view
        if delta.log_epoch == view.log_epoch and delta.owner_epoch > view.owner_epoch:
            self._deposed = True
        self._heard(delta)

    def read_failed(self, number: int, now: float) -> None:
        """The end of the deltas stream could not be read."""
        if number == self._reads:
            self._asked = False
            self._stalled = True
            self._retry_at = now + RETRY_S

    def want_snapshot(self) -> None:
        """A snapshot is due: it is taken as soon as deltas have told everything that is folded."""
        self._snapshot_wanted = True

    def taken(self) -> None:
        """The state of the snapshot asked for has been copied, or cannot be; folding may go on."""
        self._taking = False

    def bridged(self, log: Position, delta: int) -> None:
        """The bridging snapshot is referenced: the next delta begins at its log position."""
        if not self._bridge_asked:
            return
        self._taking = self._bridging = self._bridge_asked = self._stalled = False
        self._last = delta
        self._told[self._fold.view.log_epoch] = log
        self._fold.changes.drop_through(log.sequence)

    def bridge_failed(self, now: float) -> None:
        """The bridging snapshot came to nothing; it is tried again."""
        if self._bridge_asked:
            self._taking = self._bridge_asked = False
            self._bridge_at = now + BRIDGE_RETRY_S

    # -- what to do --------------------------------------------------------------------------------

    def poll(self, now: float, wall_us: int) -> list[Action]:
        """What to do now. `wall_us` is the wall clock, which goes into the log and nowhere else."""
        owner_epoch = self._fold.view.owner_epoch
        if owner_epoch != self._epoch:
            self._epoch = owner_epoch
            self._deposed = False
            self._forget_sent(now)
        if not self.owning:
            return self._stand_by(now)
        self._was_owning = True
        actions: list[Action] = []
        if now >= self._tick_at:
            self._tick_at = now + self._settings.tick_interval_s
            actions.append(self._tick(wall_us))
        return actions + self._tell(now)

    def due(self, now: float) -> float:
        """When to poll next if nothing happens before."""
        if not self.owning:
            return max(now, self._claim_at) if self._should_own and not self._deposed else NEVER
        due = self._tick_at
        if self._bridging:
            due = due if self._bridge_asked else min(due, self._bridge_at)
        elif self._in_flight is not None or self._reading_last:
            due = due if self._asked else min(due, self._retry_at)
        elif self.untold or self._snapshot_wanted:
            due = min(due, self._cut_at)
        return max(now, due)

    def _stand_by(self, now: float) -> list[Action]:
        if self._was_owning:
            self._was_owning = False
            self._claim_at = now + CLAIM_RETRY_S
            self._forget_sent(now)
        if not self._should_own or self._deposed or now < self._claim_at:
            return []
        self._claim_at = now + CLAIM_RETRY_S
        self._claims += 1
        view = self._fold.view
        goes_on = view.log_epoch and view.log_epoch not in self._ended
        claim = Claim(self._id, view.log_epoch if goes_on else self._new_log_epoch)
        return [PublishRecords((claim,), self._message_id("claim", self._claims), view.log.sequence)]

    def _message_id(self, kind: str, number: int) -> str:
        """An indexer that has lost its state counts again, while what it sent before may be in the next log;
        the log epoch that it would begin is this machine's own.
        """
        return f"{self._id}.{kind}.{self._new_log_epoch}.{number}"

    def _forget_sent(self, now: float) -> None:
        """A claim has been folded: what was sent under another is nobody's concern any more."""
        self._forget_delta()
        self._stalled = False
        self._snapshot_wanted = self._taking = self._bridging = self._bridge_asked = False
        self._tick_at = self._cut_at = self._retry_at = self._bridge_at = now

    def _forget_delta(self) -> None:
        """What is in flight may be stored yet: then it is the message behind which the next one goes."""
        self._in_flight = self._pieces = None
        self._asked = self._reading_last = False

    def _tick(self, wall_us: int) -> PublishRecords:
        """The clock, and with it whatever of policy and budget the fold does not have yet."""
        self._ticks += 1
        settings, fold, owner_epoch = self._settings, self._fold, self._epoch
        records: list[AnyRecord] = []
        policy = self._policy
        if policy is not None and not _are_same_policies(policy, fold.policy):
            records.append(replace(policy, owner=self._id, owner_epoch=owner_epoch))
        budget = self._budget(fold.policy if policy is None else policy)
        if not _are_same_parts(budget, fold.budget):
            records.append(budget)
        records.append(Tick(self._id, owner_epoch, wall_us, settings.sweep_interval_s))
        return PublishRecords(tuple(records), self._message_id("tick", self._ticks))

    def _budget(self, policy: PolicyApplied) -> Budget:
        """Its part of the division that it knows, unless the fold keeps to a later one."""
        settings, fold, division = self._settings, self._fold, self._division
        if (division.number if division is not None else 0) < fold.budget.division:
            budget = budget_kept_to(fold, policy, settings.partition, settings.partitions)
        else:
            budget = budget_of(
                policy, settings.max_entries, division, settings.partition, settings.partitions
            )
        return replace(budget, owner=self._id, owner_epoch=self._epoch)

    def _tell(self, now: float) -> list[Action]:
        if self._is_cut_off() or self._is_of_another_log():
            self._forget_delta()
            self._bridging = True
        if self._bridging:
            return self._bridge(now)
        if self._reading_last:
            self._reads += not self._asked
            return self._once(ReadLastDelta(self._reads), now)
        if self._in_flight is None and self.untold and now >= self._cut_at:
            self._cut_at = now + self._settings.delta_interval_s
            try:
                self._in_flight = self._cut()
            except ChangesMissingError:
                self._bridging = True
                return self._bridge(now)
        if self._in_flight is not None:
            return self._once(self._in_flight.publish, now)
        if self._snapshot_wanted and not self.untold:
            self._snapshot_wanted = False
            self._taking = True
            return [TakeSnapshot(self._last)]
        return []

    def _is_cut_off(self) -> bool:
        """Are changes given up that no delta has told? The deltas in between would lead to a hole."""
        told = self._told.get(self._fold.view.log_epoch)
        return told is not None and told.sequence < self._fold.changes.kept_from.sequence

    def _is_of_another_log(self) -> bool:
        """Have deltas told a tail that the log has lost? Then what they told last comes after a message that
        is younger. Where the log has outgrown it, cutting notices.
        """
        told, log = self.told, self._fold.view.log
        return told.sequence > log.sequence and 0 < told.time_ns < log.time_ns

    def _once(self, action: Action, now: float) -> list[Action]:
        """Ask for it unless that was done and its outcome is awaited."""
        if self._asked or now < self._retry_at:
            return []
        self._asked = True
        return [action]

    def _bridge(self, now: float) -> list[Action]:
        if self._bridge_asked or now < self._bridge_at:
            return []
        self._bridge_asked = self._taking = True
        self._snapshot_wanted = False
        return [TakeSnapshot(None)]

    # -- deltas ------------------------------------------------------------------------------------

    def _cut(self) -> _InFlight | None:
        """The next delta, None when all is told. Raises ChangesMissingError."""
        piece = None if self._pieces is None else next(self._pieces, None)
        if piece is None:
            self._pieces = self._untold_pieces()
            piece = next(self._pieces, None)
        if piece is None:
            return None
        delta = piece.delta(self._id, self._epoch)
        # The whole pair: a log that lost its tail has a sequence twice under one owner epoch.
        message_id = f"{self._epoch}.{delta.to.sequence}.{delta.to.time_ns}"
        return _InFlight(delta, PublishDelta(encode_delta(delta), message_id, self._last))

    def _untold_pieces(self) -> Iterator[Piece]:
        """What no delta has told, in pieces of the current log epoch. Raises ChangesMissingError.

        Readers know nothing of an epoch that no delta has told: its first delta says that the state
        before was the empty one. What was folded before the first claim of a log belongs to the epoch
        that this claim gave it.
        """
        changes, log_epoch = self._fold.changes, self._fold.view.log_epoch
        told = self._told.get(log_epoch)
        begins = told is None
        could_begin = changes.kept_from.sequence == self._empty_at
        for piece in changes.cut(told or changes.kept_from, DELTA_BYTES):
            if piece.mark.log_epoch not in ("", log_epoch):
                could_begin = False
                continue
            if begins and not piece.emptied:
                if not could_begin:
                    raise ChangesMissingError(Position(), changes.kept_from)
                yield piece._replace(mark=piece.mark._replace(log_epoch=log_epoch), emptied=True)
            else:
                yield piece._replace(mark=piece.mark._replace(log_epoch=log_epoch))
            begins = False

    def _is_in_flight(self, message_id: str) -> bool:
        return self._in_flight is not None and self._in_flight.publish.message_id == message_id

    def _delta_stored(self, sequence: int) -> None:
        in_flight, self._in_flight = self._in_flight, None
        self._asked = self._stalled = False
        if in_flight is not None:
            self._last = sequence
            self.deltas_stored += 1
            self.bytes_stored += len(in_flight.publish.payload)
            self._heard(in_flight.delta)

    def _heard(self, delta: Delta) -> None:
        """Deltas have told the log of an epoch through this one's end."""
        before = self._told.get(delta.log_epoch)
        if before is None or delta.emptied or delta.to.sequence > before.sequence:
            self._told[delta.log_epoch] = delta.to
        if delta.log_epoch == self._fold.view.log_epoch:
            self._fold.changes.drop_through(delta.to.sequence)


def _are_same_policies(one: PolicyApplied, other: PolicyApplied) -> bool:
    """Whoever has appended them. A bucket that is made anew, or has lost its end, gives a revision again."""
    return (one.revision, one.policies, one.quotas) == (other.revision, other.policies, other.quotas)


def _are_same_parts(one: Budget, other: Budget) -> bool:
    """Whoever has appended them."""
    return (one.max_entries, one.quotas, one.division) == (other.max_entries, other.quotas, other.division)
