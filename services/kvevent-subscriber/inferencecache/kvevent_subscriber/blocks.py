"""The blocks that engines are known to hold, within a bound, and at which tier each key is held.

A block is remembered under the engine's hash for it, in the source that announced it. Several blocks
can stand for one key (two ranks, look-ahead hashes, a chunk of an offload tier), so a key has a tier
as long as any of them has a holder there [SUB-100]. When the bound is passed, chains are given up
from their end: only a block without remembered children may go [SUB-091]. Memory a block is what
decides how much a sidecar can know, hence the packed keys and the absence of a list of children.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import msgspec

from inferencecache.kvevent_subscriber.events import BlockHash
from inferencecache.kvevent_subscriber.media import NOBODY, Holders
from inferencecache.schemas.ids import AdapterId
from inferencecache.schemas.records import TIER_T1, TIER_T2

KEY_BYTES: Final = 8
NO_TIER: Final = 0


class Block(msgspec.Struct, gc=False, eq=False):
    """One engine hash and what it stands for.

    `keys` are one or, for a chunk of an offload tier, several fingerprints of 8 bytes in a row, the
    last being that of the whole prefix, `token_count` its tokens. `doubts` is how many gaps the
    replica had seen when the block was last stored.
    """

    hash: BlockHash
    lane: int
    parent: BlockHash | None
    keys: bytes
    token_count: int
    adapter: AdapterId
    opaque: bool
    stored_at: float
    doubts: int
    holders: Holders = NOBODY
    children: int = 0
    older: Block | None = None
    newer: Block | None = None

    @property
    def last_key(self) -> bytes:
        """The fingerprint that a child of this block continues from."""
        return self.keys if len(self.keys) == KEY_BYTES else self.keys[-KEY_BYTES:]

    def each_key(self) -> Iterator[bytes]:
        """The keys one by one."""
        if len(self.keys) == KEY_BYTES:
            return iter((self.keys,))
        return (self.keys[at : at + KEY_BYTES] for at in range(0, len(self.keys), KEY_BYTES))


_T2_UNIT: Final = 1 << 32
_T1_MASK: Final = _T2_UNIT - 1


class HeldKeys:
    """For each (adapter, key) the number of blocks with a T1 and with a T2 holder, in one integer.

    Only blocks that no gap has put in doubt count.
    """

    def __init__(self) -> None:
        self._counts: defaultdict[AdapterId, dict[bytes, int]] = defaultdict(dict)

    def tier(self, adapter: AdapterId, key: bytes) -> int:
        """The effective tier of a key; `NO_TIER` when nobody holds it."""
        keys = self._counts.get(adapter)
        count = keys.get(key, 0) if keys else 0
        if count & _T1_MASK:
            return TIER_T1
        return TIER_T2 if count else NO_TIER

    def adjust(self, adapter: AdapterId, key: bytes, t1: int, t2: int) -> None:
        """Change both numbers by this much."""
        keys = self._counts[adapter]
        count = keys.get(key, 0) + t1 + t2 * _T2_UNIT
        if count:
            keys[key] = count
        else:
            del keys[key]
            if not keys:
                del self._counts[adapter]

    def clear(self) -> None:
        """Nobody certainly holds anything."""
        self._counts.clear()


class TrackedBlocks:
    """All remembered blocks, by source (`lane`) and hash.

    Blocks without children stand in a list from the one that was stored longest ago to the newest.
    """

    def __init__(self, lanes: int) -> None:
        self._lanes: tuple[dict[BlockHash, Block], ...] = tuple({} for _ in range(lanes))
        self._parentless: tuple[dict[BlockHash, int], ...] = tuple({} for _ in range(lanes))
        self._oldest: Block | None = None
        self._newest: Block | None = None

    def __len__(self) -> int:
        return sum(map(len, self._lanes))

    def lane(self, lane: int) -> dict[BlockHash, Block]:
        """One source's blocks, to read."""
        return self._lanes[lane]

    def each(self) -> Iterator[Block]:
        """Every block of every source."""
        for blocks in self._lanes:
            yield from blocks.values()

    def add(self, block: Block) -> None:
        """Remember a block whose hash is not remembered in its source."""
        blocks, parentless = self._lanes[block.lane], self._parentless[block.lane]
        if block.parent is not None:
            parent = blocks.get(block.parent)
            if parent is None:
                parentless[block.parent] = parentless.get(block.parent, 0) + 1
            else:
                if parent.children == 0:
                    self._unlink(parent)
                parent.children += 1
        blocks[block.hash] = block
        block.children = parentless.pop(block.hash, 0)
        if block.children == 0:
            self._link_newest(block)

    def touch(self, block: Block) -> None:
        """The block was stored again."""
        if block.children == 0:
            self._unlink(block)
            self._link_newest(block)

    def forget(self, block: Block) -> None:
        """Forget a block; its parent becomes the next to go when this was its last child."""
        blocks, parentless = self._lanes[block.lane], self._parentless[block.lane]
        del blocks[block.hash]
        if block.children == 0:
            self._unlink(block)
        else:
            parentless[block.hash] = block.children
        if block.parent is None:
            return
        parent = blocks.get(block.parent)
        if parent is not None:
            parent.children -= 1
            if parent.children == 0:
                self._link_oldest(parent)
        elif parentless[block.parent] == 1:
            del parentless[block.parent]
        else:
            parentless[block.parent] -= 1

    def forget_lane(self, lane: int) -> None:
        """Forget all of one source."""
        for block in self._lanes[lane].values():
            if block.children == 0:
                self._unlink(block)
        self._lanes[lane].clear()
        self._parentless[lane].clear()

    def next_to_go(self) -> Block:
        """The block to give up first. There must be one.

        Hashes that an engine made each other's parents leave no end of a chain; then any of them goes.
        """
        return self._oldest if self._oldest is not None else next(self.each())

    def _link_newest(self, block: Block) -> None:
        block.older, block.newer = self._newest, None
        if self._newest is None:
            self._oldest = block
        else:
            self._newest.newer = block
        self._newest = block

    def _link_oldest(self, block: Block) -> None:
        block.older, block.newer = None, self._oldest
        if self._oldest is None:
            self._newest = block
        else:
            self._oldest.older = block
        self._oldest = block

    def _unlink(self, block: Block) -> None:
        older, newer = block.older, block.newer
        if older is None:
            self._oldest = newer
        else:
            older.newer = newer
        if newer is None:
            self._newest = older
        else:
            newer.older = older
        block.older = block.newer = None
