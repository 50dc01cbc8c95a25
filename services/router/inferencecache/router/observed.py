"""From records of the log to the events that observers see: what producers said, as they said it.

An observer that applies the events in order of arrival knows what each replica holds as far as its
producer has told: a `Begin` empties the replica, and what it still holds is told again. What the index
removes by itself, for age or room, is no event.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from typing import Final

from inferencecache.schemas.ids import AdapterId
from inferencecache.schemas.records import Batch, Begin, Cleared, Event, Evicted, Stored
from inferencecache.schemas.senders import ReplicaSender
from inferencecache.v1alpha1.inferencecache_pb2 import CacheEvent

_COUNT_BYTES: Final = 4
_TYPES: Final = range(-(2**31), 2**31)
"""What an enum can be; a record can carry more, and so can its time."""
_MOST: Final = 2**63 - 1


def events_of(
    sender: ReplicaSender, batch: Batch, stored_us: int, types: Collection[int]
) -> Iterator[CacheEvent]:
    """The events of one message that are of these types, or of any when there are none.

    `stored_us` is when the log stored the message. Records that the fold drops are passed over.
    """
    observed_us = stored_us - max(0, batch.age_ms) * 1000

    def event(type_: int, stamp_us: int, hash_: bytes = b"", adapter: AdapterId | None = None) -> CacheEvent:
        return CacheEvent(
            type=type_,  # type: ignore[arg-type] # any number is legal [WIRE-008]
            replica_id=sender.replica,
            model_id=sender.model,
            tenant_id=sender.tenant,
            prefix_hash=hash_,
            timestamp_us=max(-_MOST, min(stamp_us or observed_us, _MOST)),
            adapter_id=adapter or "",
        )

    def wanted(type_: int) -> bool:
        return not types or type_ in types

    for record in batch.records:
        match record:
            case Stored() if wanted(CacheEvent.PREFIX_ADDED) and record.scheme:
                count = len(record.token_counts) // _COUNT_BYTES
                for hash_ in _hashes(record.width, record.hashes, count):
                    yield event(CacheEvent.PREFIX_ADDED, record.timestamp_us, hash_, record.adapter)
            case Evicted() if wanted(CacheEvent.PREFIX_EVICTED):
                for hash_ in _hashes(record.width, record.hashes, record.count):
                    yield event(CacheEvent.PREFIX_EVICTED, record.timestamp_us, hash_, record.adapter)
            case Cleared() if wanted(CacheEvent.ALL_CLEARED):
                yield event(CacheEvent.ALL_CLEARED, record.timestamp_us)
            case Begin() if wanted(CacheEvent.ALL_CLEARED) and sender.channel == "e":
                yield event(CacheEvent.ALL_CLEARED, 0)
            case Event() if wanted(record.type) and record.type in _TYPES:
                yield event(record.type, record.timestamp_us, record.prefix_hash, record.adapter)


def _hashes(width: int, hashes: bytes, count: int) -> Iterator[bytes]:
    """The hashes of a column as given; all empty ones are one key."""
    if width > 0 and len(hashes) % width == 0:
        yield from (hash_ for (hash_,) in struct.iter_unpack(f"{width}s", hashes))
    elif width == 0 and not hashes and count > 0:
        yield b""
