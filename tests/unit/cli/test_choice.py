"""A client follows hints as the contract expects of it."""

from __future__ import annotations

import pytest

from inferencecache.cli.load.choice import Pool
from inferencecache.cli.load.hints import UNREACHABLE, Hint
from inferencecache.cli.stack.plan import EngineAddress

ENGINES = [EngineAddress(name, f"http://{name}", replica=name) for name in ("a", "b", "c")]


@pytest.mark.rule("WIRE-230")
@pytest.mark.parametrize("reason", ["PREFIX_MATCH", "AFFINITY_HINT"])
def test_the_first_replica_of_a_hint_is_followed(reason: str) -> None:
    assert Pool(ENGINES).hinted(Hint(reason, ("b", "a"), 64)) == ENGINES[1]


@pytest.mark.rule("WIRE-009", "WIRE-230", "WIRE-231")
@pytest.mark.parametrize(
    "reason", ["TENANT_HOT", "NO_HINT", "UNKNOWN_TENANT", "TIMEOUT", "A_LATER_CODE", UNREACHABLE]
)
def test_any_other_answer_means_route_as_usual(reason: str) -> None:
    assert Pool(ENGINES).hinted(Hint(reason, ("b",))) is None


def test_a_hint_to_an_engine_that_is_not_there_is_not_followed() -> None:
    assert Pool(ENGINES).hinted(Hint("PREFIX_MATCH", ("gone",))) is None


def test_without_a_hint_the_least_busy_engine_is_chosen() -> None:
    pool = Pool(ENGINES)
    with pool.in_flight(ENGINES[0]), pool.in_flight(ENGINES[1]):
        assert pool.least_outstanding() == ENGINES[2]
        assert pool.least_outstanding(without={"c"}) == ENGINES[0]
    assert set(pool.outstanding.values()) == {0}


def test_round_robin_takes_every_engine_in_turn() -> None:
    pool = Pool(ENGINES)
    assert [pool.round_robin().name for _ in range(5)] == ["a", "b", "c", "a", "b"]
