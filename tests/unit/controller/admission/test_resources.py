"""Requests and limits of containers."""

from __future__ import annotations

from typing import Any

import pytest

from inferencecache.controller.admission.validation.resources import resource_violations
from tests.support.backends import Document

rule = pytest.mark.rule
REQUESTS, LIMITS = "R.requests", "R.limits"


def found(resources: Document, **how: bool) -> list[str]:
    return [violation.path for violation in resource_violations(resources, "R", **how)]


def alike(**amounts: Any) -> Document:
    named = {name.replace("_", "-"): amount for name, amount in amounts.items()}
    return {"requests": named, "limits": named}


def both(name: str) -> list[str]:
    return [f"{REQUESTS}[{name}]", f"{LIMITS}[{name}]"]


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        pytest.param(
            {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}, [f"{LIMITS}[cpu]"], marks=rule("ADM-71")
        ),
        pytest.param(
            {"requests": {"cpu": "1000m"}, "limits": {"cpu": 1}}, [], marks=rule("ADM-71", "ADM-72")
        ),
        pytest.param(
            {"requests": {"memory": 0}, "limits": {"memory": "8Gi"}}, [], marks=rule("ADM-W17", "ADM-75")
        ),
        pytest.param(
            {"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 2}},
            [f"{LIMITS}[nvidia.com/gpu]"],
            marks=rule("ADM-72", "ADM-W17"),
        ),
        pytest.param(
            {"requests": {"hugepages-2Mi": "2Mi"}},
            [f"{REQUESTS}[hugepages-2Mi]"],
            marks=rule("ADM-73", "ADM-W17"),
        ),
        pytest.param({"limits": {"nvidia.com/gpu": 1}}, [], marks=rule("ADM-73", "ADM-W17")),
        pytest.param({"requests": {"ephemeral-storage": "1Gi"}}, [], marks=rule("ADM-73")),
        pytest.param({"claims": [{"name": "c"}]}, ["R.claims"], marks=rule("ADM-74")),
        pytest.param({"claims": []}, [], marks=rule("ADM-74")),
        pytest.param(alike(memory="-1Gi"), both("memory"), marks=rule("ADM-75", "ADM-W17")),
        pytest.param(alike(foo=1), both("foo"), marks=rule("ADM-76", "ADM-W17")),
        pytest.param(
            alike(**{"kubernetes.io/x": 1}), both("kubernetes.io/x"), marks=rule("ADM-76", "ADM-W17")
        ),
        pytest.param(
            alike(**{"requests.kubernetes.io/x": 1}), both("requests.kubernetes.io/x"), marks=rule("ADM-76")
        ),
        pytest.param(alike(**{"UP.com/x": 1}), both("UP.com/x"), marks=rule("ADM-76")),
        pytest.param(alike(**{"a.com/-x": 1}), both("a.com/-x"), marks=rule("ADM-76")),
        pytest.param(alike(**{"a.com/x/y": 1}), both("a.com/x/y"), marks=rule("ADM-76")),
        pytest.param(alike(**{"hugepages-x": 1}), both("hugepages-x"), marks=rule("ADM-76")),
        pytest.param(alike(**{"hugepages-0": 1}), both("hugepages-0"), marks=rule("ADM-76")),
        pytest.param(alike(**{"a.com/x": 1}), [], marks=rule("ADM-76")),
        pytest.param(alike(**{"a.com/x": "500m"}), both("a.com/x"), marks=rule("ADM-77")),
        pytest.param(alike(**{"a.com/x": "2000m"}), [], marks=rule("ADM-77")),
        pytest.param(alike(hugepages_2Mi="3Mi"), both("hugepages-2Mi"), marks=rule("ADM-78", "ADM-W17")),
        pytest.param(alike(hugepages_2Mi="4Mi"), [], marks=rule("ADM-78")),
        pytest.param(alike(hugepages_2Mi=0), [], marks=rule("ADM-78")),
    ],
)
def test_resources_are_judged_as_a_pods(resources: Document, expected: list[str]) -> None:
    assert found(resources) == expected


@rule("ADM-79")
def test_a_bad_name_is_told_alone_where_that_is_asked_for() -> None:
    resources = alike(foo="-1")
    assert found(resources, name_errors_alone=True) == both("foo")
    assert found(resources) == [path for path in both("foo") for _ in range(2)]
