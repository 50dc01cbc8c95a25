"""Is what arrives the continuation of what was read? The judge behind every reader of a stream.

A reader opens *at* its position: the first message must be that very pair of sequence and timestamp,
which proves that the storage is the one it has read so far, and is dropped. Each later message must be
the next one. So a log that was cut below the reader, replaced by an older copy, or emptied, is noticed
before anything of it is believed. A position without a timestamp (the start of a stream, or a place
known only by number) has no pair to prove: there the first message must be the one after it.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal, NamedTuple

from inferencecache.schemas.positions import Position

LostReason = Literal["cut", "storage_lost", "no_stream"]


class Lost(NamedTuple):
    """The reader cannot go on from its position.

    `cut`: messages after the position are gone. `storage_lost`: the stream is another one, or an older
    copy, or has lost its tail. `no_stream`: there is none of that name.
    """

    reason: LostReason
    detail: str


class StreamEnds(NamedTuple):
    """A stream at the moment of opening: `first` is `last` + 1 when it holds nothing."""

    created_ns: int
    first: int
    last: int


class Verdict(Enum):
    DELIVER = "deliver"
    DROP = "drop"
    REOPEN = "reopen"
    """Something between is missing: only a reader opened anew at the position can tell why."""


class PositionCheck:
    """Follows one reader. `strict` False accepts holes, for readers that see only some subjects."""

    def __init__(self, start: Position, *, strict: bool = True) -> None:
        self.position = start
        self._strict = strict
        self._overlap_due = False
        self._reopened_for_hole = False

    @property
    def open_at(self) -> int:
        """The first sequence to ask for."""
        return self.position.sequence if self._is_pair else self.position.sequence + 1

    @property
    def is_proven(self) -> bool:
        """Since the last opening: has the message at the position proved that the stream is the same?"""
        return not self._overlap_due

    @property
    def _is_pair(self) -> bool:
        return self.position.sequence > 0 and self.position.time_ns > 0

    def opened(self, ends: StreamEnds) -> Lost | None:
        """The reader is about to read the stream; its ends may already tell that it cannot."""
        at = self.position
        if at.created_ns and at.created_ns != ends.created_ns:
            return Lost("storage_lost", f"the stream was created anew at {ends.created_ns}")
        if at.sequence > ends.last:
            return Lost("storage_lost", f"the stream ends at {ends.last}, below position {at.sequence}")
        if self._strict and ends.first > self.open_at and ends.first > 1:
            return Lost("cut", f"the stream begins at {ends.first}, above position {at.sequence}")
        self.position = Position(at.sequence, at.time_ns, ends.created_ns)
        self._overlap_due = self._strict and self._is_pair
        return None

    def received(self, sequence: int, time_ns: int) -> Verdict | Lost:
        """A message arrived. The position moves exactly when the verdict is DELIVER."""
        at = self.position
        if self._overlap_due:
            return self._overlap(sequence, time_ns)
        if sequence <= at.sequence:
            return Verdict.DROP
        if self._strict and sequence > at.sequence + 1:
            if self._reopened_for_hole or not self._is_pair:
                return Lost("cut", f"nothing is left between {at.sequence} and {sequence}")
            self._reopened_for_hole = True
            return Verdict.REOPEN
        self.position = Position(sequence, time_ns, at.created_ns)
        self._reopened_for_hole = False
        return Verdict.DELIVER

    def _overlap(self, sequence: int, time_ns: int) -> Verdict | Lost:
        at = self.position
        if sequence < at.sequence:
            return Verdict.DROP
        if sequence > at.sequence:
            return Lost("cut", f"the stream begins at {sequence}, above position {at.sequence}")
        if time_ns != at.time_ns:
            return Lost("storage_lost", f"message {sequence} is not the one that was read")
        self._overlap_due = False
        return Verdict.DROP
