"""KV events in vLLM's wire form: what one message of an engine's event socket carries.

The newest releases encode an event as a map, older ones as an array; both put it into an array
`[time, events, rank]`. Field order, which fields are always there and how a hash becomes an integer
follow the engine [SUB-210..216].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from inferencecache.simengine.cache import BlockHash, Stored

Encoding = Literal["map", "tuple"]
MEDIUM = "GPU"
GROUP = 0
SPEC_KIND = "full_attention"


class _MapEvent(msgspec.Struct, frozen=True, tag=True, omit_defaults=True, kw_only=True, gc=False):
    """An event as a map; fields without a default are always written, null included [SUB-211]."""


class BlockStored(_MapEvent, frozen=True):
    """Blocks became reusable [SUB-027]."""

    block_hashes: Sequence[int]
    parent_block_hash: int | None
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

    block_hashes: Sequence[int]
    medium: str | None
    group_idx: int | None = None
    locality: str | None = None
    ownership: str | None = None


class AllBlocksCleared(_MapEvent, frozen=True):
    """The whole cache was reset [SUB-029]."""


Event = BlockStored | BlockRemoved | AllBlocksCleared


def stored(run: Stored, block_size: int) -> BlockStored:
    """Event of consecutive blocks that became reusable."""
    return BlockStored(
        block_hashes=[wire_hash(hash_) for hash_ in run.hashes],
        parent_block_hash=None if run.parent is None else wire_hash(run.parent),
        token_ids=run.tokens,
        block_size=block_size,
        lora_id=None,
        medium=MEDIUM,
        lora_name=None,
        group_idx=GROUP,
        kv_cache_spec_kind=SPEC_KIND,
    )


def removed(hashes: Sequence[BlockHash]) -> BlockRemoved:
    """Event of evicted blocks."""
    return BlockRemoved(block_hashes=[wire_hash(hash_) for hash_ in hashes], medium=MEDIUM, group_idx=GROUP)


def wire_hash(hash_: BlockHash) -> int:
    """The last 8 bytes of a block's hash as unsigned integer, the engine's default [SUB-212]."""
    return int.from_bytes(hash_[-8:], "big")


def encode_events(events: Sequence[Event], time_s: float, encoding: Encoding = "map") -> bytes:
    """Payload of one message; `time_s` is Unix time. Rank 0, as with one data-parallel rank."""
    bodies: Sequence[object] = events
    if encoding == "tuple":
        bodies = [_as_tuple(event) for event in events]
    return _encoder.encode([time_s, bodies, 0])


def _as_tuple(event: Event) -> tuple[object, ...]:
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


_encoder = msgspec.msgpack.Encoder()
