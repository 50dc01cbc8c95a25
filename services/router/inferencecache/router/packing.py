"""Records cut into batches that fit a message of the log.

An update that fits travels as one batch and is applied as a whole [IDX-16]. A larger one becomes
several, in order; so does one of very many records, which would keep whoever folds them for long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from inferencecache.schemas.records import AnyRecord, Batch, Event, Evicted, Stored, encode_batch

_FIXED_BYTES: Final = 160
"""More than any record needs beside its texts and columns."""
_COUNT_BYTES: Final = 4
MOST_RECORDS: Final = 1000
"""In a batch: some milliseconds of folding, in which an indexer does nothing else."""


def pack(records: Iterable[AnyRecord], limit: int) -> Iterator[bytes]:
    """Encoded batches of at most `limit` bytes and `MOST_RECORDS`, at least one, also for no records.

    The limit must leave room for a record's texts; a single record that is larger goes alone.
    """
    batch: list[AnyRecord] = []
    size = _FIXED_BYTES
    for record in records:
        for piece in _pieces(record, limit - 2 * _FIXED_BYTES):
            piece_size = _size(piece)
            if batch and (size + piece_size > limit or len(batch) == MOST_RECORDS):
                yield encode_batch(Batch(records=tuple(batch)))
                batch, size = [], _FIXED_BYTES
            batch.append(piece)
            size += piece_size
    yield encode_batch(Batch(records=tuple(batch)))


def _pieces(record: AnyRecord, limit: int) -> Iterator[AnyRecord]:
    if not isinstance(record, Stored) or _size(record) <= limit:
        yield record
        return
    room = limit - _size(msgspec.structs.replace(record, hashes=b"", token_counts=b""))
    each = max(1, room // (record.width + _COUNT_BYTES))
    blocks = len(record.token_counts) // _COUNT_BYTES
    for start in range(0, blocks, each):
        end = start + each
        yield msgspec.structs.replace(
            record,
            hashes=record.hashes[start * record.width : end * record.width],
            token_counts=record.token_counts[start * _COUNT_BYTES : end * _COUNT_BYTES],
        )


def _size(record: AnyRecord) -> int:
    """An upper bound of the record's encoded size."""
    match record:
        case Stored():
            texts = _text_bytes(record.scheme) + _text_bytes(record.adapter)
            return _FIXED_BYTES + texts + len(record.hashes) + len(record.token_counts)
        case Evicted():
            return _FIXED_BYTES + _text_bytes(record.adapter) + len(record.hashes)
        case Event():
            return _FIXED_BYTES + _text_bytes(record.adapter) + len(record.prefix_hash)
        case _:
            return _FIXED_BYTES


def _text_bytes(text: str) -> int:
    return 4 * len(text)
