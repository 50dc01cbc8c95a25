"""Events have the bytes that the engines send."""

from __future__ import annotations

from typing import Any

import msgspec

from inferencecache.simengine.cache import BlockCache
from inferencecache.simengine.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    encode_events,
    removed,
    stored,
)

TIME = 1779901681.5


def test_a_stored_event_as_a_map_has_the_bytes_of_the_engine() -> None:
    event = BlockStored(
        block_hashes=[17927488143086849986, 11],
        parent_block_hash=None,
        token_ids=list(range(1, 33)),
        block_size=16,
        lora_id=None,
        medium="GPU",
        lora_name=None,
        group_idx=0,
        kv_cache_spec_kind="full_attention",
        session_id="chat-42",
    )
    assert encode_events([event], TIME).hex() == (
        "93cb41da85c93c60000091de000ba474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657392cff8cb3b7b"
        "73b80fc20bb1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f696473dc00200102030405060708090a0b0c0d"
        "0e0f101112131415161718191a1b1c1d1e1f20aa626c6f636b5f73697a6510a76c6f72615f6964c0a66d656469756da34750"
        "55a96c6f72615f6e616d65c0a967726f75705f69647800b26b765f63616368655f737065635f6b696e64ae66756c6c5f6174"
        "74656e74696f6eaa73657373696f6e5f6964a7636861742d343200"
    )


def test_a_cleared_event_as_a_map_carries_only_its_type() -> None:
    assert msgspec.msgpack.decode(encode_events([AllBlocksCleared()], TIME)) == [
        TIME,
        [{"type": "AllBlocksCleared"}],
        0,
    ]


def test_events_as_tuples_keep_their_positions_and_trailing_nulls() -> None:
    cache = BlockCache(4, 4)
    allocation = cache.allocate([1, 2, 3, 4])
    assert allocation is not None
    [run] = cache.store(allocation)
    hash_ = int.from_bytes(run.hashes[0][-8:], "big")
    payload = encode_events([stored(run, 4), removed(run.hashes), AllBlocksCleared()], TIME, encoding="tuple")
    assert msgspec.msgpack.decode(payload) == [
        TIME,
        [
            [
                "BlockStored",
                [hash_],
                None,
                [1, 2, 3, 4],
                4,
                None,
                "GPU",
                None,
                None,
                0,
                "full_attention",
                None,
            ],
            ["BlockRemoved", [hash_], "GPU", 0],
            ["AllBlocksCleared"],
        ],
        0,
    ]


def test_a_suffix_names_the_last_block_before_it_as_parent() -> None:
    cache = BlockCache(8, 4)
    first = cache.allocate(range(8))
    assert first is not None
    [root] = cache.store(first)
    longer = cache.allocate(range(12))
    assert longer is not None
    [suffix] = cache.store(longer)
    decoded: Any = msgspec.msgpack.decode(encode_events([stored(root, 4), stored(suffix, 4)], TIME))
    assert decoded[1][1]["parent_block_hash"] == decoded[1][0]["block_hashes"][-1]
    assert decoded[1][0]["parent_block_hash"] is None


def test_an_eviction_names_what_was_stored() -> None:
    cache = BlockCache(1, 4)
    first = cache.allocate([1, 2, 3, 4])
    assert first is not None
    [run] = cache.store(first)
    cache.release(first)
    second = cache.allocate([5, 6, 7, 8])
    assert second is not None
    assert removed(second.evicted) == BlockRemoved(
        block_hashes=stored(run, 4).block_hashes, medium="GPU", group_idx=0
    )
