"""From what gRPC producers say to records, and from records to messages of the log."""

from __future__ import annotations

import struct
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferencecache.router.packing import MOST_RECORDS, pack
from inferencecache.router.translate import records_of_event, records_of_update
from inferencecache.schemas.ids import AdapterId, HashScheme
from inferencecache.schemas.records import (
    AnyRecord,
    Batch,
    Cleared,
    Event,
    Evicted,
    Stats,
    Stored,
    decode_batch,
    encode_batch,
)
from inferencecache.v1alpha1.inferencecache_pb2 import (
    CacheEvent,
    CacheStateUpdate,
    PrefixEntry,
    ReplicaStats,
)

Upsert = tuple[str, int, bytes, int]


def update(*entries: PrefixEntry, **more: Any) -> CacheStateUpdate:
    fields: dict[str, Any] = {"hash_scheme": "vllm", "timestamp_us": 7, "prefixes": entries}
    return CacheStateUpdate(**fields | more)


def stored(adapter: str, tier: int, width: int, hashes: bytes, *counts: int) -> Stored:
    packed = struct.pack(f"<{len(counts)}i", *counts)
    return Stored(HashScheme("vllm"), AdapterId(adapter), tier, width, hashes, packed, 7)


def upserts_of(records: list[AnyRecord]) -> list[Upsert]:
    """What the records store, one by one."""
    upserts: list[Upsert] = []
    for record in records:
        assert isinstance(record, Stored)
        counts = struct.unpack(f"<{len(record.token_counts) // 4}i", record.token_counts)
        for number, count in enumerate(counts):
            hash_ = record.hashes[number * record.width : (number + 1) * record.width]
            upserts.append((record.adapter, record.tier, hash_, count))
    return upserts


@pytest.mark.rule("IDX-24", "IDX-26", "WIRE-091")
def test_a_chain_has_cumulative_counts_and_its_own_key_comes_last() -> None:
    entry = PrefixEntry(
        block_hashes=[b"b1", b"b2"], block_token_counts=[16, 20], prefix_hash=b"full", token_count=5
    )
    assert list(records_of_update(update(entry))) == [
        stored("", 0, 2, b"b1b2", 16, 36),
        stored("", 0, 4, b"full", 5),
    ]


@pytest.mark.rule("IDX-16", "IDX-22", "WIRE-089")
def test_neighbours_with_one_adapter_tier_and_width_share_a_record() -> None:
    records = records_of_update(
        update(
            PrefixEntry(block_hashes=[b"a", b"b"], block_token_counts=[1, 2]),
            PrefixEntry(prefix_hash=b"c", token_count=9),
            PrefixEntry(prefix_hash=b"d", token_count=9, tier=2),  # type: ignore[arg-type]
            PrefixEntry(prefix_hash=b"e", token_count=9, adapter_id="own"),
            PrefixEntry(prefix_hash=b"a", token_count=8),
            adapter_id="default",
        )
    )
    assert list(records) == [
        stored("default", 0, 1, b"abc", 1, 3, 9),
        stored("default", 2, 1, b"d", 9),
        stored("own", 0, 1, b"e", 9),
        stored("default", 0, 1, b"a", 8),
    ]


@pytest.mark.rule("IDX-23", "WIRE-090")
def test_empty_hashes_are_keys_too() -> None:
    entries = [PrefixEntry(token_count=1), PrefixEntry(block_hashes=[b"", b""], block_token_counts=[2, 3])]
    assert list(records_of_update(update(*entries))) == [stored("", 0, 0, b"", 1, 2, 5)]


@pytest.mark.rule("IDX-25", "IDX-W34", "WIRE-C32")
@pytest.mark.parametrize(
    "broken",
    [
        PrefixEntry(block_hashes=[b"a", b"b", b"c"], block_token_counts=[16], prefix_hash=b"p"),
        PrefixEntry(block_hashes=[b"a"], prefix_hash=b"p"),
        PrefixEntry(block_token_counts=[16, 16], prefix_hash=b"p", token_count=64),
    ],
)
def test_an_entry_with_unequal_arrays_is_dropped_alone(broken: PrefixEntry) -> None:
    good = PrefixEntry(prefix_hash=b"x", token_count=1)
    assert list(records_of_update(update(broken, good))) == [stored("", 0, 1, b"x", 1)]


@pytest.mark.rule("IDX-21", "IDX-W37", "WIRE-088")
def test_without_a_scheme_only_statistics_are_taken() -> None:
    stats = ReplicaStats(
        replica_id="ignored",
        cache_memory_bytes=1,
        hit_rate=0.5,
        pressure=0.25,
        client_version="ignored",
        t2_hit_tokens=2,
        t2_query_tokens=3,
        requests_running=4,
        requests_waiting=5,
        kv_usage=0.75,
    )
    entry = PrefixEntry(prefix_hash=b"p", token_count=1)
    records = list(records_of_update(update(entry, hash_scheme="", stats=stats)))
    assert records == [Stats(1, 0.5, 0.25, 2, 3, 4, 5, 0.75, 7)]
    assert list(records_of_update(update(entry, hash_scheme=""))) == []


@pytest.mark.rule("IDX-38", "WIRE-006")
def test_statistics_that_are_all_zero_are_statistics() -> None:
    assert list(records_of_update(update(stats=ReplicaStats()))) == [Stats(timestamp_us=7)]


@pytest.mark.rule("IDX-29", "WIRE-028")
def test_cumulative_counts_wrap_around() -> None:
    entry = PrefixEntry(block_hashes=[b"a", b"b", b"c"], block_token_counts=[2**31 - 1, 1, -1])
    assert list(records_of_update(update(entry))) == [
        stored("", 0, 1, b"abc", 2**31 - 1, -(2**31), 2**31 - 1)
    ]


@pytest.mark.rule("WIRE-100", "WIRE-101", "WIRE-103", "WIRE-104", "IDX-43", "IDX-44")
@pytest.mark.parametrize(
    ("type_", "record"),
    [
        (CacheEvent.PREFIX_EVICTED, Evicted(AdapterId("a"), 2, b"pp", 1, 7)),
        (CacheEvent.ALL_CLEARED, Cleared(7)),
        (CacheEvent.PREFIX_ADDED, Event(1, b"pp", AdapterId("a"), 7)),
        (CacheEvent.REPLICA_UPDATED, Event(3, b"pp", AdapterId("a"), 7)),
        (77, Event(77, b"pp", AdapterId("a"), 7)),
        (-1, Event(-1, b"pp", AdapterId("a"), 7)),
    ],
)
def test_an_event_becomes_the_record_of_its_effect(type_: Any, record: AnyRecord) -> None:
    event = CacheEvent(type=type_, prefix_hash=b"pp", adapter_id="a", timestamp_us=7)
    assert records_of_event(event) == (record,)


@pytest.mark.rule("WIRE-107")
def test_an_eviction_of_the_empty_hash_says_how_many() -> None:
    (record,) = records_of_event(CacheEvent(type=CacheEvent.PREFIX_EVICTED))
    assert record == Evicted(AdapterId(""), 0, b"", 1, 0)


hashes = st.binary(max_size=3)
counts = st.integers(-(2**31), 2**31 - 1)
entries = st.builds(
    PrefixEntry,
    prefix_hash=hashes,
    token_count=counts,
    block_hashes=st.lists(hashes, max_size=5),
    block_token_counts=st.lists(counts, max_size=5),
    tier=st.integers(-2, 5),
    adapter_id=st.sampled_from(["", "a", "b"]),
)


@given(entries=st.lists(entries, max_size=6), default=st.sampled_from(["", "a"]))
def test_the_records_store_what_the_entries_say_in_their_order(
    entries: list[PrefixEntry], default: str
) -> None:
    expected: list[Upsert] = []
    for entry in entries:
        where = entry.adapter_id or default, entry.tier
        if not entry.block_hashes and not entry.block_token_counts:
            expected.append((*where, entry.prefix_hash, entry.token_count))
        elif len(entry.block_hashes) == len(entry.block_token_counts):
            totals = accumulate(entry.block_token_counts)
            for hash_, running in zip(entry.block_hashes, totals, strict=True):
                expected.append((*where, hash_, (running + 2**31) % 2**32 - 2**31))
            if entry.prefix_hash:
                expected.append((*where, entry.prefix_hash, entry.token_count))
    records = list(records_of_update(update(*entries, adapter_id=default)))
    assert upserts_of(records) == expected


@given(entries=st.lists(entries, max_size=20), limit=st.sampled_from([2000, 5000, 100_000]))
def test_batches_hold_the_same_records_in_order_and_fit_the_limit(
    entries: list[PrefixEntry], limit: int
) -> None:
    records = list(records_of_update(update(*entries)))
    batches = list(pack(records, limit))
    assert all(len(payload) <= limit for payload in batches)
    unpacked = [record for payload in batches for record in decode_batch(payload).batch.records]
    assert upserts_of(unpacked) == upserts_of(records)


@pytest.mark.parametrize("width", [0, 1, 8, 32])
def test_a_column_that_does_not_fit_is_cut_between_blocks(width: int) -> None:
    record = stored("adapter", 2, width, bytes(range(256)) * width, *range(256))
    batches = list(pack([Stats(timestamp_us=7), record, Cleared(9)], 1000))
    assert len(batches) > 1
    assert all(len(payload) <= 1000 for payload in batches)
    unpacked = [record for payload in batches for record in decode_batch(payload).batch.records]
    assert (unpacked[0], unpacked[-1]) == (Stats(timestamp_us=7), Cleared(9))
    assert upserts_of(unpacked[1:-1]) == upserts_of([record])
    assert {type(record) for record in unpacked[1:-1]} == {Stored}


@pytest.mark.rule("IDX-16")
def test_an_update_that_fits_is_one_batch_and_nothing_is_one_too() -> None:
    records = list(records_of_update(update(*[PrefixEntry(prefix_hash=b"p", token_count=1)] * 50)))
    assert list(pack(records, 100_000)) == [encode_batch(Batch(records=tuple(records)))]
    assert list(pack([], 100_000)) == [encode_batch(Batch())]


def test_very_many_records_are_several_batches_however_small_they_are() -> None:
    records = [Stats(timestamp_us=number) for number in range(2 * MOST_RECORDS + 1)]
    batches = [decode_batch(payload).batch.records for payload in pack(records, 1_000_000)]
    assert [len(batch) for batch in batches] == [MOST_RECORDS, MOST_RECORDS, 1]
    assert [record for batch in batches for record in batch] == records
