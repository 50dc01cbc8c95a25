"""What the mapping makes of events beyond the worked cases, and that it never claims what is not there."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferencecache.core.fingerprint import prefix_digests
from inferencecache.kvevent_subscriber.diary import Diary
from inferencecache.kvevent_subscriber.mapping import Mapper, MappingSettings
from inferencecache.kvevent_subscriber.orphans import MAX_HELD_TOKENS
from inferencecache.kvevent_subscriber.predictions import LIFETIME_S
from inferencecache.kvevent_subscriber.reports import Added, Cleared, Doubted, Evicted, Report, Restarted
from tests.unit.subscriber.frames import Listener
from tests.unit.subscriber.test_worked_cases import (
    CLEAR,
    K1,
    K2,
    K3,
    OFFLOADING,
    add,
    encode,
    evict,
    hear,
    remove,
    store,
)

# ---------------------------------------------------------------------- orphans


def test_an_orphan_is_told_once_its_parent_becomes_known() -> None:
    listener = Listener()
    assert hear(listener, store([3], range(9, 13), parent=2)) == []
    assert hear(listener, store([2], range(5, 9), parent=1)) == []
    assert hear(listener, store([1], range(1, 5))) == [add(K1, 4), add(K2, 8), add(K3, 12)]
    assert listener.diary.total("orphans_chained") == 2


def test_an_orphan_that_does_not_fit_its_parent_is_not_counted_as_chained() -> None:
    listener = Listener()
    assert hear(listener, store([2], range(5, 8), parent=1)) == []
    assert hear(listener, store([1], range(1, 5))) == [add(K1, 4)]
    assert listener.diary.total("token_mismatch") == 1
    assert listener.diary.total("orphans_chained") == 0


def test_an_orphan_does_not_fix_the_block_size() -> None:
    listener = Listener()
    hear(listener, store([3], range(1, 9), 8, parent=99))
    assert listener.path.block_size == 0
    assert hear(listener, store([1], range(1, 5))) == [add(K1, 4)]


@pytest.mark.parametrize("end", [[CLEAR], [remove(3)]], ids=["clear", "removal"])
def test_an_orphan_that_is_gone_is_not_told(end: list[dict[str, Any]]) -> None:
    listener = Listener()
    hear(listener, store([3], range(9, 13), parent=2))
    hear(listener, *end)
    assert hear(listener, store([1, 2], range(1, 9))) == [add(K1, 4), add(K2, 8)]
    assert listener.diary.total("unknown_removed") == 0


def test_the_removal_of_one_block_of_an_orphan_leaves_the_blocks_before_it() -> None:
    listener = Listener()
    hear(listener, store([2, 3], range(5, 13), parent=1))
    hear(listener, remove(3))
    assert hear(listener, store([1], range(1, 5))) == [add(K1, 4), add(K2, 8)]


def test_a_removal_from_another_medium_leaves_an_orphan() -> None:
    listener = Listener()
    hear(listener, store([2], range(5, 9), parent=1))
    hear(listener, remove(2, medium="CPU"))
    assert hear(listener, store([1], range(1, 5))) == [add(K1, 4), add(K2, 8)]


def test_held_orphans_are_bounded_and_the_oldest_goes_first() -> None:
    listener = Listener()
    for number in range(20_000):
        hear(listener, store([number + 10], range(4), parent=number + 1_000_000))
    dropped = listener.diary.total("orphans_dropped")
    assert dropped == 20_000 - 16_384
    assert hear(listener, store([1_000_000], range(1, 5))) == [add(K1, 4)]
    assert len(hear(listener, store([1_000_000 + 19_999], range(1, 5)))) == 2


def test_the_tokens_of_held_orphans_are_bounded_too() -> None:
    listener = Listener()
    size = MAX_HELD_TOKENS // 4
    for number in range(6):
        hear(listener, store([number + 10], range(size), size, parent=number + 100))
    assert listener.diary.total("orphans_dropped") == 2
    assert (listener.path.held_blocks, listener.path.held_tokens) == (4, MAX_HELD_TOKENS)


@pytest.mark.rule("SUB-057")
def test_an_orphan_from_before_a_gap_is_not_told_after_it() -> None:
    listener = Listener()
    assert hear(listener, store([2], range(5, 9), parent=1), number=0) == []
    assert hear(listener, store([1], range(1, 5)), number=2) == [add(K1, 4)]
    assert listener.diary.total("orphans_dropped") == 1


@pytest.mark.rule("SUB-074")
def test_an_offload_store_with_a_group_waits_for_the_reference_group() -> None:
    listener = Listener()
    offloaded = store([9], range(1, 5), medium="CPU", group_idx=0)
    assert hear(listener, offloaded) == []
    assert hear(listener, store([1], range(50, 54), group_idx=0))[0]["tier"] == "T1"
    # The group is known now, the block size only with the store that made it known.
    assert listener.diary.total("block_size_mismatch") == 1


# ---------------------------------------------------------------------- groups, media, tiers


@pytest.mark.rule("SUB-072")
def test_a_provisional_group_is_withdrawn_when_a_main_one_shows_up() -> None:
    listener = Listener()
    window: dict[str, Any] = {"group_idx": 1, "kv_cache_spec_kind": "sliding_window"}
    assert hear(listener, store([1], range(1, 5), **window)) == [add(K1, 4)]
    main = store([2], range(50, 54), group_idx=2, kv_cache_spec_kind="full_attention")
    reports = hear(listener, main, store([3], range(60, 64), **window))
    assert [report["op"] for report in reports] == ["evict", "add"]
    assert reports[0] == evict(K1)
    assert listener.diary.total("ignored_group") == 1


@pytest.mark.rule("SUB-071")
@pytest.mark.parametrize("kind", ["mamba", "encoder_only_attention", "cross_attention", "of tomorrow"])
def test_groups_that_say_nothing_about_a_prefix_are_never_used(kind: str) -> None:
    listener = Listener()
    assert hear(listener, store([1], range(1, 5), kv_cache_spec_kind=kind)) == []
    assert listener.diary.total("ignored_group") == 1


@pytest.mark.rule("SUB-046", "SUB-047")
def test_shared_and_unknown_media_are_ignored() -> None:
    listener = Listener()
    hear(listener, store([1], range(1, 5)))
    for medium, locality in (
        ("EXTERNAL", None),
        ("storage", "REMOTE"),
        ("TAPE", None),
        ("TAPE", None),
    ):
        assert hear(listener, store([1], range(1, 5), medium=medium, locality=locality)) == []
    assert listener.diary.total("ignored_medium") == 4
    assert [warned.reason for warned in listener.diary.drain()] == ["ignored_medium:TAPE"]
    assert hear(listener, remove(1)) == [evict(K1)]


@pytest.mark.rule("SUB-095")
def test_an_adapter_whose_name_no_lookup_could_give_is_not_reported() -> None:
    listener = Listener()
    assert hear(listener, store([1], range(1, 5), lora_name="ö" * 128)) == []
    assert listener.diary.total("unmapped_adapter") == 1
    assert hear(listener, store([1], range(1, 5), lora_name="o" * 255)) == [add(K1, 4, adapter="o" * 255)]


def test_a_cpu_pool_of_all_pods_is_not_credited_to_one() -> None:
    listener = Listener(MappingSettings(cpu_medium="shared"))
    hear(listener, store([1], range(1, 5)), store([1], range(1, 5), medium="cpu"))
    assert hear(listener, remove(1)) == [evict(K1)]
    assert listener.diary.total("ignored_medium") == 1


@pytest.mark.rule("SUB-083", "SUB-103")
def test_a_hash_that_stands_for_something_else_now_is_withdrawn_first() -> None:
    listener = Listener()
    hear(listener, store([1], range(1, 5)))
    reports = hear(listener, store([1], range(50, 54)))
    assert reports[0] == evict(K1)
    assert reports[1]["op"] == "add"


@pytest.mark.rule("SUB-103")
def test_a_removal_without_a_group_or_for_another_owner() -> None:
    listener = Listener()
    hear(listener, store([1], range(1, 5), group_idx=0), store([1], [], 0, medium="CPU", ownership="a"))
    assert hear(listener, remove(1, medium="CPU")) == []
    assert hear(listener, remove(1)) == [add(K1, 4, "T2", own=True)]
    assert hear(listener, remove(1, medium="cpu", ownership="a")) == [evict(K1)]


def test_a_predicted_key_is_taken_back_when_nothing_confirms_it() -> None:
    listener = Listener(OFFLOADING)
    listener.now = 100.0
    hear(listener, store([1, 2], range(1, 9)))
    hear(listener, remove(2, 1))
    assert listener.path.wake_at() == 100.0 + LIFETIME_S
    hear(listener, store([1], range(1, 5)))
    listener.take(listener.path.tick(100.0 + LIFETIME_S))
    assert listener.take_reports() == [evict(K2)]
    assert listener.path.wake_at() is None


def test_predictions_share_the_bound_of_tracked_blocks() -> None:
    listener = Listener(MappingSettings(ignore_block_removed=True, max_tracked_blocks=2))
    hear(listener, store([1, 2], range(1, 9)))
    hear(listener, remove(2, 1))
    reports = hear(listener, store([3, 4], range(50, 58)))
    reports += hear(listener, remove(99))
    assert [report for report in reports if report["op"] == "evict"] == [evict(K2), evict(K1)]


@pytest.mark.rule("SUB-049", "SUB-093")
def test_memory_follows_what_the_engine_holds() -> None:
    listener = Listener()
    assert hear(listener, store([], range(4))) == []
    for number in range(100):
        hear(listener, store([number], [number, 0, 0, 0]), store([number], [number, 0, 0, 0], medium="CPU"))
        hear(listener, remove(number))
        hear(listener, remove(number, medium="CPU"))
    assert listener.path.tracked_blocks == 0
    assert listener.path._mapper._held._counts == {}


def test_a_chain_that_runs_in_a_circle_is_bounded_like_any_other() -> None:
    listener = Listener(MappingSettings(max_tracked_blocks=2))
    hear(listener, store([1], range(1, 5)), store([2], range(5, 9), parent=1))
    hear(listener, store([1], range(9, 13), parent=2), store([3], range(13, 17), parent=1))
    assert listener.path.tracked_blocks == 2


# ---------------------------------------------------------------------- doubt and full states


def test_what_was_known_before_a_gap_is_told_before_it() -> None:
    listener = Listener()
    hear(listener, store([1], range(1, 5)), number=0)
    listener.now = 500.0
    hear(listener, store([2], range(50, 54)), number=5)
    [before, gap, after] = listener.path.full_state(600.0)
    assert (before.observed_at, after.observed_at) == (0.0, 500.0)
    assert gap.reports == [Doubted(0)]
    assert [report.keys[0].hex() for report in before.reports if isinstance(report, Added)] == [K1]
    assert Doubted(4) in listener.raw


def test_a_block_that_is_stored_again_after_a_gap_is_certain_without_its_older_copies() -> None:
    listener = Listener()
    hear(listener, store([1], range(1, 5)), store([1], range(1, 5), medium="CPU"), number=0)
    hear(listener, store([1], range(1, 5)), number=5)
    assert len(listener.path.full_state(1.0)) == 1
    assert hear(listener, remove(1)) == [evict(K1)]


def test_a_copy_from_before_a_gap_is_not_called_certain_by_a_downgrade() -> None:
    listener = Listener()
    hear(listener, store([1], range(1, 5)), store([1], range(1, 5), medium="CPU"), number=0)
    assert hear(listener, remove(1), number=5) == [evict(K1)]


def test_a_copy_from_before_a_gap_is_as_good_as_none_beside_a_certain_one() -> None:
    listener = Listener()
    hear(listener, store([1], range(1, 5)), number=0)
    assert hear(listener, store([2], range(1, 5), medium="CPU"), number=5) == [add(K1, 4, tier="T2")]
    assert hear(listener, remove(1)) == []
    hear(listener, store([1], range(1, 5)), number=10)
    assert hear(listener, remove(1)) == [evict(K1)]


def test_of_several_copies_from_before_a_gap_the_key_goes_with_the_first() -> None:
    listener = Listener()
    hear(listener, store([1], range(1, 5)), store([2], range(1, 5)), number=0)
    assert hear(listener, remove(1), number=5) == [evict(K1)]


def test_a_full_state_is_grouped_by_age_and_has_parents_first() -> None:
    mapper = Mapper(MappingSettings(), Diary())
    listener = Listener()
    listener.path._mapper = mapper
    for now, event in (
        (0.0, store([1], range(1, 5))),
        (0.5, store([2], range(5, 9), parent=1)),
        (0.6, store([1], range(1, 5))),
        (900.0, store([9], range(50, 54))),
    ):
        listener.now = now
        hear(listener, event)
    groups = mapper.full_state(1000.0)
    assert [group.observed_at for group in groups] == [0.5, 900.0]
    [first] = groups[0].reports
    assert isinstance(first, Added)
    assert first.token_counts == [4, 8]


# ---------------------------------------------------------------------- against an engine


@dataclass
class Replica:
    """Holds, as an index would keep them."""

    tiers: dict[tuple[str, bytes], int] = field(default_factory=dict)

    def fold(self, reports: list[Report]) -> None:
        for report in reports:
            match report:
                case Added():
                    self.tiers |= {(report.adapter, key): report.tier for key in report.keys}
                case Evicted():
                    for key in report.keys:
                        self.tiers.pop((report.adapter, key), None)
                case Cleared() | Restarted():
                    self.tiers.clear()
                case _:
                    pass


class TrueCache:
    """An engine's cache of prefixes on a GPU and a CPU; `room` blocks on each, oldest out first."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.gpu: OrderedDict[tuple[int, ...], None] = OrderedDict()
        self.cpu: OrderedDict[tuple[int, ...], None] = OrderedDict()

    def do(self, step: str, prompt: tuple[int, ...]) -> list[dict[str, Any]]:
        """One step: the events."""
        match step:
            case "use":
                return self.use(prompt)
            case "offload":
                return self.offload(prompt)
            case _:
                return self.clear()

    def use(self, prompt: tuple[int, ...]) -> list[dict[str, Any]]:
        """Compute a prompt of one-token blocks: the events."""
        events = []
        for end in range(1, len(prompt) + 1):
            prefix = prompt[:end]
            if prefix not in self.gpu:
                events.append(self._stored(prefix, "GPU"))
            self.gpu[prefix] = None
            self.gpu.move_to_end(prefix)
        while len(self.gpu) > self.room:
            events += self._evict(next(iter(self.gpu)))
        return events

    def offload(self, prompt: tuple[int, ...]) -> list[dict[str, Any]]:
        """Copy a prompt's blocks to the CPU."""
        events = []
        for prefix in [prefix for prefix in self.gpu if prefix == prompt[: len(prefix)]]:
            self.cpu[prefix] = None
            events.append(self._stored(prefix, "CPU"))
        while len(self.cpu) > self.room:
            oldest, _ = self.cpu.popitem(last=False)
            events.append(remove(_hash(oldest), medium="CPU"))
        return events

    def _evict(self, prefix: tuple[int, ...]) -> list[dict[str, Any]]:
        del self.gpu[prefix]
        return [remove(_hash(prefix), medium="GPU")]

    def clear(self) -> list[dict[str, Any]]:
        self.gpu.clear()
        self.cpu.clear()
        return [CLEAR]

    def _stored(self, prefix: tuple[int, ...], medium: str) -> dict[str, Any]:
        parent = _hash(prefix[:-1]) if len(prefix) > 1 else None
        return store([_hash(prefix)], [prefix[-1]], 1, parent, medium=medium)

    def tiers(self) -> dict[tuple[str, bytes], int]:
        """What an index should say."""
        held = dict.fromkeys(self.cpu, 2) | dict.fromkeys(self.gpu, 1)
        return {("", prefix_digests(prefix, 1)[-1]): tier for prefix, tier in held.items()}


def _hash(prefix: tuple[int, ...]) -> bytes:
    return bytes(prefix)


prompts = st.lists(st.integers(0, 2), min_size=1, max_size=5).map(tuple)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("use"), prompts),
        st.tuples(st.just("use"), prompts),
        st.tuples(st.just("offload"), prompts),
        st.tuples(st.just("clear"), st.just(())),
    ),
    max_size=25,
)


@settings(max_examples=200, deadline=None)
@given(steps, st.integers(1, 8))
def test_what_is_reported_is_what_the_engine_holds(
    steps: list[tuple[str, tuple[int, ...]]], room: int
) -> None:
    cache, replica, listener = TrueCache(room), Replica(), Listener()
    for number, (step, prompt) in enumerate(steps):
        listener.now = float(number)
        listener.hear(encode([1.0, cache.do(step, prompt), 0]))
    replica.fold(listener.raw)
    assert replica.tiers == cache.tiers()
    told = Replica()
    for group in listener.path.full_state(1000.0):
        told.fold(group.reports)
    assert told.tiers == cache.tiers()


@settings(max_examples=200, deadline=None)
@given(steps, st.integers(1, 8), st.sets(st.integers(0, 25)), st.integers(1, 6))
def test_with_messages_lost_and_a_small_memory_nothing_is_reported_that_was_never_there(
    steps: list[tuple[str, tuple[int, ...]]], room: int, lost: set[int], bound: int
) -> None:
    cache, replica = TrueCache(room), Replica()
    listener = Listener(MappingSettings(max_tracked_blocks=bound))
    ever: set[tuple[str, bytes]] = set()
    for number, (step, prompt) in enumerate(steps):
        events = cache.do(step, prompt)
        ever |= cache.tiers().keys()
        if number not in lost:
            listener.now = float(number)
            listener.hear(b"", number.to_bytes(8, "big"), encode([float(number), events, 0]))
    replica.fold(listener.raw)
    assert replica.tiers.keys() <= ever
    assert listener.path.tracked_blocks <= bound
