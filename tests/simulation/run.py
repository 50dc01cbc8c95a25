"""One plan from its beginning to its verdict."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Final, NamedTuple
from unittest.mock import patch

from tests.simulation.carry_out import START_S, Stage
from tests.simulation.judge import WATCH_S, Judge, ViolationError
from tests.simulation.plan import Plan
from tests.simulation.world import World

SETTLE_S: Final = 15.0
"""After the last fault everything must have settled within so long."""
REBUILD_S: Final = 75.0
"""As `SETTLE_S` where an index is built anew, in which routers wait 30 s for replicas that may be gone."""
SHARE_S: Final = 30.0
"""As `SETTLE_S` where partitions share a cap or a quota: room moves in rounds of some seconds each."""
STEADY_S: Final = 0.25
SPEAK_S: Final = 1.5
"""By then sockets to engines are connected again."""
REST_S: Final = 0.5
"""Between the last fault and the first look."""


class Verdict(NamedTuple):
    """`violation` says what did not hold, empty when all did; `settled_s` is how long settling took."""

    violation: str
    settled_s: float
    turns: int

    @property
    def kind(self) -> str:
        """What sort of violation, without its numbers: what a smaller plan has to show too."""
        return "".join(each for each in self.violation[:60] if not each.isdigit())


def simulate(
    plan: Plan,
    *,
    log_line: Callable[[float, str], None] | None = None,
    mutation: AbstractContextManager[object] | None = None,
) -> Verdict:
    """Carry a plan out and judge. `mutation` is entered meanwhile: what it changes must be found out."""
    world = World(
        plan.seed,
        partitions=plan.partitions,
        lanes=plan.lanes,
        outbox_max=plan.outbox_max,
        max_entries=plan.max_entries,
    )
    if log_line is not None:
        loop = world.loop
        world.log_line = lambda text: log_line(loop.time() - START_S, text)
    judge = Judge(world, plan)
    violation, settled_s = "", 0.0
    with world.entered(), mutation or nullcontext():
        with patch("inferencecache.router.replica.Follower", judge.watched()):
            try:
                settled_s = _carry_out(plan, world, judge)
            except Exception as error:  # noqa: BLE001 - whatever ends a simulation is a finding
                violation = str(error) if isinstance(error, AssertionError) else repr(error)
                if log_line is not None:
                    log_line(world.loop.time() - START_S, "".join(traceback.format_exception(error)))
        with _quiet():
            turns = world.loop.turns
            world.loop.close()
    return Verdict(violation, settled_s, turns)


def _carry_out(plan: Plan, world: World, judge: Judge) -> float:
    stage = Stage(plan, world, judge)
    stage.begin()
    last = max((step.at for step in plan.steps), default=0.0)
    world.loop.run_until(START_S + last + REST_S)
    stage.heal()
    began = world.loop.time()
    world.loop.run_until(began + SPEAK_S)
    stage.speak()
    _settle(world, judge, plan)
    settled_s = world.loop.time() - began
    before = judge.times()
    world.loop.run_until(world.loop.time() + WATCH_S)
    judge.check_rate(before, judge.times(), WATCH_S)
    _settle(world, judge, plan)
    judge.look_at_folds()
    for lost in judge.reports_lost():
        raise ViolationError(lost)
    judge.check_against_log()
    return settled_s


def _settle(world: World, judge: Judge, plan: Plan) -> None:
    within_s = REBUILD_S if judge.is_rebuilt else SHARE_S if plan.is_limited else SETTLE_S
    end = world.loop.time() + within_s
    while True:
        world.loop.run_until(world.loop.time() + STEADY_S)
        wrong = next(judge.unsettled(), None)
        if wrong is None:
            return
        if world.loop.time() >= end:
            raise ViolationError("; ".join(["it does not settle", *judge.unsettled()]))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What is ended in the middle of clearing up complains to nobody."""
    before, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        yield
    finally:
        sys.unraisablehook = before
