"""A router's views of a new generation take the place of the old ones when they are as good, never before."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from inferencecache.core.index.view import View
from inferencecache.core.protocol.generations import (
    REPLICAS_WAIT_S,
    Action,
    Follow,
    Generations,
    Leave,
    Serve,
    Standing,
    standing_of,
)
from inferencecache.core.protocol.layouts import MOST_OLDER, prune, succeed
from inferencecache.core.protocol.liveness import TELLING_WAIT_S
from inferencecache.schemas.deltas import ReplicaName, ReplicaRow
from inferencecache.schemas.ids import Incarnation, ModelId, OwnerId, ReplicaId, TenantId
from inferencecache.schemas.layout import CurrentLayout, Layout
from tests.unit.protocol.harness import Indexer, Partition, Router

ONE = Layout(1, 2)
TWO = Layout(2, 4)
FIRST = CurrentLayout(1, 2)
SECOND = CurrentLayout(2, 4, older=(ONE,))


def replica(name: str) -> ReplicaName:
    return ReplicaName(TenantId("t"), ModelId("m"), ReplicaId(name))


class World:
    """A router, and how far each generation's views are."""

    def __init__(self) -> None:
        self.machine = Generations()
        self.now = 0.0
        self.loaded: set[Layout] = set()
        self.owned: set[Layout] = set()
        self.alive: dict[Layout, set[str]] = {}
        self.held: dict[Layout, dict[str, int]] = {}
        self.served: list[Serve] = []
        self.followed: list[Layout] = []

    def told(self, current: CurrentLayout, *, is_served: bool = False) -> None:
        self._carry_out(self.machine.told(current, is_served=is_served))

    def poll(self, after_s: float = 0.1) -> None:
        self.now += after_s
        self._carry_out(self.machine.poll(self.now, self.standing))

    def standing(self, layout: Layout) -> Standing:
        held = {replica(name): keys for name, keys in self.held.get(layout, {}).items()}
        alive = frozenset(replica(name) for name in self.alive.get(layout, ()))
        return Standing(layout in self.loaded, layout in self.owned, alive, frozenset(held), held)

    def can_serve(self, layout: Layout) -> None:
        self.loaded.add(layout)
        self.owned.add(layout)

    def begin(self, layout: Layout, name: str, keys: int = 10) -> None:
        self.alive.setdefault(layout, set()).add(name)
        self.held.setdefault(layout, {})[name] = keys

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Follow(layout):
                    assert layout not in self.followed
                    self.followed.append(layout)
                case Serve(layout):
                    assert layout in self.followed
                    self.served.append(action)
                case Leave(layout):
                    assert layout != self.served[-1].layout
                    self.followed.remove(layout)
        wanted = [self.machine.serving, self.machine.coming]
        assert set(self.followed) == {layout for layout in wanted if layout is not None}

    @property
    def serving(self) -> Layout:
        return self.served[-1].layout


def moving() -> World:
    """Generation 1 is served with replicas a and b; generation 2 has just been put in force."""
    world = World()
    world.told(FIRST)
    world.can_serve(ONE)
    world.begin(ONE, "a")
    world.begin(ONE, "b")
    world.told(SECOND)
    world.poll()
    return world


def test_the_only_generation_is_served_at_once() -> None:
    world = World()
    world.told(FIRST)
    world.poll()
    assert world.served == [Serve(ONE)]
    assert world.followed == [ONE]


def test_the_old_generation_is_served_until_every_replica_has_begun_and_told_in_the_new_one() -> None:
    world = moving()
    assert world.followed == [ONE, TWO]
    world.can_serve(TWO)
    world.begin(TWO, "a")
    world.poll()
    assert world.serving == ONE
    world.begin(TWO, "b", keys=2)
    world.poll()
    assert world.serving == ONE
    world.begin(TWO, "b", keys=9)
    world.poll()
    assert world.served == [Serve(ONE), Serve(TWO)]
    assert world.followed == [TWO]


def test_replicas_that_do_not_come_are_waited_for_half_a_minute_and_named() -> None:
    world = moving()
    world.can_serve(TWO)
    world.begin(TWO, "a")
    world.poll()
    world.poll(REPLICAS_WAIT_S - 0.1)
    assert world.serving == ONE
    world.poll(0.1)
    assert world.served[-1] == Serve(TWO, frozenset({replica("b")}))


def test_replicas_that_hold_less_than_before_are_waited_for_only_shortly() -> None:
    world = moving()
    world.can_serve(TWO)
    world.begin(TWO, "a", keys=1)
    world.begin(TWO, "b", keys=10)
    world.poll()
    world.poll(TELLING_WAIT_S - 0.1)
    assert world.serving == ONE
    world.poll(0.1)
    assert world.served[-1] == Serve(TWO)


def test_without_an_owner_or_before_it_is_loaded_nothing_new_is_served_however_long_it_takes() -> None:
    world = moving()
    world.begin(TWO, "a")
    world.begin(TWO, "b")
    world.loaded.add(TWO)
    world.poll(10 * REPLICAS_WAIT_S)
    assert world.serving == ONE
    world.loaded.discard(TWO)
    world.owned.add(TWO)
    world.poll(10 * REPLICAS_WAIT_S)
    assert world.serving == ONE
    world.loaded.add(TWO)
    world.poll()
    assert world.serving == TWO


def test_a_replica_that_has_fallen_silent_where_it_was_is_still_awaited_where_it_went() -> None:
    world = moving()
    world.alive[ONE].clear()
    world.poll(100.0)
    world.can_serve(TWO)
    world.poll()
    assert world.serving == ONE


def test_a_replica_that_is_gone_is_not_awaited() -> None:
    world = moving()
    world.can_serve(TWO)
    world.begin(TWO, "a")
    world.alive[ONE].discard("b")
    del world.held[ONE]["b"]
    world.poll()
    assert world.served[-1] == Serve(TWO)


def test_of_two_changes_in_a_row_only_the_last_is_built() -> None:
    world = moving()
    world.can_serve(TWO)
    world.begin(TWO, "a")
    world.poll()
    three = Layout(3, 8)
    world.told(CurrentLayout(3, 8, older=(ONE, TWO)))
    assert world.followed == [ONE, three]
    world.can_serve(three)
    world.begin(three, "a")
    world.poll(REPLICAS_WAIT_S)
    assert world.serving == ONE, "the wait begins anew"
    world.begin(three, "b")
    world.poll()
    assert world.serving == three


def test_a_router_that_starts_in_the_middle_of_a_change_begins_with_the_generation_before() -> None:
    world = World()
    world.told(SECOND)
    assert world.serving == ONE
    world.can_serve(TWO)
    world.poll()
    assert world.serving == ONE, "what is not loaded cannot say who is awaited"
    world.can_serve(ONE)
    world.begin(ONE, "a")
    world.poll()
    assert world.serving == ONE
    world.begin(TWO, "a")
    world.poll()
    assert world.serving == TWO


def test_a_router_that_starts_when_others_serve_the_new_generation_serves_it_too() -> None:
    world = World()
    world.told(SECOND, is_served=True)
    assert (world.served, world.followed) == ([Serve(TWO)], [TWO])


def test_an_old_generation_that_cannot_be_loaded_any_more_holds_up_nobody() -> None:
    world = World()
    world.told(SECOND)
    world.can_serve(TWO)
    world.poll()
    assert world.serving == ONE
    world.told(prune(SECOND))
    world.poll()
    assert world.serving == TWO


def test_a_change_that_is_taken_back_leaves_what_is_served() -> None:
    world = moving()
    world.told(FIRST)
    assert (world.serving, world.followed, world.machine.coming) == (ONE, [ONE], None)


def test_a_standing_is_read_from_views() -> None:
    partition = Partition()
    indexer = Indexer(partition, "owner")
    partition.begin("r")
    partition.store("r", 1, count=4)
    partition.report("grpc")
    indexer.claim()
    router = Router(partition)
    router.run()
    assert standing_of([router.view], is_loaded=True) == Standing(
        is_loaded=True,
        is_owned=True,
        alive=frozenset({replica("r")}),
        begun=frozenset({replica("r")}),
        held={replica("r"): 4},
    )
    assert not standing_of([router.view, View(1)], is_loaded=True).is_owned
    of_nobody = standing_of([router.view], is_loaded=True, concerns=lambda _: False)
    assert not of_nobody.alive | of_nobody.begun
    assert not of_nobody.held


def test_a_replica_is_alive_that_has_begun_and_was_heard_of_within_three_alive_intervals() -> None:
    view = View(1)
    view.owner, view.time_us = OwnerId("o"), 100_000_000
    for name, incarnation, heard_us in (
        ("fresh", "i", 40_000_001),
        ("silent", "i", 40_000_000),
        ("grpc", "", 99_000_000),
    ):
        view.put_row(ReplicaRow(replica(name), Incarnation(incarnation), heard_us=heard_us))
    standing = standing_of([view], is_loaded=True)
    assert standing.alive == {replica("fresh")}
    assert standing.begun == {replica("fresh"), replica("silent")}


@settings(max_examples=400, deadline=None)
@given(random=st.randoms(use_true_random=False), steps=st.integers(1, 80))
def test_whatever_happens_in_whatever_order_nothing_worse_is_served(random: Random, steps: int) -> None:
    world = World()
    current = FIRST
    was_able: dict[Layout, float] = {}
    world.told(current, is_served=random.random() < 0.2)
    for _ in range(steps):
        layout = random.choice(current.generations)
        match random.randrange(8):
            case 0 if len(current.older) < MOST_OLDER:
                current = succeed(current, partitions=current.partitions + 1)
                world.told(current)
            case 1:
                current = prune(current)
                world.told(current)
            case 2:
                world.loaded.add(layout)
            case 3:
                world.owned.add(layout)
            case 4 | 5:
                world.begin(layout, random.choice("abc"), random.randrange(20))
            case 6:
                world.alive.get(layout, set()).discard(random.choice("abc"))
            case _:
                check_poll(world, was_able, random.choice((0.1, 1.0, 10.0)))
    for generation in current.generations:
        world.can_serve(generation)
    for _ in range(4):
        check_poll(world, was_able, REPLICAS_WAIT_S)
    assert world.serving == current.in_force
    assert world.followed == [current.in_force]


def check_poll(world: World, was_able: dict[Layout, float], after_s: float) -> None:
    """A poll, judged by what the machine was told and by nothing that it keeps."""
    before, coming, count = world.serving, world.machine.coming, len(world.served)
    world.poll(after_s)
    if coming is None:
        return
    new = world.standing(coming)
    if new.is_loaded and new.is_owned:
        was_able.setdefault(coming, world.now)
    if len(world.served) == count:
        return
    served = world.served[-1]
    assert served.layout == coming
    assert new.is_loaded
    assert new.is_owned
    if world.now - was_able[coming] < REPLICAS_WAIT_S:
        assert not served.late
        assert world.standing(before).alive <= new.begun
