"""Which set is published for which objects, and what each of them is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inferencecache.controller.intent.policy_set import Flattened, carried_on, flatten
from inferencecache.controller.intent.propagation import Standing, propagated, runs_set
from inferencecache.core.kube.kinds import Document
from inferencecache.core.policy import encode_policy_set
from inferencecache.schemas.members import RouterMember
from inferencecache.schemas.resources import ResourceRef

ALPHA = ResourceRef("CachePolicy", "team-a", "alpha")


def raw(kind: str, ref: str, spec: Any = None, generation: int = 1) -> Document:
    """An object as it is stored without the server's defaults."""
    namespace, name = ref.split("/")
    metadata = {"namespace": namespace, "name": name, "uid": f"uid-{name}", "generation": generation}
    return {
        "apiVersion": "inferencecache.io/v1alpha1",
        "kind": kind,
        "metadata": metadata,
        "spec": spec if spec is not None else {},
    }


def published(flattened: Flattened) -> Any:
    return json.loads(encode_policy_set(flattened.policy_set))


@pytest.mark.rule("CTL-W26", "CTL-193", "CTL-194")
def test_the_first_policy_of_a_namespace_counts_with_what_it_says_alone() -> None:
    flattened = flatten(
        [
            raw("CachePolicy", "team-a/zeta", {"eviction": "LRU"}),
            raw("CachePolicy", "team-a/alpha", {"eviction": "LRU", "routingFloorScore": "0"}),
            raw("CacheTenant", "team-a/x", {"tenantID": "tenant-a", "quota": {"maxIndexEntries": 10}}),
        ]
    )
    assert published(flattened) == {
        "version": 8,
        "policies": [{"namespace": "team-a", "routingFloorScore": 0, "eviction": "lru"}],
        "tenants": [{"tenantID": "tenant-a", "maxIndexEntries": 10}],
    }
    zeta = flattened.standings[ResourceRef("CachePolicy", "team-a", "zeta")]
    assert (zeta.reason, "alpha" in zeta.problem) == ("NotInForce", True)
    assert flattened.standings[ALPHA].problem == ""


@pytest.mark.rule("CTL-W26", "CTL-195")
@pytest.mark.parametrize("written", ["abc", "inf", "nan", "-1"])
def test_a_floor_that_is_no_number_becomes_the_default(written: str) -> None:
    flattened = flatten([raw("CachePolicy", "team-a/p", {"routingFloorScore": written})])
    assert published(flattened)["policies"][0]["routingFloorScore"] == 0.1


@pytest.mark.rule("CTL-W27", "CTL-196")
def test_tenants_come_in_the_order_of_their_objects() -> None:
    def tenant(ref: str, id_: str, quota: int | None) -> Document:
        return raw(
            "CacheTenant",
            ref,
            {"tenantID": id_} | ({"quota": {"maxIndexEntries": quota}} if quota is not None else {}),
        )

    flattened = flatten(
        [
            tenant("b/y", "alpha", 2),
            tenant("a/x", "zeta", 1),
            tenant("c/z", "zeta", 9),
            tenant("a/w", "free", None),
        ]
    )
    assert published(flattened)["tenants"] == [
        {"tenantID": "zeta", "maxIndexEntries": 1},
        {"tenantID": "alpha", "maxIndexEntries": 2},
    ]


@pytest.mark.rule("CTL-193")
def test_an_empty_set_is_a_set() -> None:
    assert published(flatten([])) == {"version": 8, "policies": []}


@pytest.mark.rule("CTL-198")
def test_budgets_below_nothing_and_of_the_reserved_tenant_do_not_get_through() -> None:
    flattened = flatten(
        [
            raw("CacheTenant", "a/x", {"tenantID": "t", "quota": {"maxIndexEntries": 0}}),
            raw(
                "CacheTenant", "a/y", {"tenantID": "inferencecache.io/probe", "quota": {"maxIndexEntries": 5}}
            ),
        ]
    )
    assert published(flattened)["tenants"] == [{"tenantID": "t", "maxIndexEntries": 0}]


@pytest.mark.parametrize("spec", [{"evictionTTL": 5}, {"minimumPrefixTokens": "many"}, []])
def test_an_object_that_cannot_be_read_harms_only_itself(spec: Any) -> None:
    flattened = flatten([raw("CachePolicy", "team-a/alpha", spec), raw("CachePolicy", "team-b/fine")])
    assert [entry["namespace"] for entry in published(flattened)["policies"]] == ["team-b"]
    assert flattened.standings[ALPHA].reason == "Unreadable"
    assert "it has no effect" in flattened.standings[ALPHA].problem


def test_what_did_not_change_keeps_the_revision_that_first_had_it() -> None:
    def standings(generation: int) -> dict[ResourceRef, Standing]:
        documents = [
            raw("CachePolicy", "team-a/alpha"),
            raw("CachePolicy", "team-b/p", generation=generation),
        ]
        return dict(flatten(documents).standings)

    other = ResourceRef("CachePolicy", "team-b", "p")
    first = carried_on({}, standings(1), 5)
    assert {each.revision for each in first.values()} == {5}
    second = carried_on(first, standings(2), 8)
    assert (second[ALPHA].revision, second[other].revision) == (5, 8)
    lost = carried_on(second, standings(2), 2)
    assert {each.revision for each in lost.values()} == {2}, "the bucket was lost and began anew"


def judged(document: Document, standing: Standing | None, *revisions: int) -> tuple[str, str]:
    routers = [RouterMember(f"r{number}", policy_revision=each) for number, each in enumerate(revisions)]
    verdict = propagated(document, standing, routers, runs_set)
    return verdict.status, verdict.reason


def test_propagated_says_how_far_a_generation_got() -> None:
    document = raw("CachePolicy", "team-a/alpha", generation=2)
    standing = Standing("uid-alpha", 2, 7)
    assert judged(document, None, 7) == ("False", "Publishing")
    assert judged(document, standing._replace(generation=1), 7) == ("False", "Publishing")
    assert judged(document, standing._replace(uid="former"), 7) == ("False", "Publishing")
    assert judged(document, standing) == ("Unknown", "NoRouters")
    assert judged(document, standing, 7, 6) == ("False", "AwaitingRouters")
    assert judged(document, standing, 7, 8) == ("True", "Acknowledged")
    refused = standing._replace(reason="NotInForce", problem="ignored")
    assert judged(document, refused, 7) == ("False", "NotInForce")


def test_what_was_propagated_stays_so_for_its_generation_when_routers_start() -> None:
    condition = {"type": "Propagated", "status": "True", "reason": "Acknowledged", "message": "m"}
    document = raw("CachePolicy", "team-a/alpha", generation=2)
    document["status"] = {"conditions": [condition | {"observedGeneration": 2}]}
    standing = Standing("uid-alpha", 2, 7)
    assert judged(document, standing, 7, 0) == ("True", "Acknowledged")
    assert judged(document, standing) == ("True", "Acknowledged")
    document["status"] = {"conditions": [condition | {"observedGeneration": 1}]}
    assert judged(document, standing, 7, 0) == ("False", "AwaitingRouters")
