"""The snapshot decoder: a stream of bytes, cut anywhere, read into a fold and into a view.

A damaged stream is refused by `UnreadableSnapshotError` or gives the very state that was written. A forged
one, whose checksums are right, may give another state, which then is consistent in itself.
"""

from __future__ import annotations

import gc
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from random import Random
from typing import Final, TypeVar

import msgspec
from xxhash import xxh3_64_intdigest

from inferencecache.core.index.fold import Fold
from inferencecache.core.index.snapshot import (
    Header,
    SnapshotDecoder,
    UnreadableSnapshotError,
    encode_snapshot,
)
from inferencecache.core.index.view import View
from inferencecache.schemas.positions import Position
from tests.fuzz.mutation import mutate_bytes, mutate_msgpack
from tests.fuzz.target import Target
from tests.fuzz.worlds import FoldState, access_digest_of, digest_of, fold_state_of, folded, log, state_of
from tests.oracle.logs import LogWriter, stored

_Into = TypeVar("_Into", View, Fold)
_FRAME: Final = struct.Struct("<IQ")
_FORGED: Final = "forged"
"""Partition that a snapshot with changed sections names in its header."""
_END: Final = b"\x08"
"""Tag of the section that ends a snapshot."""
_MANY_ENTRIES: Final = 1 << 16


def run(data: bytes) -> None:
    fold, header = _read(data, Fold(1 << 8))
    view, _ = _read(data, View(1 << 8))
    if header is not None and header.entries > _MANY_ENTRIES:
        gc.collect()  # the room that was reserved is in a cycle
    if header is None:
        return
    if view is not None:
        assert digest_of(state_of(view)) == view.digest == header.digest
    if fold is None:
        return
    assert view is not None, "a fold is readable and its view is not"
    state = fold_state_of(fold)
    assert state_of(view) == state.view, "a view differs from the fold of the same bytes"
    assert access_digest_of(state) == fold.view.access_digest == header.access_digest
    assert len(fold.view.table) == len(state.view.holds)
    if header.partition != _FORGED:
        assert state == _states()[header.partition], "the state is not the one that was written"
    again, _ = _read(b"".join(encode_snapshot(fold, Position())), Fold(1 << 8))
    assert again is not None, "what was read cannot be read again"
    assert fold_state_of(again) == state, "the state does not survive its own snapshot"


def _read(data: bytes, into: _Into) -> tuple[_Into | None, Header | None]:
    decoder = SnapshotDecoder(into)
    try:
        for chunk in _chunks(data):
            decoder.feed(chunk)
        decoder.finish()
    except UnreadableSnapshotError:
        return None, decoder.header
    return into, decoder.header


def _chunks(data: bytes) -> Iterator[bytes]:
    """Cut somehow, and for the same data always alike."""
    random = Random(xxh3_64_intdigest(data))
    most = random.choice((1, 13, 500, 1 << 20)) if len(data) < 10_000 else 1 << 16
    at = 0
    while at < len(data):
        size = random.randint(0, most)
        yield data[at : at + size]
        at += size


# ------------------------------------------------------------------------------------------ inputs


@cache
def _written() -> Mapping[str, tuple[Fold, bytes]]:
    """Folds and their snapshots, by the partition that the snapshot names."""
    empty = LogWriter()
    begun = LogWriter()
    begun.claim(log_epoch="other")
    begun.report("r1", stored([b"block-00"], [16]))
    large = log()
    large.sidecar("r1", "life-0", 3, stored([b"%08d" % number for number in range(3000)], [16] * 3000))
    logs = {"empty": empty, "begun": begun, "full": log(), "large": large}
    written = {}
    for partition, writer in logs.items():
        fold = folded(writer)
        written[partition] = fold, b"".join(encode_snapshot(fold, Position(3, 5, 7), partition))
    return written


@cache
def _states() -> Mapping[str, FoldState]:
    return {partition: fold_state_of(fold) for partition, (fold, _) in _written().items()}


def _seeds() -> list[bytes]:
    snapshots = [snapshot for _, snapshot in _written().values()]
    return snapshots[:3] * 4 + snapshots[3:]


def _frames(data: bytes) -> list[bytes]:
    """The frames of a stream, each with its head; what is no whole frame is one too."""
    frames = []
    at = 0
    while at < len(data):
        end = len(data)
        if end - at >= _FRAME.size:
            end = min(end, at + _FRAME.size + _FRAME.unpack_from(data, at)[0])
        frames.append(data[at:end])
        at = end
    return frames


def _sealed(frames: Sequence[bytes]) -> bytes:
    """The stream with an end that seals what is before it, if it has an end."""
    if frames[-1][_FRAME.size + 1 : _FRAME.size + 2] == _END:
        seal = xxh3_64_intdigest(b"".join([frame[: _FRAME.size] for frame in frames[:-1]]))
        frames = [*frames[:-1], _framed(msgspec.msgpack.encode([_END[0], seal]))]
    return b"".join(frames)


def _framed(payload: bytes) -> bytes:
    return _FRAME.pack(len(payload), xxh3_64_intdigest(payload)) + payload


def _mutate(random: Random, data: bytes) -> bytes:
    frames = _frames(data)
    if not frames:
        return random.choice(_seeds())
    # Without its header a stream is read no further.
    at = 0 if random.randrange(12) == 0 else len(frames) - 1 - random.randrange(max(1, len(frames) - 1))
    match random.randrange(10):
        case 0:
            del frames[at]
        case 1:
            frames.insert(at, frames[at])
        case 2:
            other = random.randrange(at, len(frames))
            frames[at], frames[other] = frames[other], frames[at]
        case 3 | 4:
            foreign = random.choice(_frames(random.choice(_seeds())))
            frames[at : at + random.randrange(2)] = [foreign]
        case 5 | 6:
            return mutate_bytes(random, data)
        case _:
            frames[at] = _framed(mutate_msgpack(random, frames[at][_FRAME.size :]))
            return _forged(frames, claim_digests=random.randrange(4) > 0)
    return b"".join(frames)


def _forged(frames: Sequence[bytes], *, claim_digests: bool) -> bytes:
    """The stream with a header that says so, and that claims the digests which the sections lead to."""
    try:
        header = msgspec.msgpack.decode(frames[0][_FRAME.size :], type=Header)
    except (msgspec.DecodeError, ValueError):
        return b"".join(frames)
    header = msgspec.structs.replace(header, partition=_FORGED)
    if claim_digests and header.entries <= _MANY_ENTRIES:
        fold = Fold(1 << 8)
        decoder = SnapshotDecoder(fold)
        with suppress(UnreadableSnapshotError):
            decoder.feed(_sealed((_framed(msgspec.msgpack.encode(header)), *frames[1:])))
        view = fold.view
        header = msgspec.structs.replace(header, digest=view.digest, access_digest=view.access_digest)
    return _sealed((_framed(msgspec.msgpack.encode(header)), *frames[1:]))


TARGET: Final = Target(run, _seeds, _mutate, _frames)
