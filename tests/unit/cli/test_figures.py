"""The verdict of a run follows from what was counted."""

from __future__ import annotations

import json

import pytest

from inferencecache.cli.load.engines import Completion
from inferencecache.cli.load.figures import Figures, GroupFigures, quantile


def completion(prompt: int, cached: int) -> Completion:
    return Completion((), prompt, cached, first_token_s=0.02, stored_at=0.0)


def figures(hinted_cached: int, control_cached: int) -> Figures:
    result = Figures(["a"], ["b"], ["router-1"])
    result.hinted.count("a", completion(1000, hinted_cached), 0.0)
    result.control.count("b", completion(1000, control_cached), 0.0)
    return result


@pytest.mark.parametrize(("hinted", "passed"), [(400, True), (399, False), (300, False)])
def test_a_run_passes_at_ten_points_above_the_control_group(hinted: int, passed: bool) -> None:
    result = figures(hinted, 300)
    assert result.passed is passed
    assert result.verdict().startswith("PASSED" if passed else "FAILED")


def test_a_run_without_requests_does_not_pass() -> None:
    assert not Figures(["a"], ["b"], []).passed


def test_the_final_figures_are_one_json_object() -> None:
    document = json.loads(json.dumps(figures(800, 300).document()))
    assert document["passed"] is True
    assert document["advantage_points"] == 50.0
    assert document["hinted"]["cached_share"] == 0.8
    assert document["hinted"]["first_token_ms"]["p50"] == 20.0
    assert document["view_age_s"] == {"router-1": None}


def test_the_recent_share_forgets_what_is_older_than_ten_seconds() -> None:
    group = GroupFigures(["a"])
    group.count("a", completion(100, 0), 0.0)
    group.count("a", completion(100, 100), 11.0)
    assert group.recent_cached_share == 1.0
    assert group.cached_share == 0.5


def test_skew_is_the_busiest_engine_over_the_mean() -> None:
    group = GroupFigures(["a", "b"])
    for name in ("a", "a", "a", "b"):
        group.count(name, completion(1, 0), 0.0)
    assert group.skew == 1.5


def test_a_quantile_is_one_of_the_values() -> None:
    values = [float(value) for value in range(1, 101)]
    assert (quantile(values, 0.5), quantile(values, 0.99), quantile([], 0.5)) == (51.0, 100.0, 0.0)
