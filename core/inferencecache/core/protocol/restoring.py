"""How an indexer comes to a state it may fold on from: snapshot, else the log itself, else a new log epoch.

Bases are tried in order: the current snapshot, the previous one, the very start of the log. Opening the
log at a base proves or refutes it. When none fits (the log is cut above every snapshot, or its storage
is another) the indexer is *void*: it asks for a snapshot, takes any new one that appears, and only when
nobody else announces the partition begins a new log epoch, from which the state is a pure function of
the log again. Only answers make void: while references or a base cannot be read, they are asked for again.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from inferencecache.core.protocol.bases import AskSnapshot, BaseChoice, Load, ReadRefs
from inferencecache.schemas.positions import Position, Refs, SnapshotRef

RETRY_S: Final = 1.0
VOID_WAIT_S: Final = 6.0


class OpenLog(NamedTuple):
    """Fold the log on from here, with the state that was loaded, or with an empty one.

    Tell `opened` when the log is the continuation, `lost` when it is not.
    """

    position: Position
    ref: SnapshotRef | None


class ClaimAnew(NamedTuple):
    """Append a claim of a new log epoch; tell `claimed` with its log sequence, or `claim_failed`."""


Action = ReadRefs | Load | AskSnapshot | OpenLog | ClaimAnew


class Restoring:
    """One partition's way to a state. `start` begins it, and `lost` begins it again."""

    def __init__(self) -> None:
        self._choice = BaseChoice()
        self._from_the_start = False
        self._opened = False
        self._void_since: float | None = None
        self._retry_at: float | None = None
        self._claiming = False
        self.from_log = 0
        """How often the log itself had to do, without a snapshot."""

    @property
    def is_opening(self) -> bool:
        """Is a base still on trial?"""
        return not self._opened

    @property
    def void(self) -> bool:
        """No base fits: nothing may be announced or owned."""
        return self._void_since is not None

    def start(self) -> list[Action]:
        return [ReadRefs()]

    def refs_read(self, now: float, refs: Refs | None) -> list[Action]:
        ref = self._choice.next(refs)
        if ref is not None:
            return [Load(ref)]
        if not self._from_the_start:
            self._from_the_start = True
            self.from_log += 1
            return [OpenLog(Position(), None)]
        if self._void_since is None:
            self._void_since = now
        self._retry_at = now + RETRY_S
        return [AskSnapshot()]

    def refs_failed(self, now: float) -> list[Action]:
        """Nobody said what there is: the time in which nothing appeared begins anew."""
        if self._void_since is not None:
            self._void_since = now
        self._retry_at = now + RETRY_S
        return []

    def loaded(self, ref: SnapshotRef) -> list[Action]:
        self._choice.reached()
        return [OpenLog(ref.log, ref)]

    def load_failed(self) -> list[Action]:
        """The snapshot is not there, or not what its reference says."""
        self._choice.reached()
        return [ReadRefs()]

    def load_unreachable(self, now: float, ref: SnapshotRef) -> list[Action]:
        """The snapshot could not be read for now: it may still fit, so this is not void."""
        self._void_since = None
        self._retry_at = now + self._choice.unreachable(ref)
        return []

    def opened(self) -> None:
        """The log goes on from the base: the state is the log's."""
        self._opened = True
        self._void_since = self._retry_at = None
        self._claiming = False

    def lost(self) -> list[Action]:
        """The log is not the continuation of the base, or of what was folded so far."""
        if self._opened:
            self._opened = False
            self._from_the_start = False
            self._choice.begin_anew()
        self._claiming = False
        return [ReadRefs()]

    def missing(self, now: float) -> list[Action]:
        """There is no log at all, and it is being created: look again soon."""
        self.lost()
        self._from_the_start = False
        return self.refs_failed(now)

    def claimed(self, sequence: int) -> list[Action]:
        """The claim of a new log epoch is in the log: the state begins with it."""
        return [OpenLog(Position(sequence - 1), None)]

    def claim_failed(self, now: float) -> None:
        self._claiming = False
        self._retry_at = now + RETRY_S

    def poll(self, now: float, announced_by_others: bool) -> list[Action]:
        """What to do now; `announced_by_others`: another indexer is caught up in the partition."""
        if self._claiming or self._retry_at is None or now < self._retry_at:
            return []
        self._retry_at = None
        is_alone = self._void_since is not None and now - self._void_since >= VOID_WAIT_S
        if is_alone and not announced_by_others:
            self._claiming = True
            return [ClaimAnew()]
        return [ReadRefs()]
