"""The kinds without webhooks: `CacheIndex`, `PromptTemplate` and `PDTopology` [CRD-138..169]."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.kube.fields import REQUIRED, Field, check_field, field
from tests.kube.objects import INDEX_STATUS, TOPOLOGY, an_object, refused, stored, with_value
from tests.support.kube import KubeClient

pytestmark = pytest.mark.kube
rule = pytest.mark.rule

LABELS: dict[str, Any] = {"accepted": [{}, {"phase": "prefill"}], "mistyped": [["a"]]}
NAMES: dict[str, Any] = {"accepted": ["a", "A b"], "absent": REQUIRED, "invalid": [""]}
TIMES: dict[str, Any] = {"accepted": ["2026-01-02T03:04:05Z"], "mistyped": ["now"]}


@pytest.fixture
async def no_index(kube: KubeClient) -> AsyncIterator[None]:
    """The kind has no namespaces, so its objects go with the test that made them."""
    yield
    for made in (await kube.list_all("CacheIndex")).body["items"]:
        await kube.delete("CacheIndex", made["metadata"]["name"])


@pytest.mark.usefixtures("no_index")
@pytest.mark.parametrize(
    "row",
    [
        field(rule("CRD-140"), "spec", [{}], mistyped=["x"]),
        field(
            rule("CRD-141", "CRD-11"),
            "status.replicas",
            [[], [{"id": "b"}, {"id": "a"}]],
            doubled=[[{"id": "a", "tenant": "x"}, {"id": "a", "tenant": "y"}]],
        ),
        field(rule("CRD-142"), "status.replicas[0].id", ["engine-0", ""], absent=REQUIRED),
        field(rule("CRD-143"), "status.replicas[0].tenant", ["", "a"]),
        field(rule("CRD-143"), "status.replicas[0].cacheMemoryBytes", [0, 2**40], mistyped=["1"]),
        field(rule("CRD-143", "CRD-18", "CRD-17"), "status.replicas[0].hitRate", ["0"], mistyped=[0.5]),
        field(rule("CRD-143", "CRD-17"), "status.replicas[0].pressure", ["0.25"], mistyped=[0.25]),
        field(rule("CRD-143"), "status.replicas[0].lastUpdate", **TIMES),
        field(
            rule("CRD-144", "CRD-11"),
            "status.tenants",
            [[], [{"id": ""}, {"id": "a"}]],
            doubled=[[{"id": ""}, {"id": ""}]],
            missing=[[{"indexEntries": 1}]],
        ),
        field(rule("CRD-145", "CRD-18"), "status.tenants[0].indexEntries", [0, 2**40], mistyped=["1"]),
        field(rule("CRD-146", "CRD-18", "CRD-17"), "status.tenants[0].hitRate", ["0"], mistyped=[0.5]),
        field(rule("CRD-147"), "status.tenants[0].memoryUsed", [0]),
        field(rule("CRD-148"), "status.prefixes.summary", missing=[{}, {"total": 1}, {"hot": 0}]),
        field(rule("CRD-148"), "status.prefixes.summary.total", [0, 2**40], absent=REQUIRED),
        field(rule("CRD-148"), "status.prefixes.summary.hot", [0], absent=REQUIRED),
        field(rule("CRD-149"), "status.observedServer", ["", "jetstream://ic/1"]),
        field(rule("CRD-150"), "status.lastUpdated", **TIMES),
    ],
)
async def test_a_field_of_the_index_takes_its_values_and_no_others(
    kube: KubeClient, namespace: str, row: Field
) -> None:
    await check_field(kube, namespace, "CacheIndex", row)


@pytest.mark.usefixtures("no_index")
@pytest.mark.rule("CRD-140", "CRD-W10", "CRD-139")
@pytest.mark.parametrize("name", ["cluster-default", "another"])
async def test_what_is_wanted_of_the_index_is_dropped(kube: KubeClient, name: str) -> None:
    wanted = an_object("CacheIndex", "", {"foo": "bar"}, name)
    assert (await stored(kube, wanted, strict=False))["spec"] == {}


@pytest.mark.usefixtures("no_index")
@pytest.mark.rule("CRD-138")
async def test_the_index_is_listed_by_its_status(kube: KubeClient) -> None:
    assert "spec" not in await stored(kube, an_object("CacheIndex", "", name="cluster-default"))
    await kube.set_status("CacheIndex", "cluster-default", "", INDEX_STATUS)
    [row] = (await kube.table("CacheIndex")).rows
    assert row["Prefixes"] == 3
    assert row["Changed"] is not None


@pytest.mark.parametrize(
    "row",
    [
        field(rule("CRD-152"), "spec", [{"body": "x"}], absent=REQUIRED),
        field(
            rule("CRD-153", "CRD-W11"),
            "spec.body",
            ["x", "{{ a }} {{ b"],
            absent=REQUIRED,
            invalid=[""],
            mistyped=[1],
        ),
        field(
            rule("CRD-154", "CRD-W11", "CRD-11"),
            "spec.slots",
            [[], [{"name": "a", "type": "Stable"}, {"name": "b", "type": "Mutable"}]],
            doubled=[[{"name": "a", "type": "Stable"}, {"name": "a", "type": "Mutable"}]],
        ),
        field(rule("CRD-155"), "spec.slots[0].name", **NAMES),
        field(
            rule("CRD-156", "CRD-W11"),
            "spec.slots[0].type",
            ["Stable", "Mutable"],
            absent=REQUIRED,
            unsupported=["stable", ""],
        ),
        field(rule("CRD-157"), "spec.slots[0].required", [True, False], mistyped=["true"]),
        field(rule("CRD-158"), "spec.slots[0].description", ["", "text"]),
        field(rule("CRD-159"), "status.templateRevision", ["", "abc"], mistyped=[1]),
        field(rule("CRD-159"), "status.observedGeneration", [0], invalid=[-1]),
        field(rule("CRD-159"), "status.conditions", [[]]),
    ],
)
async def test_a_field_of_a_template_takes_its_values_and_no_others(
    kube: KubeClient, namespace: str, row: Field
) -> None:
    await check_field(kube, namespace, "PromptTemplate", row)


@pytest.mark.rule("CRD-160")
async def test_slots_and_body_are_not_compared(kube: KubeClient, namespace: str) -> None:
    spec = {"body": "only {{ this }}", "slots": [{"name": "that", "type": "Stable"}]}
    assert (await stored(kube, an_object("PromptTemplate", namespace, spec)))["spec"] == spec


@pytest.mark.rule("CRD-W11")
@pytest.mark.parametrize(
    ("spec", "reason", "where"),
    [
        (
            {"body": "x", "slots": [{"name": "a", "type": "Stable"}] * 2},
            "FieldValueDuplicate",
            "spec.slots[1]",
        ),
        (
            {"body": "x", "slots": [{"name": "a", "type": "stable"}]},
            "FieldValueNotSupported",
            "spec.slots[0].type",
        ),
        ({"body": ""}, "FieldValueInvalid", "spec.body"),
    ],
)
async def test_a_template_is_refused_at_the_field_that_is_wrong(
    kube: KubeClient, namespace: str, spec: dict[str, Any], reason: str, where: str
) -> None:
    causes = await refused(kube, an_object("PromptTemplate", namespace, spec))
    assert [cause[:2] for cause in causes] == [(reason, where)]


@pytest.mark.parametrize(
    "row",
    [
        field(
            rule("CRD-163", "CRD-11"),
            "spec.prefillPools",
            [[], [{"name": "a"}, {"name": "b"}], [{"name": "dec-0"}]],
            doubled=[[{"name": "a"}, {"name": "a"}]],
        ),
        field(rule("CRD-163"), "spec.decodePools", [[]], doubled=[[{"name": "a"}, {"name": "a"}]]),
        field(rule("CRD-164"), "spec.prefillPools[0].name", **NAMES),
        field(rule("CRD-164"), "spec.decodePools[0].name", **NAMES),
        field(rule("CRD-165"), "spec.prefillPools[0].matchLabels", **LABELS),
        field(rule("CRD-165"), "spec.decodePools[0].matchLabels", **LABELS),
        field(rule("CRD-166", "CRD-W12"), "spec.prefillPools[0].replicas", [0, 7], invalid=[-1]),
        field(rule("CRD-166"), "spec.decodePools[0].replicas", [0, 7], invalid=[-1]),
        field(rule("CRD-167", "CRD-W12"), "spec.prefillPools[0].acceleratorType", ["nope", ""]),
        field(
            rule("CRD-168", "CRD-11"),
            "spec.acceleratorTypes",
            [[], [{"name": "a"}]],
            doubled=[[{"name": "a"}, {"name": "a"}]],
            missing=[[{"vendor": "v"}]],
        ),
        field(rule("CRD-168"), "spec.acceleratorTypes[0].name", **NAMES),
        field(rule("CRD-168"), "spec.acceleratorTypes[0].vendor", ["nvidia", ""]),
        field(rule("CRD-168"), "spec.acceleratorTypes[0].model", ["H200"]),
        field(rule("CRD-168"), "spec.acceleratorTypes[0].matchLabels", **LABELS),
        field(
            rule("CRD-162"),
            "spec.transport",
            ["Mooncake", "NIXL", "Direct"],
            absent="Direct",
            unsupported=["direct", ""],
        ),
        field(rule("CRD-169"), "status.observedGeneration", [0], invalid=[-1]),
        field(rule("CRD-169"), "status.conditions", [[]]),
    ],
)
async def test_a_field_of_a_topology_takes_its_values_and_no_others(
    kube: KubeClient, namespace: str, row: Field
) -> None:
    await check_field(kube, namespace, "PDTopology", row)


@pytest.mark.rule("CRD-162", "CRD-W12")
async def test_a_topology_needs_no_spec(kube: KubeClient, namespace: str) -> None:
    assert "spec" not in await stored(kube, an_object("PDTopology", namespace))
    assert (await stored(kube, an_object("PDTopology", namespace, {}, "two")))["spec"] == {
        "transport": "Direct"
    }


@pytest.mark.rule("CRD-07", "CRD-165")
async def test_replica_ids_are_for_places_without_a_controller(kube: KubeClient, namespace: str) -> None:
    wanted = with_value(
        an_object("PDTopology", namespace, TOPOLOGY), "spec.prefillPools[0].replicaIDs", ["engine-0"]
    )
    assert (await kube.create(wanted, strict=True)).status == 400
    assert (await stored(kube, wanted, strict=False))["spec"] == TOPOLOGY
