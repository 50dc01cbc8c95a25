"""From hashes of any width to the 64-bit keys of the index.

Hashes stay as given in the log; the index compares 64-bit keys inside a *width class*, which is part
of the keyspace. Class 0 takes up to 7 bytes, padded with zeros to 7 and followed by the length, so
that different hashes have different keys in the same order. Class 8 takes 8 bytes as they are. Class 9
takes longer hashes by XXH3-64: two of them share a key with a probability of 2**-64 a pair, and ties
that are broken by hash are broken by key there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

SHORT: Final = 0
EXACT: Final = 8
LONG: Final = 9

Keys = NDArray[np.uint64]


class MalformedHashesError(ValueError):
    """A packed column whose length is no multiple of its width, or of a negative width or count."""


def width_class(width: int) -> int:
    """The width class of hashes of `width` bytes."""
    if width < EXACT:
        return SHORT
    return EXACT if width == EXACT else LONG


def key_of(hash_: bytes) -> tuple[int, int]:
    """(width class, 64-bit key) of one hash."""
    width = len(hash_)
    if width < EXACT:
        return SHORT, int.from_bytes(hash_.ljust(EXACT - 1, b"\0") + bytes((width,)), "big")
    if width == EXACT:
        return EXACT, int.from_bytes(hash_, "big")
    return LONG, xxh3_64_intdigest(hash_)


def key_array(width: int, hashes: bytes, count: int | None = None) -> tuple[int, Keys]:
    """(width class, keys) of a packed column of hashes of one width.

    `count` is needed only for width 0, the column of empty hashes. Raises `MalformedHashesError`.
    """
    if width == EXACT:
        if len(hashes) % EXACT:
            raise MalformedHashesError(f"{len(hashes)} bytes of hashes of {width}")
        return EXACT, np.frombuffer(hashes, np.uint64).byteswap()
    if width == 0:
        if hashes or count is None or count < 0:
            raise MalformedHashesError(f"{len(hashes)} bytes in a column of {count} empty hashes")
        return SHORT, np.zeros(count, np.uint64)
    if width < 0 or len(hashes) % width:
        raise MalformedHashesError(f"{len(hashes)} bytes of hashes of {width}")
    if width > EXACT:
        starts = range(0, len(hashes), width)
        long = [xxh3_64_intdigest(hashes[start : start + width]) for start in starts]
        return LONG, np.array(long, np.uint64)
    rows = np.frombuffer(hashes, np.uint8).reshape(-1, width)
    padded = np.zeros((len(rows), EXACT), np.uint8)
    padded[:, :width] = rows
    padded[:, EXACT - 1] = width
    return SHORT, padded.reshape(-1).view(np.uint64).byteswap()


def keys_of(width: int, hashes: bytes, count: int | None = None) -> tuple[int, bytes]:
    """As `key_array`, the keys packed as uint64 little-endian each."""
    class_, keys = key_array(width, hashes, count)
    return class_, keys.tobytes()


def chain_keys(hashes: Sequence[bytes]) -> tuple[list[int], Keys]:
    """Width classes and keys of a chain; one class stands for all when they are equal."""
    if len(set(map(len, hashes))) == 1:
        class_, keys = key_array(len(hashes[0]), b"".join(hashes), len(hashes))
        return [class_], keys
    pairs = [key_of(hash_) for hash_ in hashes]
    return [class_ for class_, _ in pairs], np.array([key for _, key in pairs], np.uint64)
