"""Events in vLLM's words have the bytes that vLLM sends."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from inferencecache.simengine.cache import BlockCache, Stored
from inferencecache.simengine.events import AllCleared, BlocksRemoved, BlocksStored, Event
from inferencecache.simengine.vllm_form import BlockRemoved, BlockStored, VllmForm

TIME = 1779901681.5
HASH = bytes(range(32))
LAST_8 = int.from_bytes(HASH[-8:], "big")


def sent(form: VllmForm, *events: Event) -> list[Any]:
    time_s, bodies, rank = msgspec.msgpack.decode(form.payload(events, TIME))
    assert (time_s, rank) == (TIME, 0)
    return list(bodies)


@pytest.mark.rule("SUB-027", "SUB-211")
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
    assert msgspec.msgpack.encode([TIME, [event], 0]).hex() == (
        "93cb41da85c93c60000091de000ba474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657392cff8cb3b7b"
        "73b80fc20bb1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f696473dc00200102030405060708090a0b0c0d"
        "0e0f101112131415161718191a1b1c1d1e1f20aa626c6f636b5f73697a6510a76c6f72615f6964c0a66d656469756da34750"
        "55a96c6f72615f6e616d65c0a967726f75705f69647800b26b765f63616368655f737065635f6b696e64ae66756c6c5f6174"
        "74656e74696f6eaa73657373696f6e5f6964a7636861742d343200"
    )


@pytest.mark.rule("SUB-029")
def test_a_cleared_event_as_a_map_carries_only_its_type() -> None:
    assert sent(VllmForm(4), AllCleared()) == [{"type": "AllBlocksCleared"}]


def test_events_as_tuples_keep_their_positions_and_trailing_nulls() -> None:
    run = Stored((HASH,), None, (1, 2, 3, 4))
    form = VllmForm(4, encoding="tuple")
    assert sent(form, BlocksStored(run), BlocksRemoved([HASH]), AllCleared()) == [
        ["BlockStored", [LAST_8], None, [1, 2, 3, 4], 4, None, "GPU", None, None, 0, "full_attention", None],
        ["BlockRemoved", [LAST_8], "GPU", 0],
        ["AllBlocksCleared"],
    ]


@pytest.mark.rule("SUB-212")
def test_hashes_are_their_last_bytes_as_a_number_or_all_of_them() -> None:
    assert VllmForm(4).wire_hash(HASH) == LAST_8
    assert VllmForm(4, hash_kind="bytes").wire_hash(HASH) == HASH


@pytest.mark.rule("SUB-214")
def test_blocks_of_an_adapter_carry_its_name_its_number_and_extra_keys() -> None:
    run = Stored((HASH, bytes(32)), None, tuple(range(8)), "chat")
    [stored] = sent(VllmForm(4, adapters=("sql", "chat")), BlocksStored(run))
    assert (stored["lora_id"], stored["lora_name"]) == (2, "chat")
    assert stored["extra_keys"] == [["chat"], ["chat"]]


@pytest.mark.rule("SUB-215")
def test_copies_on_the_host_are_announced_by_hash_alone_or_with_their_tokens() -> None:
    run = Stored((HASH,), None, (1, 2, 3, 4))
    [bare, removed] = sent(VllmForm(4), BlocksStored(run, "host"), BlocksRemoved([HASH], "host"))
    assert (bare["block_size"], bare["token_ids"], bare["medium"], bare["locality"]) == (
        0,
        [],
        "CPU",
        "LOCAL",
    )
    assert removed == {
        "type": "BlockRemoved",
        "block_hashes": [LAST_8],
        "medium": "CPU",
        "locality": "LOCAL",
    }
    [described] = sent(VllmForm(4, describes_host=True, host_medium="STORAGE"), BlocksStored(run, "host"))
    assert (described["block_size"], described["token_ids"], described["medium"]) == (
        4,
        [1, 2, 3, 4],
        "STORAGE",
    )


def test_a_suffix_names_the_last_block_before_it_as_parent() -> None:
    cache = BlockCache(8, 4)
    first = cache.allocate(range(8))
    assert first is not None
    [root] = cache.store(first)
    longer = cache.allocate(range(12))
    assert longer is not None
    [suffix] = cache.store(longer)
    [before, after] = sent(VllmForm(4), BlocksStored(root), BlocksStored(suffix))
    assert after["parent_block_hash"] == before["block_hashes"][-1]
    assert before["parent_block_hash"] is None


def test_an_eviction_names_what_was_stored() -> None:
    cache = BlockCache(1, 4)
    first = cache.allocate([1, 2, 3, 4])
    assert first is not None
    [run] = cache.store(first)
    cache.release(first)
    second = cache.allocate([5, 6, 7, 8])
    assert second is not None
    form = VllmForm(4)
    stored = form.written(BlocksStored(run))
    assert isinstance(stored, BlockStored)
    assert form.written(BlocksRemoved(second.evicted)) == BlockRemoved(
        block_hashes=stored.block_hashes, medium="GPU", group_idx=0
    )
