"""Store events that cannot be chained yet, kept apart until they can be.

An event whose parent is unknown is a hole in what the sidecar heard. It is never reported from here;
once the parent becomes known it is stored like any other. It is given up when the engine removes its
blocks, when the source is reset, or when the bound is passed, oldest first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

import msgspec

from inferencecache.kvevent_subscriber.events import BlockHash, Removed, Stored
from inferencecache.kvevent_subscriber.media import medium_name

MAX_HELD_BLOCKS: Final = 16_384
"""Blocks in all held events of one source."""
MAX_HELD_TOKENS: Final = 1 << 20
"""Tokens in them, at 4 bytes each; an engine with large blocks reaches this first."""


class _Held(msgspec.Struct, eq=False):
    event: Stored
    waits_for: BlockHash | None


class Orphans:
    """Held events of one source, by the hash they wait for; None waits for the reference group [SUB-074]."""

    def __init__(self, max_blocks: int = MAX_HELD_BLOCKS) -> None:
        self._max_blocks = max_blocks
        self._in_order: OrderedDict[int, _Held] = OrderedDict()
        self._waiting: dict[BlockHash | None, list[_Held]] = {}
        self._holding: dict[BlockHash, _Held] = {}
        self.blocks = self.tokens = 0

    def __len__(self) -> int:
        return len(self._in_order)

    def hold(self, event: Stored, waits_for: BlockHash | None) -> int:
        """Keep an event; returns how many others had to go for it."""
        self._add(_Held(event, waits_for))
        dropped = 0
        while self.blocks > self._max_blocks or self.tokens > MAX_HELD_TOKENS:
            self._drop(next(iter(self._in_order.values())))
            dropped += 1
        return dropped

    def release(self, known: BlockHash | None) -> Iterator[Stored]:
        """Hand out, and keep no longer, the events that waited for this."""
        for held in self._waiting.pop(known, ()):
            self._drop(held)
            yield held.event

    def remove(self, removed: Removed, hash_: BlockHash) -> bool:
        """The engine removed a block: from it on, the event that stored it there is void."""
        held = self._holding.get(hash_)
        if held is None or medium_name(held.event.medium) != medium_name(removed.medium):
            return False
        self._drop(held)
        kept = held.event.hashes.index(hash_)
        if kept:
            self._add(_Held(_first_blocks(held.event, kept), held.waits_for))
        return True

    def clear(self) -> None:
        """Give up everything."""
        self._in_order.clear()
        self._waiting.clear()
        self._holding.clear()
        self.blocks = self.tokens = 0

    def _add(self, held: _Held) -> None:
        self._in_order[id(held)] = held
        self._waiting.setdefault(held.waits_for, []).append(held)
        self._holding.update(dict.fromkeys(held.event.hashes, held))
        self.blocks += len(held.event.hashes)
        self.tokens += len(held.event.tokens)

    def _drop(self, held: _Held) -> None:
        del self._in_order[id(held)]
        self.blocks -= len(held.event.hashes)
        self.tokens -= len(held.event.tokens)
        waiting = self._waiting.get(held.waits_for)
        if waiting is not None:
            waiting.remove(held)
            if not waiting:
                del self._waiting[held.waits_for]
        for hash_ in held.event.hashes:
            if self._holding.get(hash_) is held:
                del self._holding[hash_]


def _first_blocks(event: Stored, count: int) -> Stored:
    return msgspec.structs.replace(
        event,
        hashes=event.hashes[:count],
        tokens=event.tokens[: count * event.block_size],
        extra_keys=None if event.extra_keys is None else event.extra_keys[:count],
    )
