"""The state of a partition as a stream of bytes, format version 1.

A snapshot is a sequence of frames, each with a section in MessagePack. The header comes first, then holder
names, holds and replica rows; then what only indexers need, access counts and the fold's own memory; then
the end, without which it is incomplete, and which seals the frames before it. The digests of what was read
must be those of the header.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec
import numpy as np

from inferencecache.core.index.clock import LogClock
from inferencecache.core.index.eviction import Begun
from inferencecache.core.index.fold import Fold
from inferencecache.core.index.framing import DamagedFrameError, FrameReader, FrameWriter
from inferencecache.core.index.holders import Holder
from inferencecache.core.index.lives import Life
from inferencecache.core.index.table import AccessColumns, Columns
from inferencecache.core.index.view import View
from inferencecache.schemas.deltas import HolderName, ReplicaName, ReplicaRow
from inferencecache.schemas.ids import LogEpoch, OwnerId
from inferencecache.schemas.positions import Position
from inferencecache.schemas.records import TIER_T1, Budget, PolicyApplied

SNAPSHOT_FORMAT: Final = 1
CHUNK_BYTES: Final = 1 << 20
_MOST_RESERVED: Final = 1 << 24
"""Room for more holds than these is made only once they are there, whatever a header claims."""
_HOLDS: Final = 32_768
_NAMES: Final = 2_048
"""Holds and names in a frame, which takes less than a megabyte then."""

_T = TypeVar("_T")


class UnreadableSnapshotError(Exception):
    """A snapshot that is damaged, incomplete, of an unknown format, or does not lead to its digest."""


class _Section(msgspec.Struct, frozen=True, array_like=True, tag_field="t"):
    """Base of all sections; tag numbers never change and are never reused."""


class Header(_Section, frozen=True, tag=1):
    """What is in the snapshot; `entries` are all its holds, `delta` the last delta contained in it."""

    format: int
    partition: str
    log_epoch: LogEpoch
    owner: OwnerId
    owner_epoch: int
    log: Position
    delta: Position
    time_us: int
    digest: int
    access_digest: int
    entries: int


class _Names(_Section, frozen=True, tag=2):
    """Holders; the sections that follow number all of them from 0."""

    names: tuple[HolderName, ...]


class _Holds(_Section, frozen=True, tag=3):
    """Columns of holds: int32 holders, uint64 keys, int64 times in µs, int32 token counts and uint32 marks
    (twice the tier, plus 1 if uncertain), little-endian.
    """

    owners: bytes
    keys: bytes
    seen_us: bytes
    token_counts: bytes
    marks: bytes


class _Rows(_Section, frozen=True, tag=4):
    rows: tuple[ReplicaRow, ...]


class _Accesses(_Section, frozen=True, tag=5):
    """Columns of access counts: int32 holders, uint64 keys, uint32 counts, little-endian."""

    owners: bytes
    keys: bytes
    counts: bytes


class _Lives(_Section, frozen=True, tag=6):
    lives: tuple[tuple[ReplicaName, Life], ...]


class _Memory(_Section, frozen=True, tag=7):
    """What the fold keeps besides: clock, uids of deleted pods, policy and budget in force, and what of them
    is being enforced.
    """

    clock: LogClock
    gone_uids: dict[str, int]
    policy: PolicyApplied
    budget: Budget
    begun: Begun = Begun()


class _End(_Section, frozen=True, tag=8):
    """`seal` is that of all frames before this one."""

    seal: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(
    Header | _Names | _Holds | _Rows | _Accesses | _Lives | _Memory | _End,
)


# --------------------------------------------------------------------------------------------- writing


def encode_snapshot(fold: Fold, delta: Position, partition: str = "") -> Iterator[bytes]:
    """The state of a fold in chunks of at most 1 MiB.

    `delta` is the position of the last delta that the state contains. The fold must not move on before
    the last chunk is taken.
    """
    chunk = bytearray()
    for frame in _frames(_sections(fold, delta, partition)):
        chunk += frame
        while len(chunk) >= CHUNK_BYTES:
            yield bytes(chunk[:CHUNK_BYTES])
            del chunk[:CHUNK_BYTES]
    if chunk:
        yield bytes(chunk)


def _frames(sections: Iterator[_Section]) -> Iterator[bytes]:
    """The sections and the end, framed."""
    writer = FrameWriter()
    for section in sections:
        yield writer.frame(_encoder.encode(section))
    yield writer.frame(_encoder.encode(_End(writer.seal)))


def _sections(fold: Fold, delta: Position, partition: str) -> Iterator[_Section]:
    view = fold.view
    yield Header(
        SNAPSHOT_FORMAT,
        partition,
        view.log_epoch,
        view.owner,
        view.owner_epoch,
        view.log,
        delta,
        view.time_us,
        view.digest,
        view.access_digest,
        len(view.table),
    )
    holders = list(view.holders.by_number.values())
    index_of = np.zeros(max(view.holders.by_number, default=0) + 1, np.int32)
    for index, holder in enumerate(holders):
        index_of[holder.number] = index
    for part in _parts([holder.name for holder in holders]):
        yield _Names(part)
    for columns in view.table.export(index_of, _HOLDS):
        yield _Holds(*(column.tobytes() for column in columns))
    for rows in _parts(list(view.rows.values())):
        yield _Rows(rows)
    for accesses in view.table.export_access(index_of, _HOLDS):
        yield _Accesses(*(column.tobytes() for column in accesses))
    for lives in _parts(list(fold.lives.items())):
        yield _Lives(lives)
    yield _Memory(fold.clock, fold.gone_uids, fold.policy, fold.budget, fold.begun)


def _parts(items: Sequence[_T]) -> Iterator[tuple[_T, ...]]:
    for start in range(0, len(items), _NAMES):
        yield tuple(items[start : start + _NAMES])


# --------------------------------------------------------------------------------------------- reading


def load_view(chunks: Iterable[bytes], capacity: int = 1 << 16) -> View:
    """What routers hold of a snapshot. Raises `UnreadableSnapshotError`."""
    view = View(capacity)
    _load(SnapshotDecoder(view), chunks)
    return view


def load_fold(chunks: Iterable[bytes], capacity: int = 1 << 16) -> Fold:
    """A fold that stands where the snapshot was taken. Raises `UnreadableSnapshotError`."""
    fold = Fold(capacity)
    _load(SnapshotDecoder(fold), chunks)
    return fold


def _load(decoder: SnapshotDecoder, chunks: Iterable[bytes]) -> None:
    for chunk in chunks:
        decoder.feed(chunk)
    decoder.finish()


class SnapshotDecoder:
    """Reads a snapshot into an empty view or fold, chunk by chunk; of any size, cut anywhere.

    After an `UnreadableSnapshotError` the view or fold is to be thrown away. `header` is there as soon
    as it has been read.
    """

    def __init__(self, into: View | Fold) -> None:
        self._fold = into if isinstance(into, Fold) else None
        self._view = into.view if isinstance(into, Fold) else into
        self._frames = FrameReader()
        self._holders: list[Holder] = []
        self._numbers = np.zeros(0, np.int32)
        self._is_ended = False
        self.header: Header | None = None

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes. Raises `UnreadableSnapshotError`."""
        try:
            for payload in self._frames.feed(chunk):
                self._take(payload)
        except DamagedFrameError as error:
            raise UnreadableSnapshotError(str(error)) from None

    def finish(self) -> None:
        """The stream is at its end. Raises `UnreadableSnapshotError` if the snapshot is not."""
        header, view = self.header, self._view
        if header is None or not (self._is_ended and self._frames.is_whole):
            raise UnreadableSnapshotError("the snapshot is incomplete")
        if view.digest != header.digest or (self._fold and view.access_digest != header.access_digest):
            raise UnreadableSnapshotError(f"digest {view.digest:016x}, the header says {header.digest:016x}")
        if not all(holder.entries for holder in self._holders):
            raise UnreadableSnapshotError("a holder without holds")
        view.log_epoch = header.log_epoch
        view.owner, view.owner_epoch = header.owner, header.owner_epoch
        view.log, view.delta = header.log, header.delta
        view.time_us = header.time_us
        if self._fold is not None:
            self._fold.changes.kept_from = header.log

    def _take(self, payload: bytes) -> None:
        try:
            section = _decoder.decode(payload)
            if isinstance(section, Header) != (self.header is None) or self._is_ended:
                raise UnreadableSnapshotError(f"{type(section).__name__} out of place")
            self._read(section)
        except (msgspec.DecodeError, ValueError, OverflowError, RecursionError) as error:
            raise UnreadableSnapshotError(f"a section of {len(payload)} bytes: {error}") from error

    def _read(self, section: _Section) -> None:
        match section:
            case Header():
                if section.format != SNAPSHOT_FORMAT:
                    text = f"snapshot format {section.format}, this version reads {SNAPSHOT_FORMAT}"
                    raise UnreadableSnapshotError(text)
                self.header = section
                self._view.table.reserve(min(section.entries, _MOST_RESERVED))
            case _Names():
                self._holders += [self._view.open_holder(name) for name in section.names]
                self._numbers = np.array([holder.number for holder in self._holders], np.int32)
            case _Holds():
                self._read_holds(section)
            case _Rows():
                for row in section.rows:
                    self._view.put_row(row)
            case _End():
                if section.seal != self._frames.seal:
                    raise UnreadableSnapshotError("frames are missing, repeated or out of place")
                self._is_ended = True
            case _ if self._fold is not None:
                self._read_memory(self._fold, section)

    def _read_holds(self, section: _Holds) -> None:
        columns = Columns(
            np.frombuffer(section.owners, np.int32),
            np.frombuffer(section.keys, np.uint64),
            np.frombuffer(section.seen_us, np.int64),
            np.frombuffer(section.token_counts, np.int32),
            np.frombuffer(section.marks, np.uint32),
        )
        self._check(columns.owners, *columns[1:])
        if len(columns.marks) and columns.marks.min() < TIER_T1 << 1:
            raise UnreadableSnapshotError("a hold without a tier")
        self._view.load(self._holders, self._numbers, columns)

    def _read_memory(self, fold: Fold, section: _Section) -> None:
        match section:
            case _Accesses():
                owners = np.frombuffer(section.owners, np.int32)
                keys = np.frombuffer(section.keys, np.uint64)
                counts = np.frombuffer(section.counts, np.uint32)
                self._check(owners, keys, counts)
                fold.view.credit(AccessColumns(self._numbers[owners], keys, counts))
            case _Lives():
                fold.lives.update(section.lives)
            case _Memory():
                fold.recall(section.clock, section.gone_uids, section.policy, section.budget, section.begun)

    def _check(self, owners: np.ndarray, *columns: np.ndarray) -> None:
        if any(len(column) != len(owners) for column in columns):
            raise UnreadableSnapshotError("columns of different lengths")
        if len(owners) and not 0 <= owners.min() <= owners.max() < len(self._numbers):
            raise UnreadableSnapshotError("a hold of an unknown holder")
