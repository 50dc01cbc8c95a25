"""A client follows hints as the contract expects of it."""

from __future__ import annotations

import pytest

from inferencecache.cli.load.choice import IDLE_S, Pool
from inferencecache.cli.load.hints import Hint
from inferencecache.cli.stack.plan import EngineAddress
from inferencecache.client import UNREACHABLE

ENGINES = [EngineAddress(name, f"http://{name}", replica=name) for name in ("a", "b", "c")]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def busy_pool() -> tuple[Pool, Clock]:
    """Every engine was sent something just now."""
    clock = Clock()
    pool = Pool(ENGINES, clock)
    for engine in ENGINES:
        with pool.in_flight(engine):
            pass
    return pool, clock


@pytest.mark.rule("WIRE-230")
@pytest.mark.parametrize("reason", ["PREFIX_MATCH", "AFFINITY_HINT"])
def test_the_first_replica_of_a_hint_is_followed(reason: str) -> None:
    pool, _ = busy_pool()
    assert pool.choose(Hint(reason, ("b", "a"), 64)) == ENGINES[1]


@pytest.mark.rule("WIRE-009", "WIRE-230", "WIRE-231")
@pytest.mark.parametrize(
    "reason", ["TENANT_HOT", "NO_HINT", "UNKNOWN_TENANT", "TIMEOUT", "A_LATER_CODE", UNREACHABLE]
)
def test_any_other_answer_means_the_least_busy_engine(reason: str) -> None:
    pool, _ = busy_pool()
    with pool.in_flight(ENGINES[0]), pool.in_flight(ENGINES[1]):
        assert pool.choose(Hint(reason, ("b",))) == ENGINES[2]


def test_a_hint_to_an_engine_that_is_not_there_is_not_followed() -> None:
    pool, _ = busy_pool()
    assert pool.choose(Hint("PREFIX_MATCH", ("gone",))) == ENGINES[0]


def test_an_idle_engine_gets_what_matches_nowhere_and_nothing_else() -> None:
    pool, clock = busy_pool()
    clock.now += IDLE_S
    for engine in ENGINES[:2]:
        with pool.in_flight(engine):
            pass
    assert pool.choose(Hint("AFFINITY_HINT", ("a",))) == ENGINES[2]
    assert pool.choose(Hint("NO_HINT")) == ENGINES[2]
    assert pool.choose(Hint("PREFIX_MATCH", ("a",), 64)) == ENGINES[0]
    with pool.in_flight(ENGINES[2]):
        assert pool.choose(Hint("AFFINITY_HINT", ("a",))) == ENGINES[0]


def test_engines_that_failed_are_chosen_last() -> None:
    pool, _ = busy_pool()
    assert pool.least_outstanding(without={"a"}) == ENGINES[1]
    assert pool.least_outstanding(without={"a", "b", "c"}) == ENGINES[0]


def test_round_robin_takes_every_engine_in_turn() -> None:
    pool = Pool(ENGINES)
    assert [pool.round_robin().name for _ in range(5)] == ["a", "b", "c", "a", "b"]
