"""The slice reader: a file from anybody, cut anywhere, read and replayed.

A damaged file is refused by `UnreadableSliceError`, or by `UnreadableSnapshotError` where its base is the
damage. A forged one, whose checksums and seal are right, may lead anywhere, but never to a process that ends.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from random import Random
from typing import Final

import msgspec

from inferencecache.core.index.framing import DamagedFrameError, FrameReader, FrameWriter
from inferencecache.core.index.snapshot import UnreadableSnapshotError, encode_snapshot
from inferencecache.core.log.subjects import partition_key
from inferencecache.core.replay import UnreadableSliceError, read_slice
from inferencecache.core.replay.slices import MAGIC
from inferencecache.schemas.positions import Position
from tests.fuzz.mutation import mutate_bytes, mutate_msgpack
from tests.fuzz.target import Target
from tests.fuzz.worlds import log
from tests.support.slices import KEY, raw, replayed, slice_of

_HEAD: Final = struct.Struct("<IQ")
_END: Final = 6
"""Tag of the section that ends a slice."""
_PIECE: Final = 700


def run(data: bytes) -> None:
    try:
        slice_ = read_slice([data[at : at + _PIECE] for at in range(0, len(data), _PIECE)])
    except UnreadableSliceError:
        return
    for number, part in slice_.partitions.items():
        with suppress(UnreadableSnapshotError):
            rebuild = replayed(part, partition_key(slice_.layout.generation, number))
            assert rebuild.position == part.last


@cache
def _seeds() -> tuple[bytes, ...]:
    messages = [raw(message) for message in log().messages]
    first = replayed(read_slice([slice_of(messages[:6])]).partitions[0])
    base = list(encode_snapshot(first.fold, Position(), KEY))
    return (
        slice_of(messages, policies={1: b"{}"}),
        slice_of(messages[6:], at=first.position, base=base),
        slice_of([]),
    )


def _payloads(data: bytes) -> Iterator[bytes]:
    with suppress(DamagedFrameError):
        yield from FrameReader().feed(data[len(MAGIC) :])


def _sealed(payloads: Sequence[bytes]) -> bytes:
    """The file of these sections, with the seal that belongs to them."""
    writer = FrameWriter()
    frames = [
        writer.frame(
            msgspec.msgpack.encode([_END, writer.seal]) if payload[1:2] == bytes([_END]) else payload
        )
        for payload in payloads
    ]
    return MAGIC + b"".join(frames)


def _mutate(random: Random, data: bytes) -> bytes:
    payloads = list(_payloads(data))
    if len(payloads) < 2 or random.randrange(4) == 0:
        return mutate_bytes(random, data or random.choice(_seeds()))
    at = random.randrange(len(payloads))
    match random.randrange(8):
        case 0:
            del payloads[at]
        case 1:
            payloads.insert(at, random.choice(payloads))
        case 2:
            other = random.randrange(len(payloads))
            payloads[at], payloads[other] = payloads[other], payloads[at]
        case 3:
            foreign = list(_payloads(random.choice(_seeds())))
            payloads[at] = random.choice(foreign)
        case _:
            payloads[at] = mutate_msgpack(random, payloads[at])
    return _sealed(payloads)


def _parts(data: bytes) -> list[bytes]:
    payloads = list(_payloads(data))
    whole = sum(_HEAD.size + len(payload) for payload in payloads)
    if not payloads or len(MAGIC) + whole != len(data):
        return [data]
    parts, at = [data[: len(MAGIC)]], len(MAGIC)
    for payload in payloads:
        end = at + _HEAD.size + len(payload)
        parts.append(data[at:end])
        at = end
    return parts


TARGET: Final = Target(run, _seeds, _mutate, _parts)
