"""JSON patches, and refusals in the API's words."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferencecache.controller.admission.patches import patch_between
from inferencecache.controller.admission.refusals import refusal
from inferencecache.schemas.resources import Violation

KEYS = st.sampled_from(["a", "b", "x/y", "x~y", ""])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "t"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=4)


def applied(document: Any, operations: list[dict[str, Any]]) -> Any:
    """RFC 6902 as far as it is used: what the API server does with a patch."""
    document = copy.deepcopy(document)
    for operation in operations:
        *parents, last = [
            step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:]
        ]
        holder = document
        for step in parents:
            holder = holder[int(step) if isinstance(holder, list) else step]
        key = int(last) if isinstance(holder, list) and last != "-" else last
        match operation["op"]:
            case "add" if key == "-" and isinstance(holder, list):
                holder.append(operation["value"])
            case "add" if isinstance(holder, dict):
                assert key not in holder
                holder[key] = operation["value"]
            case "replace":
                holder[key]  # raises where nothing is there to be replaced
                holder[key] = operation["value"]
            case "remove":
                del holder[key]
            case _:
                raise AssertionError(operation)
    return document


def written(value: Any) -> str:
    """Tells true from 1, which Python holds for equal."""
    return json.dumps(value, sort_keys=True)


@given(OBJECTS, OBJECTS)
def test_a_patch_turns_one_object_into_the_other(before: dict[str, Any], after: dict[str, Any]) -> None:
    kept = copy.deepcopy(before)
    assert written(applied(before, patch_between(before, after))) == written(after)
    assert before == kept


@given(OBJECTS)
def test_equal_objects_need_no_patch(document: dict[str, Any]) -> None:
    assert patch_between(document, copy.deepcopy(document)) == []


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        ({}, {"a": {"b": 1}}, [{"op": "add", "path": "/a", "value": {"b": 1}}]),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, [{"op": "replace", "path": "/a/b", "value": 2}]),
        ({"a": [1]}, {"a": [1, 2]}, [{"op": "add", "path": "/a/-", "value": 2}]),
        ({"a": [1, 2, 3]}, {"a": [1]}, [{"op": "remove", "path": "/a/2"}, {"op": "remove", "path": "/a/1"}]),
        ({"x/y~": 1}, {}, [{"op": "remove", "path": "/x~1y~0"}]),
        ({"a": 1}, {"a": True}, [{"op": "replace", "path": "/a", "value": True}]),
        ({"a": {"b": [1]}}, {"a": {"b": [True]}}, [{"op": "replace", "path": "/a/b/0", "value": True}]),
    ],
)
def test_a_patch_touches_only_what_changes(
    before: dict[str, Any], after: dict[str, Any], patch: list[dict[str, Any]]
) -> None:
    assert patch_between(before, after) == patch


@pytest.mark.rule("ADM-08", "ADM-09")
def test_a_refusal_lists_all_violations_in_the_apis_words() -> None:
    document = {
        "metadata": {"annotations": {"a.b/c": 'x"y'}},
        "spec": {"list": [{"port": 0}], "map": {"nvidia.com/gpu": "1"}, "obj": {"k": True}},
    }
    violations = [
        Violation("Required", "spec.name", "write one"),
        Violation("Invalid", "spec.list[0].port", "too small"),
        Violation("Invalid", "metadata.annotations[a.b/c]", "no word"),
        Violation("Forbidden", "spec.map[nvidia.com/gpu]", "no GPU"),
        Violation("NotSupported", "spec.obj", 'supported values: "a", "b"'),
        Violation("Invalid", "spec.gone[3].away", "is not there"),
    ]
    denied = refusal("CacheBackend", "cache", document, violations)
    assert (denied.code, denied.reason) == (422, "Invalid")
    assert denied.causes == (
        ("FieldValueRequired", "Required value: write one", "spec.name"),
        ("FieldValueInvalid", "Invalid value: 0: too small", "spec.list[0].port"),
        ("FieldValueInvalid", 'Invalid value: "x\\"y": no word', "metadata.annotations[a.b/c]"),
        ("FieldValueForbidden", "Forbidden: no GPU", "spec.map[nvidia.com/gpu]"),
        ("FieldValueNotSupported", 'Unsupported value: {"k": true}: supported values: "a", "b"', "spec.obj"),
        ("FieldValueInvalid", "Invalid value: null: is not there", "spec.gone[3].away"),
    )
    listed = ", ".join(f"{cause.field}: {cause.message}" for cause in denied.causes)
    assert denied.message == f'CacheBackend.inferencecache.io "cache" is invalid: [{listed}]'


@pytest.mark.rule("ADM-08")
def test_a_single_violation_stands_without_brackets() -> None:
    denied = refusal("CacheTenant", "t", {}, [Violation("Required", "spec.tenantID", "write one")])
    assert (
        denied.message
        == 'CacheTenant.inferencecache.io "t" is invalid: spec.tenantID: Required value: write one'
    )
