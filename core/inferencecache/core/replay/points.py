"""Points of a log: a message, or a moment."""

from __future__ import annotations

from typing import NamedTuple

from inferencecache.schemas.positions import Position


class AtSequence(NamedTuple):
    """A message of one partition, by its log sequence."""

    sequence: int

    def offset(self, position: Position) -> int:
        """Below 0 where the position is before the point, above 0 where it is behind."""
        return position.sequence - self.sequence


class AtTime(NamedTuple):
    """A moment, in nanoseconds since the Unix epoch, as JetStream's timestamps of messages tell it."""

    time_ns: int

    def offset(self, position: Position) -> int:
        """As that of a sequence; the start of a log is before every moment."""
        return position.time_ns - self.time_ns


Point = AtSequence | AtTime
