"""What the log is for: the index as it was at any message, why it was so, and how it came to be.

A replay begins with a *base*, a snapshot or the log's first message, and folds on from there
(`rebuilding`) up to a point (`points`). On the way it tells what every message said (`events`), how two
points differ (`difference`) or what became of a prefix (`history`); in the end it answers a lookup as the
log alone answers it (`answering`). `slices` is the file that carries a base and the log behind it to
another machine.

Everything here is pure: where bases and messages come from is the caller's business.
"""

from __future__ import annotations

from inferencecache.core.replay.answering import explain_at, log_time_us, policies_at
from inferencecache.core.replay.difference import PartitionDifference, Standpoint, difference
from inferencecache.core.replay.events import Told, told
from inferencecache.core.replay.filters import Filter
from inferencecache.core.replay.history import Block, Elsewhere, History, Moment, Standing
from inferencecache.core.replay.points import AtSequence, AtTime, Point
from inferencecache.core.replay.rebuilding import Rebuild
from inferencecache.core.replay.slices import (
    PartitionSlice,
    RawMessage,
    Slice,
    SliceWriter,
    UnreadableSliceError,
    read_slice,
)
from inferencecache.core.replay.state import PartitionState, ReplicaState, state_of

__all__ = [
    "AtSequence",
    "AtTime",
    "Block",
    "Elsewhere",
    "Filter",
    "History",
    "Moment",
    "PartitionDifference",
    "PartitionSlice",
    "PartitionState",
    "Point",
    "RawMessage",
    "Rebuild",
    "ReplicaState",
    "Slice",
    "SliceWriter",
    "Standing",
    "Standpoint",
    "Told",
    "UnreadableSliceError",
    "difference",
    "explain_at",
    "log_time_us",
    "policies_at",
    "read_slice",
    "state_of",
    "told",
]
