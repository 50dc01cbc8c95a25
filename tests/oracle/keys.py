"""The index key of a hash, spelled out."""

from __future__ import annotations

from xxhash import xxh3_64_intdigest

SHORT, EXACT, LONG = 0, 8, 9
"""Width classes: up to 7 bytes, 8 bytes, more."""


def key_of(hash_: bytes) -> tuple[int, int]:
    """(width class, 64-bit key) of a hash."""
    if len(hash_) < 8:
        return SHORT, int.from_bytes(hash_.ljust(7, b"\0") + bytes([len(hash_)]), "big")
    if len(hash_) == 8:
        return EXACT, int.from_bytes(hash_, "big")
    return LONG, xxh3_64_intdigest(hash_)
