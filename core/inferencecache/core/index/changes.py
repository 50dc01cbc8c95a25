"""What the fold changed, message by message, until a delta has said it.

The owner cuts deltas from here; a standby keeps its changes until it has read the owner's delta that
covers them, so that a new owner continues without a hole. Only whole messages leave, and a piece never
reaches over the beginning of a log epoch. When deltas cannot be stored for long, changes that nobody can
say any more are given up instead of filling memory: a snapshot then says them all at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from inferencecache.schemas.deltas import (
    DELTA_FORMAT,
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
    TimeStarted,
)
from inferencecache.schemas.ids import LogEpoch, OwnerId
from inferencecache.schemas.positions import Position

MAX_BYTES: Final = 256 * 1024 * 1024
_MESSAGE_BYTES: Final = 100
_CHANGE_BYTES: Final = 150
"""About what a delta, and a change with the names in it, take besides their columns."""

HolderChange = Held | Released | HolderCleared | HolderDoubted
RowChange = ReplicaRow | ReplicaForgotten


class ChangesMissingError(LookupError):
    """The changes behind `wanted` are not all here any more: those that are begin behind `kept_from`."""

    def __init__(self, wanted: Position, kept_from: Position) -> None:
        super().__init__(f"changes are kept from {kept_from.sequence} on, wanted from {wanted.sequence}")
        self.wanted: Final = wanted
        self.kept_from: Final = kept_from


class Mark(NamedTuple):
    """Where the state stands after a message."""

    position: Position
    log_epoch: LogEpoch
    time_us: int
    digest: int
    access_digest: int


class _Message:
    """What one message changed; a holder's change is beside the holder's name, its `holder` is void."""

    __slots__ = ("changes", "emptied", "mark", "rows", "size")

    def __init__(self) -> None:
        self.mark: Mark | None = None
        self.emptied = False
        self.changes: list[tuple[HolderName, HolderChange] | TimeStarted] = []
        self.rows: dict[ReplicaName, RowChange] = {}
        self.size = 0


class Piece(NamedTuple):
    """The range (`from_`, `mark.position`] of the log as a delta says it."""

    from_: Position
    mark: Mark
    emptied: bool
    holders: tuple[HolderName, ...]
    changes: tuple[AnyChange, ...]

    def delta(self, owner: OwnerId, owner_epoch: int) -> Delta:
        """The delta that this owner publishes."""
        to, log_epoch, time_us, digest, access_digest = self.mark
        return Delta(
            DELTA_FORMAT,
            log_epoch,
            owner,
            owner_epoch,
            self.from_,
            to,
            time_us,
            digest,
            access_digest,
            self.emptied,
            self.holders,
            self.changes,
        )


class ChangeLog:
    """Changes of the messages behind `kept_from`, in order: at most about `max_bytes`, or none at all."""

    def __init__(self, kept_from: Position | None = None, max_bytes: int = MAX_BYTES) -> None:
        self.kept_from = kept_from or Position()
        self._max_bytes = max_bytes
        self._bytes = 0
        self._messages: deque[_Message] = deque()
        self._open = _Message()

    # --------------------------------------------------------------------------------- the fold

    def note(self, holder: HolderName, change: HolderChange) -> None:
        """The message being folded changed what a holder holds."""
        message = self._open
        message.changes.append((holder, change))
        message.size += _CHANGE_BYTES
        if isinstance(change, Held):
            message.size += len(change.keys) + len(change.token_counts)
        elif isinstance(change, Released):
            message.size += len(change.keys)

    def note_row(self, change: RowChange) -> None:
        """The message being folded changed a replica's row; its last word counts."""
        self._open.rows[change.name] = change
        self._open.size += _CHANGE_BYTES

    def note_time(self, change: TimeStarted) -> None:
        """The message being folded starts log time."""
        self._open.changes.append(change)

    def note_emptied(self) -> None:
        """The message being folded begins a log epoch: what it changed before is void."""
        self._open = _Message()
        self._open.emptied = True

    def close(self, mark: Mark) -> None:
        """The message is folded. If too much is kept with it, all of that goes."""
        message = self._open
        message.mark = mark
        message.size += _MESSAGE_BYTES
        self._messages.append(message)
        self._bytes += message.size
        self._open = _Message()
        if self._bytes > self._max_bytes:
            self.drop_through(mark.position.sequence)

    # -------------------------------------------------------------------------------- the owner

    @property
    def pending(self) -> int:
        """How many messages are kept."""
        return len(self._messages)

    @property
    def bytes(self) -> int:
        """About how much memory they take."""
        return self._bytes

    @property
    def max_bytes(self) -> int:
        return self._max_bytes

    def drop_through(self, sequence: int) -> None:
        """Forget the messages up to this log sequence: a stored delta has said them."""
        messages = self._messages
        while messages and messages[0].mark is not None and messages[0].mark.position.sequence <= sequence:
            self.kept_from = messages[0].mark.position
            self._bytes -= messages.popleft().size

    def mark_at(self, sequence: int) -> Mark | None:
        """Where the state stood after the message of this log sequence, if it is kept."""
        for message in self._messages:
            if message.mark is not None and message.mark.position.sequence == sequence:
                return message.mark
        return None

    def _position_at(self, sequence: int) -> Position | None:
        if sequence == self.kept_from.sequence:
            return self.kept_from
        mark = self.mark_at(sequence)
        return None if mark is None else mark.position

    def cut(self, from_: Position, max_bytes: int) -> Iterator[Piece]:
        """The kept changes behind `from_` in pieces of about `max_bytes`, at least a message each.

        Raises `ChangesMissingError`, also where another message has the place of `from_`. What is folded
        while a caller iterates is not cut.
        """
        if from_.sequence < self.kept_from.sequence:
            raise ChangesMissingError(from_, self.kept_from)
        if (here := self._position_at(from_.sequence)) is not None and _contradict(from_, here):
            raise ChangesMissingError(from_, here)
        return self._cut(from_, max_bytes, len(self._messages))

    def _cut(self, from_: Position, max_bytes: int, count: int) -> Iterator[Piece]:
        piece: list[_Message] = []
        size = 0
        for message in list(islice(self._messages, count)):
            if message.mark is None or message.mark.position.sequence <= from_.sequence:
                continue
            if piece and (size + message.size > max_bytes or message.emptied):
                yield _joined(from_, piece)
                from_ = _mark(piece).position
                piece, size = [], 0
            piece.append(message)
            size += message.size
        if piece:
            yield _joined(from_, piece)


def _contradict(one: Position, other: Position) -> bool:
    """Are these two messages at one place, of a log that lost its tail? A time that is not known is 0."""
    return one.time_ns != other.time_ns and 0 not in (one.time_ns, other.time_ns)


def _mark(piece: list[_Message]) -> Mark:
    mark = piece[-1].mark
    assert mark is not None  # noqa: S101 - only closed messages are kept
    return mark


def _joined(from_: Position, piece: list[_Message]) -> Piece:
    """One piece of messages in a row. Rows, which are whole, come last and once, but before log time
    starts, since that changes them.
    """
    holders: dict[HolderName, int] = {}
    changes: list[AnyChange] = []
    rows: dict[ReplicaName, RowChange] = {}
    run: list[Held] = []

    def end_run() -> None:
        if run:
            first = run[0]
            keys = b"".join([held.keys for held in run])
            token_counts = b"".join([held.token_counts for held in run])
            changes.append(Held(first.holder, first.tier, first.last_seen_us, keys, token_counts))
            run.clear()

    for message in piece:
        for noted in message.changes:
            if isinstance(noted, TimeStarted):
                end_run()
                changes += (*rows.values(), noted)
                rows.clear()
                continue
            name, unnumbered = noted
            change = msgspec.structs.replace(unnumbered, holder=holders.setdefault(name, len(holders)))
            if not isinstance(change, Held):
                end_run()
                changes.append(change)
                continue
            if run and (run[0].holder, run[0].tier, run[0].last_seen_us) != (
                change.holder,
                change.tier,
                change.last_seen_us,
            ):
                end_run()
            run.append(change)
        rows |= message.rows
    end_run()
    return Piece(from_, _mark(piece), piece[0].emptied, tuple(holders), (*changes, *rows.values()))
