"""From token ids to block hashes: the keys under which engines and lookups find each other.

Engines seed their own block hashes with a random value a process, so the key is derived from token
ids alone, by producers and routers alike. Each full block of tokens is hashed by itself, then rolled
into the hash of everything before it, so that one hash identifies the whole prefix that ends in its
block. The construction is frozen [WIRE-150..161].
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Sequence
from itertools import accumulate, repeat
from typing import Final

from xxhash import xxh3_64_digest

SEED: Final = 1337
_TOKEN_BYTES: Final = 4


def content_hashes(tokens: Sequence[int], block_size: int) -> list[int]:
    """One hash for each full block, of its own tokens only [WIRE-151, WIRE-152].

    Raises `OverflowError` for a token id outside 0..2**32-1, as all functions here do.
    """
    return _as_integers(_content_digests(tokens, block_size))


def prefix_hashes(tokens: Sequence[int], block_size: int, parent: int | None = None) -> list[int]:
    """One hash for each full block, of everything up to its end [WIRE-153].

    `parent` is the prefix hash that the tokens continue from; 0 is a parent like any other [WIRE-154].
    """
    return _as_integers(prefix_digests(tokens, block_size, parent))


def prefix_digests(tokens: Sequence[int], block_size: int, parent: int | None = None) -> list[bytes]:
    """`prefix_hashes` in wire form."""
    contents = _content_digests(tokens, block_size)
    if parent is None:
        return list(accumulate(contents, roll))
    return list(accumulate(contents, roll, initial=parent.to_bytes(8, "big")))[1:]


def roll(prefix: bytes, content: bytes) -> bytes:
    """The prefix digest of a block from the one before it and its own content digest [WIRE-153]."""
    # Digests are big-endian and the input is little-endian: reversing "content, prefix" as a whole
    # puts the prefix first and turns both around.
    return xxh3_64_digest((content + prefix)[::-1], SEED)


def wire_form(hashes: Sequence[int]) -> list[bytes]:
    """Each hash as the 8 big-endian bytes that travel and serve as keys [WIRE-155]."""
    return [value.to_bytes(8, "big") for value in hashes]


def _content_digests(tokens: Sequence[int], block_size: int) -> list[bytes]:
    if block_size <= 0:
        return []
    width = block_size * _TOKEN_BYTES
    words = array("I", tokens)
    if sys.byteorder == "big":
        words.byteswap()
    packed = memoryview(words).cast("B")
    blocks = struct.iter_unpack(f"{width}s", packed[: len(packed) // width * width])
    return list(map(xxh3_64_digest, (block for (block,) in blocks), repeat(SEED)))


def _as_integers(digests: list[bytes]) -> list[int]:
    return list(struct.unpack(f">{len(digests)}Q", b"".join(digests)))
