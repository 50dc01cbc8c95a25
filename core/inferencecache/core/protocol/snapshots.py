"""The life of one snapshot: copied at a delta, stored, read back, referenced; then what is older goes.

Nothing older is touched before the new snapshot is verified and referenced, and then only what lies
below the previous one. A snapshot whose turn has passed is dropped, never retried: the next one is
better anyway.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from inferencecache.core.protocol.bases import ReadRefs, purge_deltas_below, succeed
from inferencecache.schemas.positions import Position, Refs, SnapshotRef

MAX_COST: Final = 64 * 1024 * 1024
ASKED_SPACING_S: Final = 2.0
FIRST_AFTER_S: Final = 1.0


class SnapshotSettings(NamedTuple):
    """A snapshot is due after `interval_s`, or when the deltas since the last cost a reader `max_cost`, in
    bytes of changes: who starts cold reads them all.
    """

    interval_s: float = 600.0
    max_cost: int = MAX_COST


class FindDelta(NamedTuple):
    """Find the position of a delta, None meaning the end of the deltas stream; tell `found`."""

    sequence: int | None


class Store(NamedTuple):
    """Copy the fold's state at this delta, let folding go on, store the copy and read it back.

    Tell `stored` once what was read back gives the same digest.
    """

    delta: Position


class WriteRefs(NamedTuple):
    """Write the references if their revision is still this one; tell `referenced` or `failed`."""

    refs: Refs
    revision: int


class Purge(NamedTuple):
    """Remove deltas below this one (0: none), and objects that `bases.superfluous` names."""

    deltas_below: int
    refs: Refs


class Dropped(NamedTuple):
    """The snapshot came to nothing: folding may go on. `bridging` tells whose hope it was."""

    bridging: bool
    reason: str


class Referenced(NamedTuple):
    """The snapshot can be loaded by others from now on."""

    bridging: bool
    ref: SnapshotRef


Action = FindDelta | Store | ReadRefs | WriteRefs | Purge | Dropped | Referenced


class Snapshots:
    """One partition's snapshots, one at a time. Any step may end in `failed`."""

    def __init__(self, settings: SnapshotSettings) -> None:
        self._settings = settings
        self._ref: SnapshotRef | None = None
        self._refs: Refs | None = None
        self._bridging = False
        self._since: float | None = None
        self._asked_at: float | None = None
        self._taken_at = -ASKED_SPACING_S
        self._cost = 0
        self.busy = False
        self.referenced_count = 0
        self.dropped_count = 0

    def owning(self, now: float, has_base: bool, cost: int) -> None:
        """The partition has become this indexer's; without a base of its log epoch one is due soon."""
        self._since = now if has_base else now - self._settings.interval_s + FIRST_AFTER_S
        self._cost = cost

    def asked(self, now: float) -> None:
        """A reader asks for a fresh snapshot."""
        self._asked_at = now

    def is_due(self, now: float, cost: int) -> bool:
        """Should a snapshot be taken? `cost` is that of reading all deltas of the owner, which only grows."""
        if self.busy or self._since is None:
            return False
        if self._asked_at is not None and now >= self._taken_at + ASKED_SPACING_S:
            return True
        return now - self._since >= self._settings.interval_s or (
            cost - self._cost >= self._settings.max_cost
        )

    def take(self, now: float, delta: int | None, cost: int) -> list[Action]:
        """The owner holds still at this delta (None: for a bridging snapshot)."""
        self.busy = True
        self._bridging = delta is None
        self._since = self._taken_at = now
        self._asked_at = None
        self._cost = cost
        return [FindDelta(delta)]

    def found(self, delta: Position | None) -> list[Action]:
        """Where the delta is; None when it is not there any more."""
        if delta is None:
            return self.failed("the delta to snapshot at is gone")
        return [Store(delta)]

    def stored(self, ref: SnapshotRef) -> list[Action]:
        """The snapshot is stored and was read back."""
        self._ref = ref
        return [ReadRefs()]

    def refs_read(self, refs: Refs | None, revision: int) -> list[Action]:
        """The references as they are; 0 is the revision of none."""
        if self._ref is None:
            return []
        self._refs = succeed(refs, self._ref, at_end=self._bridging)
        if self._refs is None:
            return self.failed("a newer snapshot is referenced already")
        return [WriteRefs(self._refs, revision)]

    def referenced(self) -> list[Action]:
        """The references name the snapshot."""
        ref, refs = self._ref, self._refs
        self._end()
        if ref is None or refs is None:
            return []
        self.referenced_count += 1
        return [Referenced(self._bridging, ref), Purge(purge_deltas_below(refs), refs)]

    def failed(self, reason: str) -> list[Action]:
        """A step did not succeed."""
        if not self.busy:
            return []
        self._end()
        self.dropped_count += 1
        return [Dropped(self._bridging, reason)]

    def _end(self) -> None:
        self.busy = False
        self._ref = self._refs = None
