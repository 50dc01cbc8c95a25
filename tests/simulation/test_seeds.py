"""Whatever happens, what must hold does: random plans of work and faults, each from a seed."""

from __future__ import annotations

import os

import pytest

from tests.simulation.campaign import shorten, try_seeds

_WORKERS = os.cpu_count() or 1


def _assert_all_well(seeds: range) -> None:
    failing = [tried for tried in try_seeds(seeds, workers=_WORKERS) if tried.verdict.violation]
    if failing:
        plan, verdict = shorten(failing[0].seed)
        found = "\n".join(f"seed {seed}: {verdict.violation}" for seed, verdict in failing)
        pytest.fail(f"{found}\n\n{plan}\n=> {verdict.violation}", pytrace=False)


@pytest.mark.timeout(600)
def test_a_seed_repeats_itself_exactly() -> None:
    seeds = range(3)
    assert set(try_seeds(seeds, workers=1)) == set(try_seeds(seeds, workers=1))


@pytest.mark.timeout(600)
def test_a_hundred_random_plans_end_well() -> None:
    _assert_all_well(range(100))


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_thousand_random_plans_end_well() -> None:
    _assert_all_well(range(100, 1100))
