"""Slices of logs that a test writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from inferencecache.core.index.fold import LogMessage
from inferencecache.core.log.subjects import control_subject, replica_subject
from inferencecache.core.partitions.messages import log_message
from inferencecache.core.replay import PartitionSlice, RawMessage, Rebuild, SliceWriter
from inferencecache.schemas.layout import Layout
from inferencecache.schemas.positions import Position
from inferencecache.schemas.records import encode_batch
from inferencecache.schemas.senders import ControlSender

LAYOUT = Layout(1, 1)
KEY = "1.0"
NO_BATCH = b"\xc1"
START = Position()


def raw(message: LogMessage) -> RawMessage:
    """The message as partition 0 of the first generation stores it."""
    position, sender, decoded = message
    if isinstance(sender, ControlSender):
        subject = control_subject(1, 0, sender.role)
    else:
        subject = replica_subject(1, 0, sender)
    return RawMessage(subject, NO_BATCH if decoded is None else encode_batch(decoded.batch), position)


def slice_of(
    messages: Iterable[RawMessage],
    *,
    at: Position = START,
    base: Sequence[bytes] = (),
    policies: Mapping[int, bytes] | None = None,
) -> bytes:
    """A slice of partition 0."""
    written = bytearray()
    writer = SliceWriter(written.extend, LAYOUT)
    writer.begin(0, at, base)
    for message in messages:
        writer.add(message)
    writer.end(policies or {})
    return bytes(written)


def replayed(part: PartitionSlice, key: str = KEY) -> Rebuild:
    """All of a partition's slice, folded."""
    rebuild = Rebuild(key, part.at, part.base)
    for message in part.messages():
        rebuild.take(log_message(message.subject, message.payload, message.position))
    return rebuild
