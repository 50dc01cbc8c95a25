"""Which snapshot to begin from, and which snapshot may take whose place.

A base is tried once: one that turned out damaged, or does not fit the streams as they are, will not
become better, but a new reference may appear at any time. One that is only out of reach is no worse for
it, and is tried until it is in reach.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from inferencecache.schemas.ids import OwnerId
from inferencecache.schemas.positions import Position, Refs, SnapshotRef

UPLOAD_LIMIT_S: Final = 600.0
"""An upload without a description that is older was interrupted."""
_HOUR_S: Final = 3600.0
_AGAIN_S: Final = 1.0
_AGAIN_LIMIT_S: Final = 8.0


class ReadRefs(NamedTuple):
    """Read the partition's references; tell `refs_read`, or `refs_failed`."""


class Load(NamedTuple):
    """Load the snapshot and check it against its reference; tell `loaded`, `load_failed`, or
    `load_unreachable` when nobody said what is there.
    """

    ref: SnapshotRef


class AskSnapshot(NamedTuple):
    """Ask the partition's owner for a fresh snapshot, on core NATS: it may never arrive."""


class BaseChoice:
    """The snapshots that references name, best first, each once."""

    def __init__(self) -> None:
        self._tried: set[str] = set()
        self._again_s = _AGAIN_S

    def next(self, refs: Refs | None) -> SnapshotRef | None:
        """The best base that was not tried yet."""
        named = [ref for ref in (refs.current, refs.previous) if ref is not None] if refs is not None else []
        self._tried &= {ref.object for ref in named}
        for ref in named:
            if ref.object not in self._tried:
                self._tried.add(ref.object)
                return ref
        return None

    def unreachable(self, ref: SnapshotRef) -> float:
        """The base could not be read, nor found wanting: it may be tried again after so many seconds."""
        self._tried.discard(ref.object)
        wait_s = self._again_s
        self._again_s = min(2 * wait_s, _AGAIN_LIMIT_S)
        return wait_s

    def reached(self) -> None:
        """The store has answered: the next outage is another one."""
        self._again_s = _AGAIN_S

    def begin_anew(self) -> None:
        """Things have changed: what did not fit may fit now."""
        self._tried.clear()


def succeed(refs: Refs | None, new: SnapshotRef, *, at_end: bool = False) -> Refs | None:
    """References with `new` as current, None when `new` is to be dropped: what is there is further.

    Positions compare only within one log epoch and one life of their streams. `at_end` means that `new`
    stands where the deltas end: a delta behind that is one which its stream has lost.
    """
    current = refs.current if refs is not None else None
    if current is None:
        return Refs(new)
    if current.log_epoch == new.log_epoch and (
        _is_further(current.log, new.log) or (not at_end and _is_further(current.delta, new.delta))
    ):
        return None
    return Refs(new, current)


def purge_deltas_below(refs: Refs) -> int:
    """The delta that stays as the first, since the previous snapshot is read on from it. 0: purge nothing."""
    current, previous = refs.current, refs.previous
    if current is None or previous is None or previous.delta.created_ns != current.delta.created_ns:
        return 0
    return min(previous.delta.sequence, current.delta.sequence)


def object_name(generation: int, partition: int, log: Position, owner: OwnerId, random: str) -> str:
    """Unique name of a snapshot object."""
    return f"{generation}/{partition}/{log.sequence}-{owner}-{random}"


class SnapshotObject(NamedTuple):
    """A stored object of `size` bytes; `written_s` is the writer's clock in seconds since the Unix epoch."""

    name: str
    written_s: float
    size: int


def superfluous(objects: Iterable[SnapshotObject], refs: Refs | None, log_first: int, room: int) -> list[str]:
    """Objects that may go: not referenced, and not a base for replay that there is room for.

    The first object of an hour is such a base while the log still has the message after it; `log_first`
    is the first sequence the log has. Bases take at most `room` bytes, the youngest first.
    """
    referenced = {ref.object for ref in (refs.current, refs.previous) if ref is not None} if refs else set()
    in_time = sorted(objects, key=lambda each: (each.written_s, each.name))
    bases: dict[float, SnapshotObject] = {}
    for entry in in_time:
        if log_sequence(entry.name) + 1 >= log_first:
            bases.setdefault(entry.written_s // _HOUR_S, entry)
    kept = set(referenced)
    for entry in reversed(bases.values()):
        room -= entry.size
        if room < 0:
            break
        kept.add(entry.name)
    return [entry.name for entry in in_time if entry.name not in kept]


def log_sequence(name: str) -> int:
    """The log sequence in an object's name; 0 for a name that has none."""
    digits = name.rpartition("/")[2].partition("-")[0]
    return int(digits) if digits.isdecimal() else 0


def _is_further(one: Position, other: Position) -> bool:
    """A higher number that was given earlier is one of a stream that has lost its tail since."""
    is_older = 0 < one.time_ns < other.time_ns
    return one.created_ns == other.created_ns and one.sequence > other.sequence and not is_older
