"""Conditions, and patches of a status."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferencecache.controller.kube.writing import merge_patch
from inferencecache.core.kube.conditions import Verdict, conditions_of, timestamp, with_conditions

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)


@pytest.mark.rule("CTL-19")
def test_a_transition_time_moves_only_with_the_status() -> None:
    one = with_conditions((), {"Ready": Verdict("True", "A", "a")}, generation=1, now=NOW)
    same = with_conditions(one, {"Ready": Verdict("True", "B", "b")}, generation=2, now=LATER)
    other = with_conditions(same, {"Ready": Verdict("False", "B", "b")}, generation=2, now=LATER)
    assert same[0] == one[0] | {"reason": "B", "message": "b", "observedGeneration": 2}
    assert other[0]["lastTransitionTime"] == timestamp(LATER) != one[0]["lastTransitionTime"]


def test_conditions_of_others_stay_and_keep_their_order() -> None:
    before: list[dict[str, Any]] = [{"type": "Foreign", "status": "True"}]
    both = with_conditions(before, {"Ready": Verdict("True", "A", "")}, generation=1, now=NOW)
    assert [each["type"] for each in both] == ["Foreign", "Ready"]
    assert with_conditions(both, {"Ready": None}, generation=1, now=NOW) == before
    assert conditions_of({"conditions": both}).keys() == {"Foreign", "Ready"}
    assert conditions_of(None) == {}


@pytest.mark.rule("CTL-23")
def test_times_have_whole_seconds() -> None:
    assert timestamp(NOW) == "2026-01-02T03:04:05Z"


def merged(target: Any, patch: Any) -> Any:
    """As RFC 7386 says."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


VALUES = st.recursive(
    st.integers() | st.text(max_size=2) | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from("abcd"), VALUES, max_size=4)


@given(OBJECTS, OBJECTS)
def test_a_patch_makes_each_named_field_exactly_what_it_should_be(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    assert merged(old, merge_patch(old, new)) == old | new
