"""How long an endpoint that refused is passed over."""

from __future__ import annotations

import pytest

from inferencecache.core.gateway import EndpointId, Refusals
from inferencecache.schemas.ids import ReplicaId

ENDPOINT = EndpointId("10.0.0.1:8000", ReplicaId("r"))


def until(refusals: Refusals, now_s: float) -> float:
    return refusals.passed_over_until(ENDPOINT, now_s)


@pytest.mark.parametrize("status", [429, 503])
def test_each_refusal_after_the_time_doubles_it_up_to_a_limit(status: int) -> None:
    refusals, now_s, spans = Refusals(1.0, 5.0), 100.0, []
    for _ in range(5):
        refusals.answered(ENDPOINT, status, now_s)
        spans.append(until(refusals, now_s) - now_s)
        now_s = until(refusals, now_s)
    assert spans == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_refusals_within_the_time_are_one() -> None:
    refusals = Refusals(1.0)
    for each in range(10):
        refusals.answered(ENDPOINT, 429, each / 100)
    assert until(refusals, 0.5) == 1.0


def test_an_answer_ends_the_row() -> None:
    refusals = Refusals(1.0)
    refusals.answered(ENDPOINT, 503, 0.0)
    refusals.answered(ENDPOINT, 200, 0.5)
    assert until(refusals, 0.5) == 0.5
    refusals.answered(ENDPOINT, 503, 0.6)
    assert until(refusals, 0.6) == pytest.approx(1.6)


@pytest.mark.parametrize("status", [200, 400, 404, 500, 502])
def test_other_answers_are_no_refusals(status: int) -> None:
    refusals = Refusals()
    refusals.answered(ENDPOINT, status, 0.0)
    assert until(refusals, 0.0) == 0.0
    assert len(refusals) == 0


def test_who_took_over_an_address_did_not_refuse() -> None:
    refusals = Refusals()
    refusals.refused(ENDPOINT, 0.0)
    successor = EndpointId(ENDPOINT.address, ReplicaId("r"), life="another")
    assert refusals.passed_over_until(successor, 0.0) == 0.0
    refusals.forget([ENDPOINT])
    assert len(refusals) == 0
