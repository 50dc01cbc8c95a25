"""A stream of bytes as frames, so that damage is found where it is.

A frame is 4 bytes of length, 8 bytes of XXH3-64 (both little-endian) and a payload. What follows from the
heads, length and checksum, of all frames so far is their *seal*: a stream whose last frame states the seal of
those before it has none that is lost, repeated, moved or another stream's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from xxhash import xxh3_64, xxh3_64_intdigest

MOST_BYTES: Final = 1 << 26
"""Of one payload; a longer one is taken for damage."""
_HEAD: Final = struct.Struct("<IQ")


class DamagedFrameError(ValueError):
    """Bytes that are no frames."""


class FrameWriter:
    """Frames payloads, one after the other."""

    def __init__(self) -> None:
        self._seal = xxh3_64()

    @property
    def seal(self) -> int:
        """The seal of all frames so far."""
        return self._seal.intdigest()

    def frame(self, payload: bytes) -> bytes:
        """The payload with its head."""
        head = _HEAD.pack(len(payload), xxh3_64_intdigest(payload))
        self._seal.update(head)
        return head + payload


class FrameReader:
    """Takes a stream as it comes, of any size and cut anywhere, and has at most one frame of it in hand."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._seal = xxh3_64()

    @property
    def seal(self) -> int:
        """The seal of the frames before the one that was read last."""
        return self._seal.intdigest()

    @property
    def is_whole(self) -> bool:
        """Did the stream so far end with a frame?"""
        return not self._pending

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The payloads that end in this chunk; to be read to its end. Raises `DamagedFrameError`."""
        pending = self._pending
        pending += chunk
        start = 0
        while len(pending) - start >= _HEAD.size:
            length, check = _HEAD.unpack_from(pending, start)
            if length > MOST_BYTES:
                raise DamagedFrameError(f"a frame of {length} bytes")
            end = start + _HEAD.size + length
            if end > len(pending):
                break
            payload = bytes(memoryview(pending)[start + _HEAD.size : end])
            if xxh3_64_intdigest(payload) != check:
                raise DamagedFrameError("a frame's checksum is wrong")
            yield payload
            self._seal.update(memoryview(pending)[start : start + _HEAD.size])
            start = end
        del pending[:start]
