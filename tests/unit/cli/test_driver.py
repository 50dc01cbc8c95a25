"""The driver sends both groups the same, follows hints, and survives what may fail around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from inferencecache.cli.load.choice import Pool
from inferencecache.cli.load.conversations import Workload
from inferencecache.cli.load.driver import Driver
from inferencecache.cli.load.engines import Completion, EngineFailedError, Engines
from inferencecache.cli.load.figures import Figures
from inferencecache.cli.load.hints import Hint, Router
from inferencecache.cli.stack.plan import EngineAddress
from inferencecache.client import UNREACHABLE

QUICK = Workload(users=4, pause_s=(0, 0), start_s=0)
HINTED = [EngineAddress(name, "", replica=name) for name in ("a", "b")]
CONTROL = [EngineAddress(name, "") for name in ("c", "d")]


class FakeEngines:
    """Answers at once; engines in `down` fail."""

    def __init__(self, down: Sequence[str] = ()) -> None:
        self.asked: list[tuple[str, tuple[int, ...]]] = []
        self._down = set(down)

    async def complete(self, engine: EngineAddress, prompt: Sequence[int], max_tokens: int) -> Completion:
        if engine.name in self._down:
            raise EngineFailedError(engine.name)
        self.asked.append((engine.name, tuple(prompt)))
        return Completion((1,) * max_tokens, len(prompt), 0, 0.001, 0.0)


class FakeRouter:
    """Always gives the same hint."""

    def __init__(self, hint: Hint) -> None:
        self.hint = hint
        self.asked = 0

    async def lookup(self, tokens: Sequence[int]) -> Hint:
        self.asked += 1
        return self.hint


async def drive(engines: FakeEngines, routers: Sequence[FakeRouter], turns: int = 40) -> Figures:
    hinted, control = Pool(HINTED), Pool(CONTROL)
    figures = Figures(hinted.outstanding, control.outstanding, [])
    driver = Driver(
        QUICK,
        cast("Engines", engines),
        hinted,
        control,
        cast("list[Router]", routers),
        figures,
        total_turns=turns,
    )
    await driver.run()
    return figures


async def test_both_groups_get_the_same_prompts() -> None:
    engines = FakeEngines()
    figures = await drive(engines, [FakeRouter(Hint("NO_HINT"))])
    by_group = [sorted(prompt for name, prompt in engines.asked if name in names) for names in ("ab", "cd")]
    assert by_group[0] == by_group[1]
    assert figures.hinted.requests == figures.control.requests == 40
    assert figures.control.requests_by_engine == {"c": 20, "d": 20}


async def test_hints_are_followed_and_counted() -> None:
    figures = await drive(FakeEngines(), [FakeRouter(Hint("PREFIX_MATCH", ("b",), 64))])
    assert figures.hinted.requests_by_engine == {"a": 0, "b": 40}
    assert figures.reasons == {"PREFIX_MATCH": 40}


async def test_routers_take_turns() -> None:
    routers = [FakeRouter(Hint("NO_HINT")) for _ in range(2)]
    await drive(FakeEngines(), routers)
    assert [router.asked for router in routers] == [20, 20]


async def test_a_router_that_does_not_answer_costs_no_turn() -> None:
    routers = [FakeRouter(Hint(UNREACHABLE)), FakeRouter(Hint("PREFIX_MATCH", ("a",), 64))]
    figures = await drive(FakeEngines(), routers)
    assert figures.reasons == {"PREFIX_MATCH": 40}
    assert routers[1].asked == 40


async def test_without_any_router_turns_are_routed_as_usual() -> None:
    figures = await drive(FakeEngines(), [FakeRouter(Hint(UNREACHABLE))])
    assert figures.reasons == {UNREACHABLE: 40}
    assert figures.hinted.requests == 40


async def test_a_turn_goes_elsewhere_when_its_engine_fails() -> None:
    figures = await drive(FakeEngines(down=["b"]), [FakeRouter(Hint("PREFIX_MATCH", ("b",), 64))], turns=4)
    assert figures.hinted.requests_by_engine == {"a": 4, "b": 0}
    assert figures.hinted.failures == 4
