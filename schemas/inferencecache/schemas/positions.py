"""Where a reader stands in a stream, and what the references of a partition point at.

A position is a pair, stream sequence and JetStream timestamp, kept with the creation time of the
stream: a sequence alone cannot tell that the storage was lost or replaced by an older copy.
"""

from __future__ import annotations

import msgspec

from inferencecache.schemas.digests import DigestText
from inferencecache.schemas.ids import LogEpoch


class Position(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The last message that was read: `sequence` 0 means the start of the stream.

    `time_ns` is the message's JetStream timestamp, `created_ns` the stream's creation time, both in
    nanoseconds since the Unix epoch.
    """

    sequence: int = 0
    time_ns: int = 0
    created_ns: int = 0


class SnapshotRef(msgspec.Struct, frozen=True):
    """A verified snapshot object and what it holds.

    `digest` is that of the state; `log` the last log message folded into it; `delta` the last delta
    contained in it (sequence 0: none).
    """

    object: str
    digest: DigestText
    log: Position
    delta: Position
    log_epoch: LogEpoch
    size: int = 0


class Refs(msgspec.Struct, frozen=True):
    """Value of `IC_REFS` under `<generation>.<partition>`; written by compare-and-set only."""

    current: SnapshotRef | None = None
    previous: SnapshotRef | None = None
