"""The worked cases of the event chapter, as one listens to an engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from inferencecache.core.fingerprint import prefix_digests
from inferencecache.kvevent_subscriber.adapters import parse_adapter_names
from inferencecache.kvevent_subscriber.events import UnreadableBatchError, decode_batch
from inferencecache.kvevent_subscriber.mapping import MappingSettings
from tests.unit.subscriber.frames import Listener

K1, K2, K3, K4, K5 = (
    "cb38e4d7fb2dca5c",
    "44a2b2379d6d3c3d",
    "aea1e67a6c80cf84",
    "1aaa5eb6e2524a3b",
    "eaad5a8ed77666c7",
)
DROPPING = MappingSettings(unknown_parent="drop")
ROOTING = MappingSettings(unknown_parent="root")
OFFLOADING = MappingSettings(ignore_block_removed=True)
encode = msgspec.msgpack.encode


def store(
    hashes: Sequence[Any], tokens: Sequence[int] | None, size: int = 4, parent: Any = None, **more: Any
) -> dict[str, Any]:
    return {
        "type": "BlockStored",
        "block_hashes": list(hashes),
        "parent_block_hash": parent,
        "token_ids": tokens if tokens is None else list(tokens),
        "block_size": size,
        **more,
    }


def remove(*hashes: Any, **more: Any) -> dict[str, Any]:
    return {"type": "BlockRemoved", "block_hashes": list(hashes), **more}


CLEAR = {"type": "AllBlocksCleared"}


def hear(
    listener: Listener, *events: Any, ts: float = 1.0, number: int | None = None, lane: int = 0
) -> list[dict[str, Any]]:
    """Send one message; the reports that follow. Without a number it takes no part in any order."""
    payload = encode([ts, list(events), 0])
    parts = [payload] if number is None else [b"kv-events", number.to_bytes(8, "big"), payload]
    listener.hear(*parts, lane=lane)
    return listener.take_reports()


def add(key: str, count: int, tier: str = "T1", adapter: str = "", *, own: bool = False) -> dict[str, Any]:
    report = {"op": "add", "prefix_hash": key, "token_count": count, "adapter_id": adapter, "tier": tier}
    return report | {"own_update": True} if own else report


def evict(key: str, adapter: str = "") -> dict[str, Any]:
    return {"op": "evict", "prefix_hash": key, "adapter_id": adapter}


CLEARED = {"op": "clear"}


@pytest.mark.rule("SUB-W1")
def test_w1_a_root_of_two_blocks() -> None:
    events = store([17927488143086849986, 11], range(1, 33), 16)
    assert hear(Listener(), events) == [add("ea06fc71a5ee6e88", 16), add("ad01835a37dd294c", 32)]


@pytest.mark.rule("SUB-W2", "WIRE-158", "SUB-081")
def test_w2_a_suffix_gets_the_keys_of_the_whole_prompt() -> None:
    listener = Listener()
    reports = hear(listener, store([10, 11, 12], range(1000, 1048), 16))
    reports += hear(listener, store([13, 14], range(1048, 1080), 16, parent=12))
    assert [(report["prefix_hash"], report["token_count"]) for report in reports] == [
        ("f7e6c5a1896bad24", 16),
        ("3d5ff0dd2a93fd39", 32),
        ("cf4f246cbcc8787b", 48),
        ("0a0edb4669bfb130", 64),
        ("38f905944df7d6fe", 80),
    ]


@pytest.mark.rule("SUB-W3", "SUB-037")
def test_w3_trailing_fields_may_be_absent_or_null() -> None:
    assert hear(Listener(), ["BlockStored", [1], None, [1, 2, 3, 4], 4]) == [add(K1, 4)]
    assert hear(Listener(), ["BlockStored", [1], None, [1, 2, 3, 4], 4, None]) == [add(K1, 4)]


@pytest.mark.rule("SUB-W4", "SUB-040", "SUB-041")
def test_w4_an_integer_and_its_binary_form_are_one_block() -> None:
    listener = Listener()
    assert hear(listener, store([7, -2], range(1, 9))) == [add(K1, 4), add(K2, 8)]
    assert hear(listener, remove((7).to_bytes(8, "big"), 2**64 - 2)) == [evict(K1), evict(K2)]


@pytest.mark.rule("SUB-W5")
def test_w5_a_repeated_removal_says_nothing() -> None:
    listener = Listener()
    assert hear(listener, store([1], range(1, 5))) == [add(K1, 4)]
    assert hear(listener, remove(1)) == [evict(K1)]
    assert hear(listener, remove(1)) == []


@pytest.mark.rule("SUB-W6", "SUB-107")
def test_w6_a_downgrade_is_a_report_of_its_own() -> None:
    listener = Listener(OFFLOADING)
    hear(listener, store([1], range(1, 5)), ts=1.0)
    reports = hear(listener, remove(1), store([9], range(50, 54)), ts=2.0)
    assert reports[0] == add(K1, 4, "T2", own=True)
    assert len(listener.raw) == 3


@pytest.mark.rule("SUB-W7", "SUB-106")
def test_w7_a_predicted_block_is_forgotten_and_may_come_back() -> None:
    listener = Listener(OFFLOADING)
    tiers = [report["tier"] for report in hear(listener, store([1], range(1, 5)))]
    tiers += [report["tier"] for report in hear(listener, remove(1))]
    assert listener.path.tracked_blocks == 0
    tiers += [report["tier"] for report in hear(listener, store([1], range(1, 5)))]
    assert tiers == ["T1", "T2", "T1"]


@pytest.mark.rule("SUB-W8", "SUB-109")
def test_w8_a_clear_takes_what_was_stored_before_it_in_its_batch() -> None:
    assert hear(Listener(), store([1], range(1, 5)), CLEAR) == [CLEARED]


@pytest.mark.rule("SUB-W9", "SUB-082")
def test_w9_a_parent_from_before_a_clear_is_unknown() -> None:
    for settings, expected, orphans in (
        (DROPPING, [], 1),
        (ROOTING, [add("1a1e71c904789265", 4)], 0),
        (MappingSettings(), [], 1),
    ):
        listener = Listener(settings)
        hear(listener, store([1, 2], range(1, 9)), CLEAR)
        assert hear(listener, store([3], range(500, 504), parent=2)) == expected
        assert listener.diary.total("orphan_events") == orphans


@pytest.mark.rule("SUB-W10", "SUB-082")
def test_w10_a_parent_that_was_never_seen() -> None:
    assert hear(Listener(DROPPING), store([1], range(7, 11), parent=57005)) == []
    assert hear(Listener(ROOTING), store([1], range(7, 11), parent=57005)) == [add("15d228f34f2ad502", 4)]


@pytest.mark.rule("SUB-W11", "WIRE-233", "SUB-095", "SUB-096", "SUB-098")
def test_w11_adapters_are_partitions_and_an_unnamed_one_is_dropped() -> None:
    listener = Listener(MappingSettings(lora_adapter_names=parse_adapter_names("1=sql-lora")))
    key, tokens = "57b89ffc89f07407", range(100, 104)
    assert hear(
        listener, store([1], tokens, lora_id=1), store([2], tokens, lora_id=2), store([3], tokens)
    ) == [add(key, 4, adapter="sql-lora"), add(key, 4)]
    hear(listener, store([4], tokens, lora_id=2))
    assert [warned.reason for warned in listener.diary.drain()] == ["unmapped_adapter:2"]
    assert hear(listener, remove(1), remove(2)) == [evict(key, "sql-lora")]


@pytest.mark.rule("SUB-W12", "SUB-095", "SUB-097")
def test_w12_the_map_wins_over_the_engines_name_which_wins_over_nothing() -> None:
    event = store([1], range(1, 5), lora_id=3, lora_name="sql-lora")
    for settings, expected in (
        (MappingSettings(), [add(K1, 4, adapter="sql-lora")]),
        (
            MappingSettings(lora_adapter_names=parse_adapter_names("3=warehouse-sql")),
            [add(K1, 4, adapter="warehouse-sql")],
        ),
        (MappingSettings(lora_names_from_engine=False), []),
    ):
        assert hear(Listener(settings), event) == expected


@pytest.mark.rule("SUB-W13", "SUB-099")
def test_w13_the_syntax_of_adapter_names() -> None:
    assert parse_adapter_names(" 1=a, 2 = b ,") == {1: "a", 2: "b"}
    assert parse_adapter_names("") == {}
    assert parse_adapter_names("-3=a=b,+4=a") == {-3: "a=b", 4: "a"}
    for text in ("a", "x=a", "1=", "1=a,1=b", f"{2**63}=a", "1_0=a"):
        with pytest.raises(ValueError):
            parse_adapter_names(text)


@pytest.mark.rule("SUB-W14", "SUB-088", "SUB-089")
def test_w14_an_image_makes_its_block_and_all_after_it_opaque() -> None:
    listener = Listener()
    keys = [None, ["img", -1], None]
    assert hear(listener, store([1, 2, 3], range(1, 13), extra_keys=keys)) == [add(K1, 4)]
    assert hear(listener, store([4], range(13, 17), parent=3, extra_keys=[None])) == []
    assert listener.diary.total("opaque_blocks") == 3
    assert hear(listener, remove(4, 3, 2, 1)) == [evict(K1)]
    assert listener.diary.total("unknown_removed") == 0


@pytest.mark.rule("SUB-W15", "SUB-088")
def test_w15_a_salted_chain_is_never_reported_and_its_twin_is() -> None:
    listener = Listener()
    assert hear(listener, store([1, 2], range(1, 9), extra_keys=[["salt"], None])) == []
    assert hear(listener, store([3, 4], range(1, 9))) == [add(K1, 4), add(K2, 8)]


@pytest.mark.rule("SUB-W16", "SUB-072", "SUB-073", "SUB-074")
def test_w16_one_group_of_a_hybrid_model_stands_for_all() -> None:
    listener = Listener()
    full: dict[str, Any] = {"group_idx": 0, "kv_cache_spec_kind": "full_attention"}
    window: dict[str, Any] = {"group_idx": 1, "kv_cache_spec_kind": "sliding_window"}
    assert len(hear(listener, store([1, 2, 3], range(1, 13), **full))) == 3
    assert hear(listener, store([3], range(1, 13), parent=2, **window)) == []
    assert hear(listener, remove(3, group_idx=1)) == []
    assert hear(listener, remove(3, group_idx=0)) == [evict(K3)]


@pytest.mark.rule("SUB-W17", "SUB-084")
def test_w17_a_placeholder_adds_a_holder_to_what_is_known() -> None:
    listener = Listener()
    placeholder = {"medium": "CPU"}
    assert hear(
        listener, store([1], range(1, 5)), store([1], [], 0, **placeholder), store([2], [], 0, **placeholder)
    ) == [add(K1, 4)]
    assert hear(listener, remove(1, medium="GPU")) == [add(K1, 4, "T2", own=True)]
    assert hear(listener, remove(1, medium="CPU")) == [evict(K1)]
    assert listener.diary.total("placeholder_unknown") == 1


@pytest.mark.rule("SUB-W18", "SUB-100", "SUB-101", "SUB-102")
@pytest.mark.parametrize("flag", [False, True])
def test_w18_the_host_tier_of_sglang_decides_for_itself(flag: bool) -> None:
    listener = Listener(MappingSettings(ignore_block_removed=flag))
    device, host = store([1], range(1, 5)), store([1], range(1, 5), medium="CPU_PINNED")
    assert hear(listener, device) == [add(K1, 4)]
    assert hear(listener, host) == []
    assert hear(listener, remove(1)) == [add(K1, 4, "T2", own=True)]
    assert hear(listener, device) == [add(K1, 4)]
    assert hear(listener, remove(1, medium="CPU_PINNED")) == []
    assert hear(listener, remove(1)) == [evict(K1)]


@pytest.mark.rule("SUB-W19", "SUB-085", "SUB-086")
def test_w19_a_chunk_of_an_offload_tier_stands_for_several_keys() -> None:
    listener = Listener()
    assert len(hear(listener, store([1, 2, 3, 4], range(1, 17)))) == 4
    assert hear(listener, store([91, 92], range(1, 17), 8, medium="cpu")) == []
    assert hear(listener, remove(1, 2, 3, 4)) == [
        add(key, 4 * number, "T2", own=True) for number, key in enumerate((K1, K2, K3, K4), 1)
    ]
    assert hear(listener, remove(92, medium="cpu")) == [evict(K3), evict(K4)]


@pytest.mark.rule("SUB-W20", "SUB-103", "SUB-104", "SUB-105", "SUB-107")
def test_w20_one_removal_downgrades_first_and_then_evicts() -> None:
    listener = Listener(OFFLOADING)
    hear(listener, store([1, 2, 3], range(1, 13)), store([1, 2], range(1, 9), medium="CPU"))
    assert hear(listener, remove(3, 2, 1)) == [
        add(K2, 8, "T2", own=True),
        add(K1, 4, "T2", own=True),
        evict(K3),
    ]


@pytest.mark.rule("SUB-W21", "SUB-075", "SUB-076", "SUB-077")
def test_w21_the_larger_block_size_wins() -> None:
    listener = Listener()
    assert hear(listener, store([1], range(1, 9), 8)) == [add("3fc6d96b481ac357", 8)]
    assert hear(listener, store([2], range(1, 17), 16)) == [
        evict("3fc6d96b481ac357"),
        add("ea06fc71a5ee6e88", 16),
    ]
    assert hear(listener, store([3], range(17, 25), 8, parent=2)) == []
    assert listener.path.block_size == 16


@pytest.mark.rule("SUB-W22", "SUB-078", "SUB-079")
def test_w22_blocks_that_do_not_match_their_tokens_are_warned_of() -> None:
    listener = Listener()
    assert hear(listener, store([1, 2], range(1, 5))) == []
    assert hear(listener, store([1], None)) == []
    assert hear(listener, store([1], range(1, 8))) == [add(K1, 4)]
    texts = [warned.text for warned in listener.diary.drain()]
    assert texts == ["BlockStored produced no index entries (missing or mismatched token_ids)"] * 2


@pytest.mark.rule("SUB-W23", "SUB-051", "SUB-056")
def test_w23_what_arrives_after_a_gap_is_applied() -> None:
    listener = Listener(DROPPING, on_gap="keep")
    hear(listener, store([1], range(1, 5)), number=0)
    hear(listener, store([2], range(5, 9), parent=1), number=1)
    reports = hear(
        listener, store([5], range(17, 21), parent=4), store([3], range(9, 13), parent=2), number=4
    )
    assert reports == [add(K3, 12)]
    assert listener.diary.total("missed_messages") == 2
    assert listener.diary.total("orphan_events") == 1


@pytest.mark.rule("SUB-W24", "SUB-052")
def test_w24_a_falling_number_with_other_content_is_another_process() -> None:
    listener = Listener()
    hear(listener, store([1], range(1, 5)), number=41)
    hear(listener, store([2], range(5, 9), parent=1), number=42)
    assert hear(listener, store([9], range(1, 5)), ts=9.0, number=0) == [CLEARED, add(K1, 4)]
    assert listener.changes == ["sequence_fell"]


@pytest.mark.rule("SUB-W25", "SUB-052")
def test_w25_the_same_bytes_under_the_same_number_are_a_duplicate() -> None:
    listener = Listener()
    event = store([1], range(1, 5))
    assert hear(listener, event, number=7) == [add(K1, 4)]
    assert hear(listener, event, number=7) == []
    assert hear(listener, store([2], range(5, 9), parent=1), number=8) == [add(K2, 8)]
    assert listener.diary.total("duplicates") == 1
    assert listener.changes == []


@pytest.mark.rule("SUB-W28", "SUB-031", "SUB-033")
def test_w28_a_broken_envelope_drops_its_message() -> None:
    event = ["BlockStored", [1], None, [1, 2, 3, 4], 4, None]
    for payload, reason in (
        (encode([1.0]), "envelope"),
        (encode({"ts": 1.0}), "envelope"),
        (encode(["now", []]), "ts"),
        (encode([1.0, []]) + b"\x00", "not_msgpack"),
        (encode([None, [event]]), "ts"),
    ):
        with pytest.raises(UnreadableBatchError) as caught:
            decode_batch(payload)
        assert caught.value.reason == reason
    assert decode_batch(encode([0, [event]])).time_us == 0
    assert hear(Listener(), event, ts=0) == [add(K1, 4)]


@pytest.mark.rule("SUB-W29", "SUB-035", "SUB-039", "SUB-042", "SUB-043", "SUB-044", "SUB-045", "SUB-048")
def test_w29_a_malformed_event_harms_no_other() -> None:
    bad: list[tuple[Any, str]] = [
        (store([None], range(1, 5)), "hash_type"),
        (store([True], range(1, 5)), "hash_type"),
        (store([1.5], range(1, 5)), "hash_type"),
        (store([2**63 - 1, [1]], range(1, 5)), "hash_type"),
        ({"type": "BlockStored", "token_ids": [1], "block_size": 4}, "missing_block_hashes"),
        ({"type": "BlockStored", "block_hashes": [1], "block_size": 4}, "missing_token_ids"),
        ({"type": "BlockRemoved"}, "missing_block_hashes"),
        (store([1], range(1, 5), 0), "block_size"),
        (store([1], range(1, 5), 2**31), "block_size"),
        (store([1], [1, 2, 3, -1]), "token_range"),
        (store([1], [1, 2, 3, 2**32]), "token_range"),
        (store([1], [1, 2, 3, None]), "token_type"),  # type: ignore[list-item]
        (store([1], [1, 2, 3, True]), "token_type"),
        (store([1], [[1, 2], [3, 4], 5, 6]), "token_type"),  # type: ignore[list-item]
        (store([1], [[1, 2, 3]] * 4), "token_type"),  # type: ignore[list-item]
        (store([1], range(1, 5), lora_id="1"), "lora_id"),
        (store([1], range(1, 5), lora_id=2**63), "lora_id"),
        (store([1], range(1, 5), extra_keys=[None, None]), "extra_keys"),
        (store([1], range(1, 5), extra_keys=["img"]), "extra_keys"),
        (store([1], range(1, 5), medium=3), "medium"),
        (store([1], range(1, 5), group_idx="0"), "group_idx"),
        (store([1], range(1, 5), cache_salt=7), "cache_salt"),
        (store([1], range(1, 5), parent=[1]), "hash_type"),
        ([], "empty_tuple"),
        (["BlockStored", [1], None, [1]], "truncated"),
        (["BlockRemoved"], "truncated"),
        ([7, [1]], "tag_type"),
        ({"type": 7}, "tag_type"),
        ({}, "no_type"),
        ("BlockStored", "not_map_or_tuple"),
        (None, "not_map_or_tuple"),
    ]
    listener = Listener()
    good = store([1], range(1, 5)), store([2], range(5, 9), parent=1)
    reports = hear(listener, good[0], *(event for event, _ in bad), good[1])
    assert reports == [add(K1, 4), add(K2, 8)]
    counted = {
        reason: n for (name, reason), n in listener.diary.counters.items() if name == "malformed_events"
    }
    assert sum(counted.values()) == len(bad)
    assert counted.keys() == {reason for _, reason in bad}


def test_an_event_that_cannot_be_read_at_all_harms_no_other() -> None:
    broken = b"\x81" + encode("type") + b"\xa2\xff\xff"  # a text that is not UTF-8
    unhashable = b"\x81\x80\x01"  # an empty map as the key of a map
    payload = b"\x92\xcb\x3f\xf0\0\0\0\0\0\0\x93" + broken + encode(store([1], range(1, 5))) + unhashable
    listener = Listener()
    listener.hear(payload)
    assert listener.take_reports() == [add(K1, 4)]
    assert listener.diary.total("malformed_events") == 2


@pytest.mark.rule("SUB-W31", "SUB-031")
def test_w31_times_are_microseconds_and_never_negative() -> None:
    seconds = (2.5, 0, -3, float("nan"), float("inf"), 1e308, 2**64 - 1)
    times = [decode_batch(encode([ts, []])).time_us for ts in seconds]
    assert times == [2_500_000, 0, 0, 0, 0, 0, (2**64 - 1) * 1_000_000]


@pytest.mark.rule("SUB-W41", "SUB-091")
def test_w41_beyond_the_bound_chains_go_from_their_end() -> None:
    listener = Listener(MappingSettings(max_tracked_blocks=3))
    hear(listener, store([1], range(1, 5)))
    hear(listener, store([2], range(5, 9), parent=1))
    hear(listener, store([3], range(50, 54), parent=1))
    reports = hear(listener, store([4], range(60, 64)))
    assert [report["op"] for report in reports] == ["add", "evict"]
    assert reports[1] == evict(K2)
    assert hear(listener, store([5], range(70, 74)))[1]["op"] == "evict"
    assert hear(listener, store([6], range(80, 84)))[1] == evict(K1)
    assert listener.path.tracked_blocks == 3


@pytest.mark.rule("SUB-W44", "SUB-022", "SUB-023")
def test_w44_a_key_counts_as_held_while_any_rank_holds_it() -> None:
    listener = Listener(lanes=2)
    event = store([1], range(1, 5))
    assert hear(listener, event, lane=0) == [add(K1, 4)]
    assert hear(listener, event, lane=1) == [add(K1, 4)]
    assert hear(listener, CLEAR, lane=0) == []
    assert hear(listener, remove(1), lane=1) == [evict(K1)]


@pytest.mark.rule("SUB-W46", "SUB-085")
def test_w46_an_offload_store_before_any_block_size_is_known_says_nothing() -> None:
    listener = Listener()
    assert hear(listener, store([1], range(1, 5), medium="CPU_PINNED")) == []
    assert listener.diary.total("block_size_mismatch") == 1


@pytest.mark.rule("SUB-W47", "SUB-072")
def test_w47_a_model_with_windows_only_uses_them() -> None:
    event = store([1, 2], range(1, 9), group_idx=0, kv_cache_spec_kind="sliding_window")
    assert hear(Listener(), event) == [add(K1, 4), add(K2, 8)]


def test_the_keys_of_the_cases_are_those_of_the_fingerprint() -> None:
    assert [key.hex() for key in prefix_digests(range(1, 21), 4)] == [K1, K2, K3, K4, K5]
