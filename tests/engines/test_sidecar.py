"""What released engines publish arrives in the log as what it stands for."""

from __future__ import annotations

from typing import Any

import pytest

from inferencecache.schemas.records import Cleared, Complete, Evicted, Gap, Stored
from tests.engines.conftest import Follow, StartPublishers
from tests.engines.publisher import Publisher
from tests.support.sidecar import LogTail, keys
from tests.support.waiting import eventually
from tools.engines import RELEASES, Release

pytestmark = pytest.mark.engines

PROMPT = (1, 2, 3, 4, 5, 6, 7, 8)
OTHER = (50, 51, 52, 53)
THIRD = (60, 61, 62, 63)
BIG = 2**64 - 3

of_vllm = pytest.mark.parametrize(
    "release",
    [release for release in RELEASES if release.package == "vllm"],
    ids=lambda release: release.name,
    indirect=True,
)
of_sglang = pytest.mark.parametrize(
    "release",
    [release for release in RELEASES if release.package == "sglang"],
    ids=lambda release: release.name,
    indirect=True,
)


@pytest.mark.rule("SUB-059", "SUB-060", "SUB-061", "SUB-081", "SUB-224")
async def test_what_was_cached_before_the_sidecar_came_is_told_at_start(
    engine: Publisher, tail: LogTail, follow: Follow, release: Release
) -> None:
    await engine.publish({"type": "AllBlocksCleared"}, engine.stored([11], PROMPT[:4]))
    await engine.store([12], PROMPT[4:], parent=11)
    await engine.store([13], OTHER)
    await engine.remove(13)
    await engine.has_published(3)
    sidecar = follow(engine, "--replay-endpoint=auto")
    await eventually(lambda: tail.records(Complete))
    assert tail.held() == tail.certain() == set(keys(*PROMPT))
    assert sidecar.counter("replayed_messages") == 4
    told = [record for record in tail.records(Stored) if isinstance(record, Stored)]
    assert {(record.scheme, record.adapter, record.tier) for record in told} == {(release.package, "", 1)}


async def test_live_events_arrive_in_order(engine: Publisher, tail: LogTail, follow: Follow) -> None:
    sidecar = follow(engine)
    await eventually(lambda: sidecar.certain and sidecar.sidecar.ready)
    await engine.store([11, 12], PROMPT)
    await engine.store([13], OTHER)
    await engine.remove(13)
    await eventually(lambda: tail.records(Evicted))
    assert tail.held() == set(keys(*PROMPT))
    await engine.clear()
    await engine.store([14], THIRD)
    await eventually(lambda: tail.held() == set(keys(*THIRD)))
    assert len(tail.records(Cleared)) == 1
    assert len(tail.incarnations()) == 1
    assert sidecar.counter("duplicates") == 0


@pytest.mark.rule("SUB-040", "SUB-041", "SUB-212", "SUB-221")
async def test_hashes_of_every_kind_name_one_block(
    engine: Publisher, tail: LogTail, follow: Follow, release: Release
) -> None:
    whole = bytes(range(32))
    first, last = (BIG, whole) if release.package == "vllm" else (BIG - 2**64, -(2**63))
    await engine.store([first], PROMPT[:4])
    await engine.store([last], PROMPT[4:], parent=first)
    follow(engine)
    await eventually(lambda: tail.held() == set(keys(*PROMPT)))
    await engine.remove(last)
    await eventually(lambda: tail.held() == set(keys(*PROMPT)[:1]))


@pytest.mark.rule("SUB-055", "SUB-235")
async def test_a_gap_is_filled_by_a_replay(engine: Publisher, tail: LogTail, follow: Follow) -> None:
    sidecar = follow(engine)
    await eventually(lambda: sidecar.certain and sidecar.sidecar.ready)
    await engine.store([1], OTHER)
    await eventually(tail.held)
    await engine.publish(engine.stored([11], PROMPT[:4]), lost=True)
    await engine.store([12], PROMPT[4:], parent=11)
    await eventually(lambda: tail.held() == {*keys(*PROMPT), *keys(*OTHER)})
    assert sidecar.counter("missed_messages") == 1
    assert sidecar.counter("replayed_messages") == 2
    assert sidecar.counter("duplicates") == 2
    assert sidecar.counter("unrecovered_messages") == 0
    assert tail.records(Gap) == []


@pytest.mark.rule("SUB-056", "SUB-237")
async def test_a_number_that_the_engine_burns_is_a_gap_for_good(
    engine: Publisher, tail: LogTail, follow: Follow
) -> None:
    sidecar = follow(engine)
    await eventually(lambda: sidecar.certain and sidecar.sidecar.ready)
    await engine.store([1], OTHER)
    await eventually(tail.held)
    await engine.spoil()
    await engine.store([11, 12], PROMPT)
    await eventually(lambda: tail.held() == {*keys(*PROMPT), *keys(*OTHER)})
    assert tail.records(Gap) == [Gap(1)]
    assert tail.certain() == set(keys(*PROMPT))
    assert sidecar.counter("replays") == 2


@pytest.mark.rule("SUB-056", "SUB-235")
async def test_a_replay_that_is_cut_leaves_the_start_unknown(
    start: StartPublishers, tail: LogTail, follow: Follow
) -> None:
    [engine] = await start(buffer_steps=2)
    await engine.store([1], OTHER)
    await engine.store([11], PROMPT[:4])
    await engine.store([13], THIRD)
    await engine.has_published(2)
    follow(engine)
    await eventually(lambda: tail.held() == {*keys(*PROMPT)[:1], *keys(*THIRD)})
    await engine.store([12], PROMPT[4:], parent=11)
    await eventually(lambda: tail.held() == {*keys(*PROMPT), *keys(*THIRD)})
    assert tail.records(Complete) == []


@pytest.mark.rule("SUB-236")
async def test_a_long_replay_arrives_whole(engine: Publisher, tail: LogTail, follow: Follow) -> None:
    prompts = 4000
    for first in range(prompts):
        await engine.store([first], range(first, first + 256), block_size=256)
    await engine.has_published(prompts - 1)
    sidecar = follow(engine)
    await eventually(lambda: tail.records(Complete), within_s=40)
    assert sidecar.counter("replayed_messages") == prompts
    assert sidecar.counter("unrecovered_messages") == 0
    assert len(tail.held()) == prompts


@pytest.mark.rule("SUB-017", "SUB-218")
async def test_an_engine_that_connects_is_heard(
    start: StartPublishers, tail: LogTail, follow: Follow
) -> None:
    [engine] = await start(host="127.0.0.1")
    await engine.store([11, 12], PROMPT)
    follow(engine, f"--engine-endpoint=tcp://*:{engine.live_port}")
    await engine.store([1], OTHER)
    await eventually(lambda: tail.held() == {*keys(*PROMPT), *keys(*OTHER)})


@pytest.mark.rule("SUB-083", "SUB-216", "SUB-217")
async def test_what_is_announced_again_is_one_block_and_cleared_again_nothing(
    engine: Publisher, tail: LogTail, follow: Follow
) -> None:
    follow(engine)
    await engine.store([11], PROMPT[:4])
    await engine.publish(engine.stored([11, 12], PROMPT), engine.stored([12], PROMPT[4:], parent=11))
    await engine.remove(12)
    await eventually(lambda: tail.held() == set(keys(*PROMPT)[:1]))
    await engine.clear()
    await engine.publish({"type": "AllBlocksCleared"}, engine.stored([1], OTHER))
    await eventually(lambda: tail.held() == set(keys(*OTHER)))


@pytest.mark.rule("SUB-052", "SUB-053")
async def test_blocks_of_a_killed_engine_vanish(engine: Publisher, tail: LogTail, follow: Follow) -> None:
    sidecar = follow(engine)
    await engine.store([1], OTHER)
    await engine.store([2], THIRD)
    await eventually(lambda: len(tail.held()) == 2)
    await engine.kill()
    await engine.start()
    await engine.store([11, 12], PROMPT)
    await eventually(lambda: tail.held() == set(keys(*PROMPT)), within_s=15)
    assert sidecar.counter("engine_restarts") == 1
    assert len(tail.incarnations()) == 2


@pytest.mark.rule("SUB-020", "SUB-021", "SUB-022", "SUB-023")
async def test_ranks_are_heard_and_replayed_on_ports_of_their_own(
    start: StartPublishers, tail: LogTail, follow: Follow
) -> None:
    first, second = await start(ranks=2)
    await first.store([1], OTHER)
    await second.store([1], PROMPT[:4])
    await first.has_published(0)
    await second.has_published(0)
    sidecar = follow(first, "--data-parallel-size=2")
    await eventually(lambda: tail.held() == {*keys(*OTHER), *keys(*PROMPT)[:1]})
    assert sidecar.counter("replayed_messages") == 2
    await second.store([2], PROMPT[4:], parent=1)
    await eventually(lambda: tail.held() == {*keys(*OTHER), *keys(*PROMPT)})
    await first.clear()
    await eventually(lambda: tail.held() == set(keys(*PROMPT)))
    assert tail.records(Cleared) == []


@pytest.mark.rule("SUB-095", "SUB-098", "SUB-214")
async def test_blocks_of_an_adapter_are_filed_under_its_name(
    engine: Publisher, tail: LogTail, follow: Follow, release: Release
) -> None:
    more: dict[str, Any] = (
        {"lora_id": 1, "extra_keys": [["sql-lora"], ["sql-lora"]]} if release.package == "vllm" else {}
    )
    await engine.store([11, 12], PROMPT, lora_name="sql-lora", **more)
    await engine.store([21], PROMPT[:4])
    await engine.remove(12)
    follow(engine)
    first = keys(*PROMPT)[0]
    await eventually(lambda: filed(tail) == {("sql-lora", first), ("", first)})


@pytest.mark.rule("SUB-088", "SUB-089", "SUB-214")
async def test_salted_blocks_are_not_reported(engine: Publisher, tail: LogTail, follow: Follow) -> None:
    salt: dict[str, Any] = (
        {"cache_salt": "s"} if engine.knows("cache_salt") else {"extra_keys": [["s"], None]}
    )
    sidecar = follow(engine)
    await engine.store([11, 12], PROMPT, **salt)
    await engine.store([13], THIRD, parent=12)
    await engine.store([1], OTHER)
    await eventually(lambda: tail.held() == set(keys(*OTHER)))
    assert sidecar.counter("opaque_blocks") == 3


@of_vllm
@pytest.mark.rule("SUB-088", "SUB-214", "SUB-W14")
async def test_blocks_with_an_image_are_not_reported_nor_what_follows_them(
    engine: Publisher, tail: LogTail, follow: Follow
) -> None:
    sidecar = follow(engine)
    await engine.store([10, 11, 12], (*OTHER, *PROMPT), extra_keys=[None, [["image", -1]], None])
    await eventually(lambda: tail.held() == set(keys(*OTHER)))
    assert sidecar.counter("opaque_blocks") == 2


@of_vllm
@pytest.mark.rule("SUB-071", "SUB-072", "SUB-073", "SUB-074", "SUB-W16")
async def test_of_a_hybrid_model_one_group_stands_for_all(
    engine: Publisher, tail: LogTail, follow: Follow
) -> None:
    window: dict[str, Any] = {"kv_cache_spec_kind": "sliding_window", "kv_cache_spec_sliding_window": 8}
    sidecar = follow(engine)
    await engine.publish(engine.stored([21], PROMPT, group_idx=1, **window), engine.stored([11, 12], PROMPT))
    await eventually(lambda: tail.held() == set(keys(*PROMPT)))
    await engine.publish(engine.removed(11, group_idx=1), engine.removed(12))
    await eventually(lambda: tail.held() == set(keys(*PROMPT)[:1]))
    assert sidecar.counter("ignored_group") == 1


@of_vllm
@pytest.mark.rule("SUB-042", "SUB-084", "SUB-103", "SUB-W17", "SUB-215")
async def test_an_offloaded_copy_outlives_the_one_on_the_gpu(
    engine: Publisher, tail: LogTail, follow: Follow
) -> None:
    local: dict[str, Any] = {"locality": "LOCAL"} if engine.knows("locality") else {}
    offloaded: dict[str, Any] = {
        "medium": "CPU",
        "block_size": 0,
        "group_idx": None,
        "kv_cache_spec_kind": None,
        **local,
    }
    follow(engine)
    await engine.store([11, 12], PROMPT)
    await engine.publish(engine.stored([11, 99], [], **offloaded))
    await engine.remove(11, 12)
    await eventually(lambda: tiers(tail) == {(keys(*PROMPT)[0], 2)})
    await engine.remove(11, medium="CPU", group_idx=None, **local)
    await eventually(lambda: tail.held() == set())


@of_sglang
@pytest.mark.rule("SUB-101", "SUB-102", "SUB-W18", "SUB-222")
async def test_a_host_copy_outlives_the_one_on_the_device(
    engine: Publisher, tail: LogTail, follow: Follow
) -> None:
    follow(engine)
    await engine.store([11, 12], PROMPT)
    await engine.store([11], PROMPT[:4], medium="CPU_PINNED")
    await engine.remove(11, 12)
    await eventually(lambda: tiers(tail) == {(keys(*PROMPT)[0], 2)})
    await engine.store([11], PROMPT[:4])
    await eventually(lambda: tiers(tail) == {(keys(*PROMPT)[0], 1)})
    await engine.remove(11, medium="CPU_PINNED")
    await engine.remove(11)
    await eventually(lambda: tail.held() == set())


@of_sglang
@pytest.mark.rule("SUB-043")
async def test_of_token_pairs_the_first_one_counts(engine: Publisher, tail: LogTail, follow: Follow) -> None:
    follow(engine)
    await engine.store([11, 12], [(token, token + 1) for token in PROMPT])
    await eventually(lambda: tail.held() == set(keys(*PROMPT)))


@pytest.mark.rule("SUB-036", "SUB-046", "SUB-047", "SUB-090")
async def test_what_says_nothing_about_this_replica_changes_nothing(
    engine: Publisher, tail: LogTail, follow: Follow
) -> None:
    extra: dict[str, Any] = {"session_id": "s", "lookahead_token_ids": [[9], [10]]}
    sidecar = follow(engine)
    await engine.store(
        [11, 12], PROMPT, **{name: value for name, value in extra.items() if engine.knows(name)}
    )
    await engine.store([21], THIRD, medium="EXTERNAL")
    if engine.knows("locality"):
        await engine.store([22], THIRD, medium="STORAGE", locality="REMOTE")
    await engine.store([1], OTHER)
    await eventually(lambda: tail.held() == {*keys(*PROMPT), *keys(*OTHER)})
    assert sidecar.counter("ignored_medium") == 1 + engine.knows("locality")


def filed(tail: LogTail) -> set[tuple[str, bytes]]:
    """Every key that is held, and for which adapter."""
    return {(hold.adapter, hold.key.to_bytes(8, "big")) for hold in tail.fold.holds}


def tiers(tail: LogTail) -> set[tuple[bytes, int]]:
    """Every key that is held, and on which tier."""
    return {(hold.key.to_bytes(8, "big"), how.tier) for hold, how in tail.fold.holds.items()}
