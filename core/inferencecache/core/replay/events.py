"""What a message of the log said, record by record, and whether it counted."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Any

import msgspec

from inferencecache.core.index.fold import Folded, LogMessage
from inferencecache.schemas.records import Evicted, Stored
from inferencecache.schemas.senders import ReplicaSender

_ROLES = {"o": "owner", "c": "controller", "r": "router"}
_CHANNELS = {"e": "sidecar", "g": "gRPC"}


class Told(msgspec.Struct, frozen=True, rename="camel"):
    """One record of a message. `sender` says who: a sidecar or a gRPC producer of the replica that is named,
    or an owner, controller or router. `dropped` says why the whole batch did not count, if it did not.

    `record` is the record's name, empty for a message without any, and `fields` what is in it; hashes are in
    hexadecimal.
    """

    partition: int
    sequence: int
    time_ns: int
    sender: str
    tenant: str
    model: str
    replica: str
    incarnation: str
    batch: int
    age_ms: int
    record: str
    fields: dict[str, Any]
    dropped: str = ""


def told(partition: int, message: LogMessage, folded: Folded) -> Iterator[Told]:
    """The records of a message that the fold has judged."""
    position, sender, decoded = message
    ids = ("", "", "")
    if isinstance(sender, ReplicaSender):
        who, ids = _CHANNELS[sender.channel], (sender.tenant, sender.model, sender.replica)
    else:
        who = _ROLES[sender.role] if decoded is not None else "unknown"
    at = partition, position.sequence, position.time_ns, who, *ids
    dropped = folded.dropped or ""
    if decoded is None:
        yield Told(*at, "", 0, 0, "", {}, dropped)
        return
    batch = decoded.batch
    for record in batch.records or (None,):
        name, fields = ("", {}) if record is None else (type(record).__name__, _fields(record))
        yield Told(*at, batch.incarnation, batch.sequence, batch.age_ms, name, fields, dropped)


def _fields(record: msgspec.Struct) -> dict[str, Any]:
    fields = {name: _plain(getattr(record, name)) for name in record.__struct_fields__}
    if isinstance(record, Stored | Evicted) and record.width > 0:
        packed, width = record.hashes, record.width
        fields["hashes"] = [packed[start : start + width].hex() for start in range(0, len(packed), width)]
    if isinstance(record, Stored) and not len(record.token_counts) % 4:
        fields["token_counts"] = [count for (count,) in struct.iter_unpack("<i", record.token_counts)]
    return fields


def _plain(value: Any) -> Any:
    """The value as JSON can have it."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, msgspec.Struct):
        return _fields(value)
    return value
