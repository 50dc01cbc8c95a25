"""KV events as vLLM writes them.

Since 0.24 an event is a map, before that an array; both are in an array `[time, events, rank]`. Field
order, which fields are always there and how a hash becomes an integer follow the engine [SUB-210..216].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from inferencecache.simengine.cache import BlockHash
from inferencecache.simengine.events import AllCleared, BlocksRemoved, BlocksStored, Encoding, Event

HashKind = Literal["int", "bytes"]
GPU: Final = "GPU"
GROUP: Final = 0
SPEC_KIND: Final = "full_attention"


class _MapEvent(msgspec.Struct, frozen=True, tag=True, omit_defaults=True, kw_only=True, gc=False):
    """An event as a map; fields without a default are always written, null included [SUB-211]."""


class BlockStored(_MapEvent, frozen=True):
    """Blocks became reusable [SUB-027]."""

    block_hashes: Sequence[int | bytes]
    parent_block_hash: int | bytes | None
    token_ids: Sequence[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: Sequence[Sequence[Any] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    locality: str | None = None
    ownership: str | None = None
    session_id: str | None = None
    lookahead_token_ids: Sequence[Sequence[int]] | None = None


class BlockRemoved(_MapEvent, frozen=True):
    """Blocks were evicted [SUB-028]."""

    block_hashes: Sequence[int | bytes]
    medium: str | None
    group_idx: int | None = None
    locality: str | None = None
    ownership: str | None = None


class AllBlocksCleared(_MapEvent, frozen=True):
    """The whole cache was reset [SUB-029]."""


WireEvent = BlockStored | BlockRemoved | AllBlocksCleared


class VllmForm:
    """Blocks of `block_size` tokens; `adapters` in the order in which they were loaded.

    Copies on the host are announced by hash alone, as by the engine's own offloading, or with
    `describes_host` like blocks of the device [SUB-215].
    """

    def __init__(
        self,
        block_size: int,
        *,
        encoding: Encoding = "map",
        hash_kind: HashKind = "int",
        adapters: Sequence[str] = (),
        host_medium: str = "CPU",
        describes_host: bool = False,
    ) -> None:
        self._block_size = block_size
        self._encoding = encoding
        self._hash_kind = hash_kind
        self._adapters = tuple(adapters)
        self._host_medium = host_medium
        self._describes_host = describes_host

    def wire_hash(self, hash_: BlockHash) -> int | bytes:
        """The last 8 bytes as unsigned integer, or all of them as they are [SUB-212]."""
        return hash_ if self._hash_kind == "bytes" else int.from_bytes(hash_[-8:], "big")

    def payload(self, events: Sequence[Event], time_s: float) -> bytes:
        """One message; in it, blocks are of group 0, all of whose layers attend to everything."""
        written = [self.written(event) for event in events]
        by_form = written if self._encoding == "map" else list(map(_as_tuple, written))
        return _encoder.encode([time_s, by_form, 0])

    def written(self, event: Event) -> WireEvent:
        """The engine's own event."""
        match event:
            case BlocksStored(run, "host") if not self._describes_host:
                return BlockStored(
                    block_hashes=self._hashes(run.hashes),
                    parent_block_hash=None,
                    token_ids=[],
                    block_size=0,
                    lora_id=None,
                    medium=self._host_medium,
                    lora_name=None,
                    locality="LOCAL",
                )
            case BlocksStored(run, place):
                return BlockStored(
                    block_hashes=self._hashes(run.hashes),
                    parent_block_hash=None if run.parent is None else self.wire_hash(run.parent),
                    token_ids=run.tokens,
                    block_size=self._block_size,
                    lora_id=self._adapters.index(run.adapter) + 1 if run.adapter else None,
                    medium=self._medium(place),
                    lora_name=run.adapter or None,
                    extra_keys=[[run.adapter]] * len(run.hashes) if run.adapter else None,
                    group_idx=GROUP,
                    kv_cache_spec_kind=SPEC_KIND,
                    locality="LOCAL" if place == "host" else None,
                )
            case BlocksRemoved(hashes, place):
                return BlockRemoved(
                    block_hashes=self._hashes(hashes),
                    medium=self._medium(place),
                    group_idx=GROUP if place == "device" else None,
                    locality="LOCAL" if place == "host" else None,
                )
            case AllCleared():
                return AllBlocksCleared()

    def _hashes(self, hashes: Sequence[BlockHash]) -> list[int | bytes]:
        return [self.wire_hash(hash_) for hash_ in hashes]

    def _medium(self, place: str) -> str:
        return GPU if place == "device" else self._host_medium


def _as_tuple(event: WireEvent) -> tuple[object, ...]:
    """An event by position, as in 0.22 and 0.23, whose encoder writes trailing nulls."""
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
                event.lora_name,
                event.extra_keys,
                event.group_idx,
                event.kv_cache_spec_kind,
                event.kv_cache_spec_sliding_window,
            )
        case BlockRemoved():
            return ("BlockRemoved", event.block_hashes, event.medium, event.group_idx)
        case AllBlocksCleared():
            return ("AllBlocksCleared",)


_encoder: Final = msgspec.msgpack.Encoder()
