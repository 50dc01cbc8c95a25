"""From what gRPC producers say to records of the log. Pure: no clock, nothing published.

Values are passed on as they came; what a tier, a time or a rate beyond its range means is for the
fold to say, since it reads other producers' records as well.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby
from typing import NamedTuple

from inferencecache.core.index.single import wrapped
from inferencecache.core.log.subjects import InvalidIdError
from inferencecache.schemas.ids import MAX_ID_BYTES, AdapterId, HashScheme
from inferencecache.schemas.records import AnyRecord, Cleared, Event, Evicted, Stats, Stored
from inferencecache.v1alpha1.inferencecache_pb2 import (
    CacheEvent,
    CacheStateUpdate,
    PrefixEntry,
    ReplicaStats,
)


class _Run(NamedTuple):
    """Keys in a row that share what one `Stored` has in common: adapter, tier and hash width."""

    common: tuple[str, int, int]
    hashes: Sequence[bytes]
    token_counts: Sequence[int]


def records_of_update(update: CacheStateUpdate) -> Iterator[AnyRecord]:
    """An update's prefixes in their order, then its statistics [IDX-16].

    Prefixes without a hash scheme and entries with unequal arrays are dropped [IDX-21, IDX-25].
    Raises `InvalidIdError`, before the first record, for a scheme or adapter that is too long: it is
    repeated in every record.
    """
    _check_length(update.hash_scheme)
    _check_length(update.adapter_id)
    for entry in update.prefixes:
        _check_length(entry.adapter_id)
    return _records_of_update(update)


def records_of_event(event: CacheEvent) -> tuple[AnyRecord]:
    """What an event means to the index; one that means nothing is logged for observers all the same.

    Raises `InvalidIdError` for an adapter that is too long.
    """
    _check_length(event.adapter_id)
    stamp_us, adapter = event.timestamp_us, AdapterId(event.adapter_id)
    if event.type == CacheEvent.PREFIX_EVICTED:
        return (Evicted(adapter, len(event.prefix_hash), event.prefix_hash, 1, stamp_us),)
    if event.type == CacheEvent.ALL_CLEARED:
        return (Cleared(stamp_us),)
    return (Event(event.type, event.prefix_hash, adapter, stamp_us),)


def _records_of_update(update: CacheStateUpdate) -> Iterator[AnyRecord]:
    if update.hash_scheme:
        scheme = HashScheme(update.hash_scheme)
        for common, runs in groupby(_runs(update), key=_common_of):
            yield _stored(scheme, common, list(runs), update.timestamp_us)
    if update.HasField("stats"):
        yield _stats(update.stats, update.timestamp_us)


def _runs(update: CacheStateUpdate) -> Iterator[_Run]:
    for entry in update.prefixes:
        adapter = entry.adapter_id or update.adapter_id
        if len(entry.block_hashes) != len(entry.block_token_counts):
            continue
        if entry.block_hashes:
            yield from _chain_runs(entry, adapter)
        if entry.prefix_hash or not entry.block_hashes:
            hash_ = entry.prefix_hash
            yield _Run((adapter, entry.tier, len(hash_)), (hash_,), (entry.token_count,))


def _chain_runs(entry: PrefixEntry, adapter: str) -> Iterator[_Run]:
    """The blocks of a chain with cumulative counts, a run for each stretch of one width [IDX-24]."""
    hashes = list(entry.block_hashes)
    totals = list(accumulate(entry.block_token_counts))
    if min(totals) < -(2**31) or max(totals) >= 2**31:
        totals = [wrapped(total) for total in totals]
    start = 0
    for width, stretch in groupby(map(len, hashes)):
        end = start + len(list(stretch))
        yield _Run((adapter, entry.tier, width), hashes[start:end], totals[start:end])
        start = end


def _common_of(run: _Run) -> tuple[str, int, int]:
    return run.common


def _stored(scheme: HashScheme, common: tuple[str, int, int], runs: list[_Run], stamp_us: int) -> Stored:
    adapter, tier, width = common
    hashes = b"".join([hash_ for run in runs for hash_ in run.hashes])
    counts = [token_count for run in runs for token_count in run.token_counts]
    packed = struct.pack(f"<{len(counts)}i", *counts)
    return Stored(scheme, AdapterId(adapter), tier, width, hashes, packed, stamp_us)


def _check_length(id_: str) -> None:
    if len(id_) * 4 > MAX_ID_BYTES and (size := len(id_.encode())) > MAX_ID_BYTES:
        raise InvalidIdError(f"an id has at most {MAX_ID_BYTES} UTF-8 bytes, this one has {size}")


def _stats(stats: ReplicaStats, stamp_us: int) -> Stats:
    return Stats(
        cache_memory_bytes=stats.cache_memory_bytes,
        hit_rate=stats.hit_rate,
        pressure=stats.pressure,
        t2_hit_tokens=stats.t2_hit_tokens,
        t2_query_tokens=stats.t2_query_tokens,
        requests_running=stats.requests_running,
        requests_waiting=stats.requests_waiting,
        kv_usage=stats.kv_usage,
        timestamp_us=stamp_us,
    )
