"""What a producer sends, when, and that the log ends up with what it knows whatever happens on the way."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferencecache.core.protocol.producer import (
    MAX_ENTRIES,
    Action,
    Begun,
    Fenced,
    Group,
    Producer,
    ProducerSettings,
    Publish,
    StatsStored,
    TellState,
    entries_of,
)
from inferencecache.schemas.ids import AdapterId, HashScheme, Incarnation
from inferencecache.schemas.records import (
    Alive,
    Batch,
    Begin,
    Cleared,
    Evicted,
    Gap,
    Stats,
    Stored,
    decode_batch,
)
from inferencecache.schemas.requests import ResyncRequest

SUBJECT = "ic.ev.1.0.t.m.r.e"


def stored(*keys: int, tier: int = 1) -> Stored:
    return Stored(
        scheme=HashScheme("vllm"),
        adapter=AdapterId(""),
        tier=tier,
        width=8,
        hashes=b"".join(key.to_bytes(8, "big") for key in keys),
        token_counts=struct.pack(f"<{len(keys)}i", *(16 for _ in keys)),
    )


def evicted(*keys: int) -> Evicted:
    return Evicted(AdapterId(""), 8, b"".join(key.to_bytes(8, "big") for key in keys))


def producer(*, window_s: float = 0.02, outbox_max: int = 1024, alive_interval_s: float = 20.0) -> Producer:
    names = (Incarnation(f"life-{number}") for number in itertools.count(1))
    return Producer(
        Begin(pod_uid="uid-1", engine="e1", scheme=HashScheme("vllm"), block_size=16),
        ProducerSettings(window_s, outbox_max, alive_interval_s),
        mint=lambda: next(names),
        jitter=lambda: 0.0,
    )


def published(actions: Iterable[Action]) -> Publish:
    [publish] = [action for action in actions if isinstance(action, Publish)]
    return publish


def batch_of(actions: Iterable[Action]) -> Batch:
    return decode_batch(published(actions).payload).batch


def begun(machine: Producer, now: float = 0.0, *groups: Group) -> Producer:
    """Bring a producer to where it has begun and told its state."""
    begin = published(machine.placed(SUBJECT, now))
    machine.acknowledged(begin.msg_id, 1, now)
    actions = machine.restate(groups, now)
    while publishes := [action for action in actions if isinstance(action, Publish)]:
        actions = machine.acknowledged(publishes[0].msg_id, 2, now)
    return machine


def acknowledge(machine: Producer, actions: Iterable[Action], now: float, sequence: int = 9) -> list[Action]:
    return machine.acknowledged(published(actions).msg_id, sequence, now)


def test_the_first_batch_is_a_begin_that_expects_the_subject_to_be_empty() -> None:
    actions = producer().placed(SUBJECT, 0.0)
    assert actions[0] == Begun(Incarnation("life-1"), "start")
    publish = published(actions)
    assert (publish.subject, publish.msg_id, publish.expect_last_subject_sequence) == (SUBJECT, "life-1.1", 0)
    batch = decode_batch(publish.payload).batch
    assert (batch.incarnation, batch.sequence) == ("life-1", 1)
    assert batch.records == (Begin("uid-1", "e1", HashScheme("vllm"), 16),)


def test_a_refused_begin_is_sent_again_as_it_is_with_the_number_the_server_reports() -> None:
    machine = producer()
    first = published(machine.placed(SUBJECT, 0.0))
    second = published(machine.refused(first.msg_id, 41, 0.0))
    assert second == first._replace(expect_last_subject_sequence=41)
    assert machine.acknowledged(second.msg_id, 42, 0.1) == [TellState()]
    assert published(machine.begin_anew("engine_restart", 0.2)).expect_last_subject_sequence == 42


def test_what_is_submitted_while_an_incarnation_begins_is_left_to_the_full_state() -> None:
    machine = producer()
    begin = published(machine.placed(SUBJECT, 0.0))
    assert machine.submit([stored(1)], 0.0, 0.0) == []
    assert machine.acknowledged(begin.msg_id, 1, 0.1) == [TellState()]
    assert batch_of(machine.restate([Group(0.0, [stored(1)])], 0.1)).records == (stored(1),)


def test_before_there_is_a_layout_nothing_is_sent() -> None:
    machine = producer()
    assert machine.submit([stored(1)], 0.0, 0.0) == []
    assert machine.begin_anew("engine_restart", 0.0) == []
    assert machine.wake_at() is None


@pytest.mark.rule("SUB-110")
def test_the_first_record_after_a_quiet_moment_leaves_at_once_and_later_ones_wait_for_the_window() -> None:
    machine = begun(producer())
    first = machine.submit([stored(1)], 1.0, 1.0)
    assert batch_of(first).records == (stored(1),)
    assert acknowledge(machine, first, 1.001) == []
    assert machine.submit([stored(2)], 1.005, 1.005) == []
    assert machine.submit([stored(3)], 1.010, 1.010) == []
    assert machine.wake_at() == pytest.approx(1.020)
    assert machine.tick(1.019) == []
    batch = batch_of(machine.tick(1.020))
    assert batch.records == (stored(2, 3),)
    assert batch.age_ms == 15


def test_one_publish_is_in_flight_and_what_comes_meanwhile_follows_it() -> None:
    machine = begun(producer())
    first = machine.submit([stored(1)], 1.0, 1.0)
    assert machine.submit([evicted(1)], 1.5, 1.5) == []
    assert machine.tick(2.0) == []
    second = acknowledge(machine, first, 2.0)
    assert batch_of(second).records == (evicted(1),)
    assert batch_of(second).sequence == batch_of(first).sequence + 1


@pytest.mark.rule("SUB-114")
def test_a_failed_publish_is_sent_again_byte_for_byte_after_a_growing_wait() -> None:
    machine = begun(producer())
    publish = published(machine.submit([stored(1)], 1.0, 1.0))
    now, waits = 1.0, []
    for _ in range(8):
        machine.failed(publish.msg_id, now)
        wake_at = machine.wake_at()
        assert wake_at is not None
        assert machine.tick(wake_at - 0.001) == []
        assert machine.tick(wake_at) == [publish]
        waits.append(round(wake_at - now, 3))
        now = wake_at
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_an_outcome_of_an_earlier_publish_changes_nothing() -> None:
    machine = begun(producer())
    old = published(machine.submit([stored(1)], 1.0, 1.0))
    machine.begin_anew("engine_restart", 1.1)
    assert machine.acknowledged(old.msg_id, 7, 1.2) == []
    assert machine.failed(old.msg_id, 1.2) == []
    assert machine.refused(old.msg_id, 7, 1.2) == []
    assert not machine.live


@pytest.mark.rule("SUB-W30", "SUB-112")
def test_a_record_has_at_most_4096_keys_and_a_full_batch_does_not_wait() -> None:
    machine = begun(producer())
    acknowledge(machine, machine.submit([stored(1)], 1.0, 1.0), 1.0)
    assert machine.submit([stored(*range(4090))], 1.001, 1.001) == []
    records = batch_of(machine.submit([stored(*range(5000, 5010))], 1.002, 1.002)).records
    assert [entries_of(record) for record in records] == [MAX_ENTRIES, 4] == [4096, 4]


def test_neighbouring_removals_become_one_record_and_order_is_kept() -> None:
    machine = begun(producer())
    acknowledge(machine, machine.submit([stored(1)], 1.0, 1.0), 1.0)
    machine.submit([evicted(1), evicted(2), stored(1), stored(3, tier=2), evicted(3)], 1.001, 1.001)
    assert batch_of(machine.tick(1.02)).records == (
        evicted(1, 2),
        stored(1),
        stored(3, tier=2),
        evicted(3),
    )


def test_a_batch_fits_the_payload_limit() -> None:
    machine = begun(producer())
    machine.payload_limit = 3000
    first = machine.submit([stored(1)], 1.0, 1.0)
    machine.submit([stored(*range(100), tier=tier) for tier in (1, 2, 1, 2)], 1.001, 1.001)
    actions, sizes = acknowledge(machine, first, 1.1), []
    while publishes := [action for action in actions if isinstance(action, Publish)]:
        sizes.append(len(publishes[0].payload))
        actions = acknowledge(machine, actions, 1.2)
    assert len(sizes) == 2
    assert max(sizes) < 3000


@pytest.mark.rule("SUB-W42", "SUB-115")
def test_an_outbox_that_runs_over_is_answered_by_beginning_anew_with_everything_known() -> None:
    machine = begun(producer(outbox_max=1024))
    first = published(machine.submit([stored(0)], 1.0, 1.0))
    for number in range(1, 513):
        assert machine.submit([stored(number), evicted(number)], 1.0 + number, 1.0 + number) == []
    assert machine.waiting_records == 1024
    actions = machine.submit([stored(9999)], 600.0, 600.0)
    assert actions[0] == Begun(Incarnation("life-2"), "outbox_full")
    assert machine.waiting_records == 0
    begin = published(actions)
    machine.failed(begin.msg_id, 605.0)
    assert machine.tick(606.0) == [begin]
    assert machine.acknowledged(first.msg_id, 5, 606.5) == []
    assert machine.acknowledged(begin.msg_id, 6, 607.0) == [TellState()]
    told = machine.restate([Group(10.0, [stored(1, 2)]), Group(600.0, [stored(9999)])], 607.0)
    assert batch_of(told).age_ms == 597_000
    assert machine.counters["outbox_dropped_records"] == 1025
    live = machine.submit([evicted(1)], 607.5, 607.5)
    assert live == []
    actions = acknowledge(machine, told, 608.0)
    assert batch_of(actions).records == (stored(9999),)
    assert batch_of(acknowledge(machine, actions, 608.1)).records == (evicted(1),)


def test_a_full_state_may_be_larger_than_the_outbox() -> None:
    machine = producer(outbox_max=4)
    begin = published(machine.placed(SUBJECT, 0.0))
    machine.acknowledged(begin.msg_id, 1, 0.0)
    groups = [Group(float(age), [stored(age)]) for age in range(100)]
    actions = machine.restate(groups, 100.0)
    assert machine.waiting_records == 0
    seen = []
    while publishes := [action for action in actions if isinstance(action, Publish)]:
        seen.append(decode_batch(publishes[0].payload).batch)
        actions = acknowledge(machine, actions, 100.0)
    assert [batch.age_ms for batch in seen] == [1000 * (100 - age) for age in range(100)]
    assert machine.incarnation == "life-1"


def test_a_clear_discards_what_waits() -> None:
    machine = begun(producer())
    first = machine.submit([stored(1)], 1.0, 1.0)
    machine.submit([stored(2), evicted(1), Gap(3)], 1.1, 1.1)
    machine.submit([Cleared(), stored(4)], 1.2, 1.2)
    assert batch_of(acknowledge(machine, first, 1.3)).records == (Cleared(), stored(4))


@pytest.mark.rule("SUB-146")
def test_a_waiting_sample_is_replaced_by_a_newer_one_and_a_sent_one_is_resent() -> None:
    machine = begun(producer())
    first = machine.submit([stored(1)], 1.0, 1.0)
    machine.submit_stats(Stats(requests_running=1), 2.0, 2.0)
    machine.submit_stats(Stats(requests_running=2), 12.0, 12.0)
    second = acknowledge(machine, first, 12.5)
    assert batch_of(second).records == (Stats(requests_running=2),)
    assert batch_of(second).age_ms == 500
    machine.submit_stats(Stats(requests_running=3), 22.0, 22.0)
    machine.failed(published(second).msg_id, 22.0)
    assert machine.tick(23.0) == [published(second)]
    actions = acknowledge(machine, second, 23.1)
    assert actions[0] == StatsStored()
    assert batch_of(actions).records == (Stats(requests_running=3),)


@pytest.mark.rule("SUB-146")
@pytest.mark.parametrize("newer", [False, True])
def test_a_sample_in_flight_when_it_begins_anew_follows_unless_there_is_a_newer_one(newer: bool) -> None:
    machine = begun(producer())
    machine.certain = True
    machine.submit([stored(1)], 1.0, 1.0)
    machine.submit_stats(Stats(requests_running=1), 1.0, 1.0)
    begun_anew = machine.begin_anew("requested", 2.0)
    assert machine.beginning
    if newer:
        assert machine.submit_stats(Stats(requests_running=2), 2.5, 2.5) == []
    alive = acknowledge(machine, begun_anew, 3.0)
    assert batch_of(alive).records == (Alive(),)
    assert machine.live
    sample = acknowledge(machine, alive, 3.5)
    assert batch_of(sample).records == (Stats(requests_running=2 if newer else 1),)
    assert batch_of(sample).age_ms == (1000 if newer else 2500)
    assert acknowledge(machine, sample, 4.0)[0] == StatsStored()
    assert machine.idle


def test_a_sample_rides_with_records_that_are_about_to_leave() -> None:
    machine = begun(producer())
    first = machine.submit([stored(1)], 1.0, 1.0)
    machine.submit([stored(2)], 1.001, 1.001)
    machine.submit_stats(Stats(pressure=0.5), 1.002, 1.002)
    assert batch_of(acknowledge(machine, first, 1.1)).records == (stored(2), Stats(pressure=0.5))


def test_alive_is_said_each_interval_while_what_was_reported_is_certain() -> None:
    machine = begun(producer(alive_interval_s=20.0))
    assert machine.wake_at() is None
    assert machine.tick(100.0) == []
    machine.certain = True
    first = machine.tick(100.0)
    assert batch_of(first).records == (Alive(),)
    acknowledge(machine, first, 100.1)
    assert machine.wake_at() == pytest.approx(120.0)
    assert machine.tick(119.9) == []
    second = machine.submit([stored(1)], 120.0, 120.0)
    assert batch_of(second).records == (stored(1), Alive())


def test_alive_comes_before_old_blocks_are_told_again() -> None:
    machine = producer()
    machine.certain = True
    begin = published(machine.placed(SUBJECT, 0.0))
    actions = machine.acknowledged(begin.msg_id, 1, 5000.0)
    assert batch_of(actions).records == (Alive(),)
    assert actions[-1] == TellState()
    assert machine.restate([Group(0.0, [stored(1)])], 5000.0) == []
    assert batch_of(acknowledge(machine, actions, 5000.0)).records == (stored(1),)


def test_what_waited_long_is_not_called_alive() -> None:
    machine = begun(producer(alive_interval_s=20.0))
    machine.certain = True
    first = machine.submit([stored(1)], 1.0, 1.0)
    machine.submit([stored(2)], 1.1, 1.1)
    second = acknowledge(machine, first, 60.0)
    assert batch_of(second).records == (stored(2),)
    assert batch_of(acknowledge(machine, second, 60.1)).records == (Alive(),)


def test_another_place_in_the_log_is_begun_anew() -> None:
    machine = begun(producer())
    assert machine.placed(SUBJECT, 1.0) == []
    actions = machine.placed("ic.ev.2.3.t.m.r.e", 1.0)
    assert actions[0] == Begun(Incarnation("life-2"), "layout")
    assert published(actions).subject == "ic.ev.2.3.t.m.r.e"
    assert published(actions).expect_last_subject_sequence == 0


@pytest.mark.parametrize(
    ("request_", "begins"),
    [
        (ResyncRequest("resync", Incarnation("life-1")), True),
        (ResyncRequest("resync", Incarnation("")), True),
        (ResyncRequest("resync", Incarnation("another")), False),
    ],
)
def test_a_resync_is_answered_unless_it_is_about_another_incarnation(
    request_: ResyncRequest, begins: bool
) -> None:
    machine = begun(producer())
    actions = machine.requested(request_, 10.0)
    assert (Begun(Incarnation("life-2"), "requested") in actions) == begins
    assert machine.live != begins


def test_requests_that_come_while_it_begins_are_ignored() -> None:
    machine = producer()
    begin = published(machine.placed(SUBJECT, 0.0))
    assert machine.requested(ResyncRequest("resync"), 0.0) == []
    machine.acknowledged(begin.msg_id, 1, 0.0)
    machine.restate([Group(0.0, [stored(1)]), Group(1.0, [stored(2)])], 2.0)
    assert machine.requested(ResyncRequest("resync"), 5.0) == []


def test_a_producer_stops_when_another_has_begun_after_it() -> None:
    machine = begun(producer())
    assert machine.requested(ResyncRequest("fenced", Incarnation("other"), 99), 1.0) == []
    assert machine.requested(ResyncRequest("fenced", Incarnation("life-1"), 99), 1.0) == [Fenced(99)]
    assert machine.fenced
    assert machine.submit([stored(1)], 2.0, 2.0) == []
    assert machine.submit_stats(Stats(), 2.0, 2.0) == []
    assert machine.placed("elsewhere", 2.0) == []
    assert machine.begin_anew("engine_restart", 2.0) == []
    assert machine.wake_at() is None


def test_a_producer_whose_begin_the_log_has_lost_begins_anew() -> None:
    machine = begun(producer())
    earlier = ResyncRequest("fenced", Incarnation("life-1"), 1)
    assert Begun(Incarnation("life-2"), "requested") in machine.requested(earlier, 1.0)
    assert not machine.fenced


# ---------------------------------------------------------------------- against any order of events


class World:
    """A log that may lose publishes and acknowledgements, and the memory of the sidecar in front of it."""

    def __init__(self) -> None:
        self.machine = producer(outbox_max=6)
        self.log: list[Batch] = []
        self.ids: dict[str, int] = {}
        self.memory: set[int] = set()
        self.now = 0.0
        self.pending: Publish | None = None

    def do(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Publish():
                    self.pending = action
                case TellState():
                    groups = [Group(0.0, [stored(key)]) for key in sorted(self.memory)]
                    self.do(self.machine.restate(groups, self.now))
                case _:
                    pass

    def store(self, publish: Publish) -> int | None:
        """Stream sequence, or None when the expectation fails; as the server does it, expectation first."""
        last = len(self.log)
        expected = publish.expect_last_subject_sequence
        if expected is not None and expected != last:
            return None
        if publish.msg_id not in self.ids:
            self.log.append(decode_batch(publish.payload).batch)
            self.ids[publish.msg_id] = len(self.log)
        return self.ids[publish.msg_id]

    def deliver(self, *, arrives: bool, answered: bool) -> None:
        publish, self.pending = self.pending, None
        if publish is None:
            return
        sequence = self.store(publish) if arrives else 0
        if not arrives or not answered:
            self.do(self.machine.failed(publish.msg_id, self.now))
        elif sequence is None:
            self.do(self.machine.refused(publish.msg_id, len(self.log), self.now))
        else:
            self.do(self.machine.acknowledged(publish.msg_id, sequence, self.now))

    def settle(self) -> None:
        for _ in range(200):
            self.deliver(arrives=True, answered=True)
            if self.pending is None:
                wake_at = self.machine.wake_at()
                if wake_at is None:
                    return
                self.now = max(self.now, wake_at)
                self.do(self.machine.tick(self.now))
        raise AssertionError("the producer does not come to rest")

    def folded(self) -> set[int]:
        """What a fold of the log holds; a jump in the sequence is an error."""
        holds: set[int] = set()
        incarnation, sequence = "", 0
        for batch in self.log:
            if any(isinstance(record, Begin) for record in batch.records):
                if batch.incarnation != incarnation:
                    incarnation, sequence = batch.incarnation, batch.sequence
                    holds.clear()
                continue
            if batch.incarnation != incarnation or batch.sequence <= sequence:
                continue
            assert batch.sequence == sequence + 1
            sequence = batch.sequence
            for record in batch.records:
                match record:
                    case Stored():
                        holds |= _keys(record)
                    case Evicted():
                        holds -= _keys(record)
                    case Cleared():
                        holds.clear()
                    case _:
                        pass
        return holds


def _keys(record: Stored | Evicted) -> set[int]:
    return {int.from_bytes(record.hashes[at : at + 8], "big") for at in range(0, len(record.hashes), 8)}


def _store(world: World, key: int) -> None:
    world.memory.add(key)
    world.do(world.machine.submit([stored(key)], world.now, world.now))


def _evict(world: World, key: int) -> None:
    world.memory.discard(key)
    world.do(world.machine.submit([evicted(key)], world.now, world.now))


def _clear(world: World, _key: int) -> None:
    world.memory.clear()
    world.do(world.machine.submit([Cleared()], world.now, world.now))


def _wait(world: World, key: int) -> None:
    world.now += 0.01 * key * key
    world.do(world.machine.tick(world.now))


def _restart(world: World, _key: int) -> None:
    world.memory.clear()
    world.do(world.machine.begin_anew("engine_restart", world.now))


def _resync(world: World, _key: int) -> None:
    world.do(world.machine.requested(ResyncRequest("resync", world.machine.incarnation), world.now))


def _foreign(world: World, _key: int) -> None:
    """A dead process's message arrives late."""
    world.log.append(Batch(Incarnation("dead"), 7, 0, (stored(99),)))


STEPS: list[Callable[[World, int], None]] = [
    _store,
    _store,
    _store,
    _evict,
    _clear,
    _wait,
    _restart,
    _resync,
    _foreign,
    lambda world, _: world.deliver(arrives=True, answered=True),
    lambda world, _: world.deliver(arrives=True, answered=True),
    lambda world, _: world.deliver(arrives=True, answered=False),
    lambda world, _: world.deliver(arrives=False, answered=False),
]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 9)), max_size=60))
def test_the_log_comes_to_hold_what_the_sidecar_knows(
    steps: list[tuple[Callable[[World, int], None], int]],
) -> None:
    world = World()
    world.do(world.machine.placed(SUBJECT, 0.0))
    for step, key in steps:
        step(world, key)
    world.settle()
    assert world.machine.live
    assert world.folded() == world.memory
