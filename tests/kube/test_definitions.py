"""What an API server makes of the definitions: names, scope, columns, subresources [CRD-01..06]."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.kube.objects import (
    ABSENT,
    BACKEND,
    BACKEND_STATUS,
    SPECS,
    STATUSES,
    an_object,
    stored,
    value_at,
    with_value,
)
from tests.support.kube import KubeClient

pytestmark = pytest.mark.kube

KINDS = [
    ("CacheBackend", "cachebackends", "cb", True),
    ("CachePolicy", "cachepolicies", "cpol", True),
    ("CacheTenant", "cachetenants", "ct", True),
    ("CacheIndex", "cacheindices", "ci", False),
    ("PromptTemplate", "prompttemplates", "pt", True),
    ("PDTopology", "pdtopologies", "pdt", True),
]
AGE = ("Age", "date")
EVERY_KIND = pytest.mark.parametrize("kind", SPECS)


async def definition(kube: KubeClient, plural: str) -> dict[str, Any]:
    answer = await kube.get("CustomResourceDefinition", f"{plural}.inferencecache.io")
    assert answer.status == 200
    spec: dict[str, Any] = answer.body["spec"]
    return spec


@pytest.mark.rule("CRD-01", "CRD-02", "CRD-03", "CRD-04", "CRD-05")
async def test_a_server_offers_exactly_the_six_kinds_under_their_names(kube: KubeClient) -> None:
    groups = await kube.call("GET", "/apis/inferencecache.io")
    assert [version["version"] for version in groups.body["versions"]] == ["v1alpha1"]
    offered = (await kube.call("GET", "/apis/inferencecache.io/v1alpha1")).body["resources"]
    kinds = [resource for resource in offered if "/" not in resource["name"]]
    assert sorted(
        (
            resource["kind"],
            resource["name"],
            resource["singularName"],
            resource["shortNames"],
            resource["namespaced"],
        )
        for resource in kinds
    ) == sorted(
        (kind, plural, kind.lower(), [short], namespaced) for kind, plural, short, namespaced in KINDS
    )
    assert not any("categories" in resource for resource in kinds)
    parts = {resource["name"] for resource in offered} - {resource["name"] for resource in kinds}
    assert parts == {f"{plural}/status" for _, plural, _, _ in KINDS}


@pytest.mark.rule("CRD-01", "CRD-03")
@pytest.mark.parametrize(("kind", "plural", "short", "namespaced"), KINDS)
async def test_one_version_is_served_and_stored_without_conversion(
    kube: KubeClient, kind: str, plural: str, short: str, namespaced: bool
) -> None:
    spec = await definition(kube, plural)
    [version] = spec["versions"]
    assert (version["name"], version["served"], version["storage"]) == ("v1alpha1", True, True)
    assert spec["conversion"] == {"strategy": "None"}
    assert spec["names"]["listKind"] == f"{kind}List"
    listed = await kube.list_all(kind)
    assert listed.body["kind"] == f"{kind}List"


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        pytest.param(
            "CacheBackend",
            [
                ("Type", "string"),
                ("Ready", "string"),
                ("Matched", "integer"),
                ("Remote", "string"),
                ("Prefixes", "integer"),
                ("LastEvent", "date"),
            ],
            marks=pytest.mark.rule("CRD-21"),
        ),
        pytest.param("CachePolicy", [("Eviction", "string")], marks=pytest.mark.rule("CRD-104")),
        pytest.param(
            "CacheTenant",
            [("Tenant", "string"), ("Entries", "integer"), ("Quota", "integer"), ("Isolation", "string")],
            marks=pytest.mark.rule("CRD-128"),
        ),
        pytest.param(
            "CacheIndex", [("Prefixes", "integer"), ("Changed", "date")], marks=pytest.mark.rule("CRD-138")
        ),
        pytest.param("PromptTemplate", [("Revision", "string")], marks=pytest.mark.rule("CRD-151")),
        pytest.param(
            "PDTopology", [("Prefill", "string"), ("Decode", "string")], marks=pytest.mark.rule("CRD-161")
        ),
    ],
)
@pytest.mark.rule("CRD-06")
async def test_a_listing_has_its_columns_in_order_and_hides_none(
    kube: KubeClient, kind: str, columns: list[tuple[str, str]]
) -> None:
    table = await kube.table(kind)
    assert [(column["name"], column["type"]) for column in table.columns] == [
        ("Name", "string"),
        *columns,
        AGE,
    ]
    assert {column["priority"] for column in table.columns} == {0}


@pytest.mark.rule("CRD-21")
async def test_a_backend_is_listed_by_its_status(kube: KubeClient, namespace: str) -> None:
    await stored(kube, an_object("CacheBackend", namespace, BACKEND))
    await stored(kube, an_object("CacheBackend", namespace, {"runtime": "VLLM"}, name="two"))
    await kube.set_status("CacheBackend", "one", namespace, BACKEND_STATUS)
    one, two = (await kube.table("CacheBackend", namespace)).rows
    assert re.fullmatch(r"\d+[dy].*", one.pop("LastEvent"))
    del one["Age"], two["Age"]
    assert one == {
        "Name": "one",
        "Type": "LMCache",
        "Ready": "True",
        "Matched": 2,
        "Remote": "docs-redis.serving.svc:6379",
        "Prefixes": 12,
    }
    assert two == {
        "Name": "two",
        "Type": "LMCache",
        "Ready": None,
        "Matched": None,
        "Remote": None,
        "Prefixes": None,
        "LastEvent": None,
    }


@pytest.mark.rule("CRD-104", "CRD-128", "CRD-138", "CRD-151")
@pytest.mark.parametrize(
    ("kind", "spec", "status", "cells"),
    [
        ("CachePolicy", {"eviction": "LFU"}, {}, {"Eviction": "LFU"}),
        (
            "CacheTenant",
            {"tenantID": "t", "quota": {"maxIndexEntries": 0}},
            {"indexEntries": 0},
            {"Tenant": "t", "Entries": 0, "Quota": 0, "Isolation": "Fairness"},
        ),
        ("PromptTemplate", {"body": "x"}, {"templateRevision": "abc"}, {"Revision": "abc"}),
    ],
)
async def test_a_listing_shows_what_its_columns_name(
    kube: KubeClient,
    namespace: str,
    kind: str,
    spec: dict[str, Any],
    status: dict[str, Any],
    cells: dict[str, Any],
) -> None:
    await stored(kube, an_object(kind, namespace, spec))
    await kube.set_status(kind, "one", namespace, status)
    [row] = (await kube.table(kind, namespace)).rows
    assert row.pop("Age") is not None
    assert row == {"Name": "one"} | cells


@pytest.mark.rule("CRD-161", "CRD-W24")
async def test_a_topology_is_listed_with_the_first_pool_of_each_phase(
    kube: KubeClient, namespace: str
) -> None:
    pools = {
        "prefillPools": [{"name": "p1"}, {"name": "p2"}],
        "decodePools": [{"name": "d1"}, {"name": "d2"}],
    }
    await stored(kube, an_object("PDTopology", namespace, pools))
    [row] = (await kube.table("PDTopology", namespace)).rows
    assert (row["Prefill"], row["Decode"]) == ("p1", "d1")


@EVERY_KIND
async def test_a_server_keeps_every_field_that_the_contract_names(
    kube: KubeClient, namespace: str, kind: str
) -> None:
    made = await stored(kube, an_object(kind, namespace, SPECS[kind]))
    assert made["spec"] == SPECS[kind]
    name, place = made["metadata"]["name"], made["metadata"].get("namespace", "")
    answer = await kube.set_status(kind, name, place, STATUSES[kind])
    assert answer.status == 200
    assert not answer.warnings
    assert answer.body["status"] == STATUSES[kind]
    await kube.delete(kind, name, place)


@pytest.mark.rule("CRD-05")
@EVERY_KIND
async def test_spec_and_status_are_written_apart_and_only_the_spec_moves_the_generation(
    kube: KubeClient, namespace: str, kind: str
) -> None:
    both = an_object(kind, namespace, SPECS[kind]) | {"status": STATUSES[kind]}
    made = await stored(kube, both)
    assert "status" not in made
    assert made["metadata"]["generation"] == 1
    name, place = made["metadata"]["name"], made["metadata"].get("namespace", "")
    other = {"spec": None, "status": STATUSES[kind], "metadata": {"labels": {"a": "b"}}}
    written = (await kube.patch(kind, name, place, other, part="status")).body
    assert written["spec"] == SPECS[kind]
    assert written["status"] == STATUSES[kind]
    assert written["metadata"]["generation"] == 1
    again = (await kube.patch(kind, name, place, {"status": None, "metadata": {"labels": {"a": "c"}}})).body
    assert again["status"] == STATUSES[kind]
    assert again["metadata"]["generation"] == 1
    await kube.delete(kind, name, place)


@pytest.mark.rule("CRD-05", "CRD-12")
@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("CacheBackend", "spec.runtime", "SGLang"),
        ("CacheBackend", "spec.type", "SGLangHiCache"),
        ("CacheBackend", "spec.lmCache.topology", "NodeLocal"),
        ("CacheBackend", "spec.lmCache.podLocal", ABSENT),
        ("CacheBackend", "spec.remoteStorage.ownership", "External"),
        ("CacheBackend", "spec.remoteStorage", ABSENT),
        ("CacheBackend", "spec.integration.mode", "EventsOnly"),
        ("CacheBackend", "spec.engineSelector.matchLabels", {"inferencecache.io/cache-domain": "other"}),
        ("CacheTenant", "spec.tenantID", "team-b"),
        ("CachePolicy", "spec.eviction", "LRU"),
        ("PromptTemplate", "spec.body", "other"),
        ("PDTopology", "spec.transport", "Mooncake"),
    ],
)
async def test_every_field_of_a_spec_may_change(
    kube: KubeClient, namespace: str, kind: str, path: str, value: object
) -> None:
    made = await stored(kube, an_object(kind, namespace, SPECS[kind]))
    answer = await kube.replace(with_value(made, path, value))
    assert answer.status == 200
    assert value_at(answer.body, path) == value
    assert answer.body["metadata"]["generation"] == 2
