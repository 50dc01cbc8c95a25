"""A snapshot is the state, or it is unreadable [architecture, section 3]."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from inferencecache.core.index.fold import Fold, LogMessage
from inferencecache.core.index.snapshot import (
    CHUNK_BYTES,
    SnapshotDecoder,
    UnreadableSnapshotError,
    encode_snapshot,
    load_fold,
    load_view,
)
from inferencecache.core.index.view import View
from inferencecache.schemas.ids import AdapterId, HashScheme, ModelId, ReplicaId, TenantId
from inferencecache.schemas.positions import Position
from inferencecache.schemas.records import (
    Alive,
    Begin,
    Credit,
    CreditedHolds,
    Gap,
    Gone,
    Stats,
    Stored,
    TenantPolicy,
    TenantQuota,
)
from tests.oracle.keys import key_of
from tests.oracle.logs import LogWriter, stored

GOLDEN = Path(__file__).parents[2] / "data" / "golden" / "snapshot_v1.hex"
"""The snapshot of the log that `write` writes, as version 1 first wrote it; never edited."""
DELTA = Position(7, 8, 9)
TENANT, MODEL = TenantId("t"), ModelId("m")
LFU = [TenantPolicy(TENANT, 5_000_000, lfu=True)]


def write() -> LogWriter:
    """A log that leaves something in every part of a snapshot."""
    log = LogWriter()
    log.claim()
    log.tick()
    log.sidecar("r", "i", 3, Begin("uid", "engine"), stored([b"block-01", b"block-02"], [16, 32]), Stats())
    log.sidecar("r", "i", 4, Gap(), stored([b"block-02"], [32], tier=2), Alive(), age_ms=500)
    log.report("s", stored([b"short"], [5], adapter="lora"), stored([b"x" * 32], [9], scheme="other"))
    log.sidecar("gone", "i", 0, Begin("gone uid"))
    log.control("c", Gone(TENANT, ReplicaId("gone"), "gone uid"))
    log.apply_policy(LFU, [TenantQuota(TENANT, 100)], revision=5)
    log.budget(50)
    credited = CreditedHolds(
        TENANT,
        MODEL,
        HashScheme("vllm"),
        AdapterId(""),
        8,
        ReplicaId("r"),
        struct.pack("<Q", key_of(b"block-02")[1]),
        struct.pack("<I", 3),
    )
    log.control("r", Credit((credited,)))
    return log


def folded(messages: list[LogMessage]) -> Fold:
    fold = Fold(1 << 8)
    for message in messages:
        fold.fold(message)
    return fold


def state(fold: Fold) -> tuple[object, ...]:
    view = fold.view
    return (
        view.digest,
        view.access_digest,
        (view.log, view.time_us, view.log_epoch, view.owner, view.owner_epoch),
        (fold.clock, fold.lives, fold.gone_uids, fold.policy, fold.budget),
        dict(view.rows),
        {holding.name: holding for holding in view.holdings()},
    )


SNAPSHOT = b"".join(encode_snapshot(folded(write().messages), DELTA, "1.0"))


def test_a_fold_goes_on_where_its_snapshot_was_taken() -> None:
    log = write()
    fold = folded(log.messages)
    loaded = load_fold(encode_snapshot(fold, DELTA))
    assert state(loaded) == state(fold)
    assert loaded.view.delta == DELTA
    assert loaded.changes.kept_from == fold.view.log
    before = len(log.messages)
    log.sidecar("r", "i", 5, stored([b"block-03"], [48]))
    log.sidecar("gone", "i", 1, stored([b"block-03"], [48]))
    log.budget(2)
    log.report("s", Stats())
    log.sweep_interval_s = 1
    for _ in range(8):
        log.tick()
    for message in log.messages[before:]:
        assert loaded.fold(message) == fold.fold(message)
        assert state(loaded) == state(fold)


def test_snapshots_of_version_1_stay_readable() -> None:
    golden = load_fold([bytes.fromhex(GOLDEN.read_text())])
    assert state(golden) == state(folded(write().messages))


def test_a_router_loads_what_it_needs() -> None:
    fold = folded(write().messages)
    view = load_view([SNAPSHOT])
    assert (view.digest, view.log, view.delta, view.time_us) == (
        fold.view.digest,
        fold.view.log,
        DELTA,
        fold.view.time_us,
    )
    assert (view.log_epoch, view.owner, view.owner_epoch) == ("epoch", "owner", 1)
    assert dict(view.rows) == dict(fold.view.rows)
    assert (view.access_digest, view.entries) == (0, fold.view.entries)


def test_an_empty_state_has_a_snapshot() -> None:
    assert state(load_fold(encode_snapshot(Fold(1), Position()))) == state(Fold(1))


def test_the_header_comes_first_and_says_what_is_inside() -> None:
    decoder = SnapshotDecoder(View(1))
    for number, byte in enumerate(SNAPSHOT):
        decoder.feed(bytes((byte,)))
        if decoder.header is not None:
            assert number < 200
            break
    header = decoder.header
    assert header is not None
    assert (header.format, header.partition, header.delta, header.entries) == (1, "1.0", DELTA, 4)


@given(st.lists(st.integers(0, len(SNAPSHOT))))
def test_a_snapshot_may_be_cut_anywhere(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(SNAPSHOT)]
    chunks = [SNAPSHOT[start:end] for start, end in pairwise(edges)]
    assert state(load_fold(chunks)) == state(folded(write().messages))


@given(st.integers(0, len(SNAPSHOT) - 1))
def test_a_part_of_a_snapshot_is_unreadable(length: int) -> None:
    for load in (load_view, load_fold):
        with pytest.raises(UnreadableSnapshotError):
            load([SNAPSHOT[:length]])


@given(st.integers(0, len(SNAPSHOT) - 1), st.integers(1, 255))
def test_a_damaged_snapshot_is_unreadable(at: int, flipped: int) -> None:
    damaged = bytearray(SNAPSHOT)
    damaged[at] ^= flipped
    for load in (load_view, load_fold):
        with pytest.raises(UnreadableSnapshotError):
            load([bytes(damaged)])


@given(st.binary(max_size=200))
def test_what_follows_the_end_is_damage(more: bytes) -> None:
    if more:
        with pytest.raises(UnreadableSnapshotError):
            load_view([SNAPSHOT, more])


def sections() -> Iterator[list[object]]:
    """The sections of a snapshot, as plain arrays that begin with their tag."""
    data = SNAPSHOT
    while data:
        length, _ = struct.unpack_from("<IQ", data)
        yield msgspec.msgpack.decode(data[12 : 12 + length])
        data = data[12 + length :]


def sealed(changed: list[list[object]]) -> bytes:
    """A snapshot of these sections with sound checksums and seal."""
    heads = written = b""
    for section in changed:
        payload = msgspec.msgpack.encode([8, xxh3_64_intdigest(heads)] if section[0] == 8 else section)
        head = struct.pack("<IQ", len(payload), xxh3_64_intdigest(payload))
        heads += head
        written += head + payload
    return written


def test_sections_that_are_sealed_anew_are_the_snapshot() -> None:
    assert sealed(list(sections())) == SNAPSHOT


NAME = ["t", "m", "vllm", "nobody's", 8, "r"]


@pytest.mark.parametrize(
    ("tag", "field", "change", "reason"),
    [
        (1, 1, lambda _: 2, "format 2"),
        (1, 9, lambda digest: digest ^ 1, "digest"),
        (2, 1, lambda names: [*names, NAME], "without holds"),
        (2, 1, lambda names: names[::-1], "digest"),
        (3, 1, lambda owners: b"\x63\0\0\0" * (len(owners) // 4), "unknown holder"),
        (3, 1, lambda owners: b"\xff" * len(owners), "unknown holder"),
        (3, 2, lambda keys: keys[:-8], "different lengths"),
        (3, 2, lambda keys: keys[:-1], "a section of"),
        (3, 4, lambda counts: bytes(len(counts)), "digest"),
        (3, 5, lambda marks: bytes(len(marks)), "without a tier"),
        (4, 1, lambda _: [], "digest"),
    ],
)
def test_a_snapshot_that_contradicts_itself_is_unreadable(
    tag: int, field: int, change: Callable[[object], object], reason: str
) -> None:
    changed = list(sections())
    for section in changed:
        if section[0] == tag:
            section[field] = change(section[field])
    with pytest.raises(UnreadableSnapshotError, match=reason):
        load_view([sealed(changed)])


def test_a_section_of_an_unknown_kind_is_unreadable() -> None:
    first, *others = sections()
    with pytest.raises(UnreadableSnapshotError):
        load_view([sealed([first, [99], *others])])


def large(entries: int) -> Fold:
    """A fold of so many holds."""
    fold, log = Fold(entries), LogWriter()
    hashes = np.random.default_rng(1).integers(0, 2**64, entries, dtype=np.uint64).tobytes()
    log.report("r", Stored(HashScheme("vllm"), AdapterId(""), 1, 8, hashes, bytes(4 * entries)))
    fold.fold(log.messages[0])
    return fold


def copying_peak(fold: Fold) -> int:
    """Bytes that are needed at most for writing the state and reading it, beside both states."""
    decoder = SnapshotDecoder(View(len(fold.view.table)))
    tracemalloc.start()
    for chunk in encode_snapshot(fold, Position()):
        assert len(chunk) <= CHUNK_BYTES
        decoder.feed(chunk)
    decoder.finish()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def test_a_large_state_streams_in_chunks_of_a_megabyte_in_little_memory() -> None:
    small, large_peak = copying_peak(large(100_000)), copying_peak(large(400_000))
    assert large_peak < 12 * CHUNK_BYTES
    assert large_peak - small < CHUNK_BYTES
