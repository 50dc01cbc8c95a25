"""KV events as SGLang writes them.

Since 0.5.20 an event is a map, before that an array; both are in an array `[time, events, rank]`. Hashes
are signed, copies on the host are described like blocks of the device [SUB-220..222].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from inferencecache.simengine.cache import BlockHash
from inferencecache.simengine.events import (
    AllCleared,
    BlocksRemoved,
    BlocksStored,
    Encoding,
    Event,
    UnwritableError,
)

GPU: Final = "GPU"


class _MapEvent(msgspec.Struct, frozen=True, tag=True, omit_defaults=True, kw_only=True, gc=False):
    """An event as a map; fields without a default are always written, null included [SUB-220]."""


class BlockStored(_MapEvent, frozen=True):
    """Pages became reusable [SUB-027]."""

    block_hashes: Sequence[int]
    parent_block_hash: int | None
    token_ids: Sequence[int]
    block_size: int
    lora_id: int | None
    medium: str | None = None
    cache_salt: str | None = None
    session_id: str | None = None
    lora_name: str | None = None


class BlockRemoved(_MapEvent, frozen=True):
    """Pages were evicted [SUB-028]."""

    block_hashes: Sequence[int]
    medium: str | None = None


class AllBlocksCleared(_MapEvent, frozen=True):
    """The tree was rebuilt [SUB-029]."""


WireEvent = BlockStored | BlockRemoved | AllBlocksCleared


class SglangForm:
    """Pages of `block_size` tokens. Raises `UnwritableError` for adapters in the array form."""

    def __init__(
        self,
        block_size: int,
        *,
        encoding: Encoding = "map",
        adapters: Sequence[str] = (),
        host_medium: str = "CPU_PINNED",
    ) -> None:
        if encoding == "tuple" and adapters:
            raise UnwritableError(
                "SGLang's array events have no adapter names; use --event-encoding map or no --lora-adapters"
            )
        self._block_size = block_size
        self._encoding = encoding
        self._host_medium = host_medium

    def wire_hash(self, hash_: BlockHash) -> int:
        """The first 8 bytes as signed integer [SUB-221]."""
        return int.from_bytes(hash_[:8], "big", signed=True)

    def payload(self, events: Sequence[Event], time_s: float) -> bytes:
        """One message."""
        written = [self.written(event) for event in events]
        by_form = written if self._encoding == "map" else list(map(_as_tuple, written))
        return _encoder.encode([time_s, by_form, 0])

    def written(self, event: Event) -> WireEvent:
        """The engine's own event."""
        match event:
            case BlocksStored(run, place):
                return BlockStored(
                    block_hashes=self._hashes(run.hashes),
                    parent_block_hash=None if run.parent is None else self.wire_hash(run.parent),
                    token_ids=run.tokens,
                    block_size=self._block_size,
                    lora_id=None,
                    medium=self._medium(place),
                    lora_name=run.adapter or None,
                )
            case BlocksRemoved(hashes, place):
                return BlockRemoved(block_hashes=self._hashes(hashes), medium=self._medium(place))
            case AllCleared():
                return AllBlocksCleared()

    def _hashes(self, hashes: Sequence[BlockHash]) -> list[int]:
        return [self.wire_hash(hash_) for hash_ in hashes]

    def _medium(self, place: str) -> str:
        return GPU if place == "device" else self._host_medium


def _as_tuple(event: WireEvent) -> tuple[object, ...]:
    """An event by position, as in 0.5.17, which always writes nulls."""
    match event:
        case BlockStored():
            return (
                "BlockStored",
                event.block_hashes,
                event.parent_block_hash,
                event.token_ids,
                event.block_size,
                event.lora_id,
                event.medium,
            )
        case BlockRemoved():
            return ("BlockRemoved", event.block_hashes, event.medium)
        case AllBlocksCleared():
            return ("AllBlocksCleared",)


_encoder: Final = msgspec.msgpack.Encoder()
