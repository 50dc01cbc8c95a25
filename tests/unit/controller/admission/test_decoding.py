"""Values that cannot be read at all, and what completes an object before it is stored."""

from __future__ import annotations

from typing import Any

import pytest

from inferencecache.controller.admission.decoding import unreadable_values
from inferencecache.controller.admission.defaulting import defaulted_backend
from inferencecache.schemas.resources import KINDS
from inferencecache.schemas.resources.quantities import parse_quantity
from tests.support.backends import Document, node_local, pod_local
from tests.support.judging import NODE_SERVER, SERVER, changed
from tests.support.resources import document

rule = pytest.mark.rule


def unreadable(made: Document) -> list[tuple[str, bool]]:
    kind = KINDS[made["kind"]]
    return [(value.path, value.is_type) for value in unreadable_values(made, kind.struct)]


@rule("ADM-13")
@pytest.mark.parametrize(
    ("made", "path"),
    [
        (document("CachePolicy", spec={"evictionTTL": "1d"}), "spec.evictionTTL"),
        (document("CachePolicy", spec={"evictionTTL": ""}), "spec.evictionTTL"),
        (document("CachePolicy", spec={"minimumPrefixTokens": 2**31}), "spec.minimumPrefixTokens"),
        (document("CachePolicy", spec={"lookupTimeoutMs": -(2**31) - 1}), "spec.lookupTimeoutMs"),
        (
            document("CacheTenant", spec={"tenantID": "t", "quota": {"maxIndexEntries": 1e30}}),
            "spec.quota.maxIndexEntries",
        ),
        (
            changed(pod_local(), {"spec.observation.firstEventTimeout": "5 m"}),
            "spec.observation.firstEventTimeout",
        ),
        (changed(pod_local(), {f"{SERVER}.l1Capacity": "4 Gi"}), f"{SERVER}.l1Capacity"),
        (changed(pod_local(), {f"{SERVER}.maxWorkers": 3_000_000_000}), f"{SERVER}.maxWorkers"),
        (
            changed(pod_local(), {f"{SERVER}.resources.limits": {"nvidia.com/gpu": "one"}}),
            f"{SERVER}.resources.limits[nvidia.com/gpu]",
        ),
        (
            changed(
                node_local(),
                {"spec.lmCache.nodeLocal.scheduling.tolerations": [{}, {"tolerationSeconds": 2**63}]},
            ),
            "spec.lmCache.nodeLocal.scheduling.tolerations[1].tolerationSeconds",
        ),
        (
            changed(
                pod_local(),
                {
                    "spec.integration.engineOverrides.env": [
                        {"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "r", "divisor": "x"}}}
                    ]
                },
            ),
            "spec.integration.engineOverrides.env[0].valueFrom.resourceFieldRef.divisor",
        ),
    ],
)
def test_texts_that_do_not_parse_and_numbers_that_do_not_fit_are_found(made: Document, path: str) -> None:
    assert unreadable(made) == [(path, False)]


@rule("ADM-13")
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec", []),
        ("spec.lmCache", "text"),
        (f"{SERVER}.port", "8000"),
        (f"{SERVER}.port", 1.5),
        (f"{SERVER}.port", True),
        (f"{SERVER}.image", 7),
        (f"{SERVER}.l1Capacity", 1.5),
        ("spec.engineSelector.matchLabels", []),
        ("spec.integration.failOpen", "true"),
        ("spec.integration.engineOverrides.args", "--x"),
    ],
)
def test_a_wrong_type_is_told_apart(path: str, value: Any) -> None:
    assert unreadable(changed(pod_local(), {path: value})) == [(path, True)]


@rule("ADM-13")
@pytest.mark.parametrize("field", ["args", "suppressArgs", "env", "suppressEnv"])
def test_a_null_in_a_list_is_a_wrong_type(field: str) -> None:
    path = f"spec.integration.engineOverrides.{field}"
    assert unreadable(changed(pod_local(), {path: [None]})) == [(f"{path}[0]", True)]


def test_null_is_absent_and_what_is_not_declared_is_not_read() -> None:
    made = changed(pod_local(), {NODE_SERVER: {"port": None}})
    made["spec"] |= {"hiCache": None, "later": {"seconds": 2**70}}
    assert unreadable(made) == []


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("5Gi", 5 * 2**30),
        ("1536Mi", 1536 * 2**20),
        ("500m", 0.5),
        ("1e3", 1000),
        ("1E", 10**18),
        ("-1.5", -1.5),
        (".5", 0.5),
        ("5.", 5),
        ("+2k", 2000),
        (7, 7),
    ],
)
def test_quantities_are_exact(text: str | int, amount: float) -> None:
    assert parse_quantity(text) == amount


@pytest.mark.parametrize(
    "text", ["", "Gi", ".", "1.2.3", "1 Gi", "e3", "1e1.5", "1e100", "\u0661", "1" * 129]
)
def test_other_texts_are_no_quantities(text: str) -> None:
    with pytest.raises(ValueError, match="8Gi"):
        parse_quantity(text)


@rule("ADM-17", "ADM-18", "ADM-20", "CRD-22")
def test_an_empty_backend_gets_an_integration_and_a_timeout_and_nothing_else() -> None:
    bare = {"metadata": {"name": "b"}}
    for made in (bare, bare | {"spec": None}, bare | {"spec": {"integration": None, "observation": None}}):
        spec = {"integration": {}, "observation": {"firstEventTimeout": "5m"}}
        assert defaulted_backend(made) == bare | {"spec": spec}


@rule("ADM-18", "ADM-19")
@pytest.mark.parametrize(
    "written",
    [
        {"integration": {"failOpen": False}, "observation": {"firstEventTimeout": "0s", "modelID": "m"}},
        {"integration": {}, "observation": {"firstEventTimeout": ""}},
        {"integration": "text", "observation": [1]},
        {"integration": "", "observation": []},
        {"integration": 0, "observation": False},
    ],
)
def test_what_is_written_stays(written: Document) -> None:
    made = changed(pod_local(), {f"spec.{key}": value for key, value in written.items()})
    assert defaulted_backend(made) == made


@rule("ADM-18")
def test_a_model_alone_gets_the_timeout_beside_it() -> None:
    made = changed(pod_local(), {"spec.observation": {"modelID": "m"}})
    assert defaulted_backend(made)["spec"]["observation"] == {"modelID": "m", "firstEventTimeout": "5m"}
    assert made["spec"]["observation"] == {"modelID": "m"}, "what came in is not changed"


def test_a_spec_of_the_wrong_type_is_left_to_the_schema() -> None:
    for spec in ([1], [], "", 0, False):
        assert defaulted_backend({"spec": spec}) == {"spec": spec}
