"""The mirror of the cluster: watches and listings in any order agree on what is newest."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest

from inferencecache.controller.kube.observed import Change, Observed
from inferencecache.core.kube.api import Listing
from inferencecache.core.kube.kinds import CACHE_TENANTS, PODS, Document, ObjectKey


def pod(name: str, version: int, uid: str = "u", **labels: str) -> Document:
    metadata = {"namespace": "a", "name": name, "uid": uid, "resourceVersion": str(version), "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


def listing(at: int, *pods: Document) -> Listing:
    return Listing(list(pods), str(at))


@pytest.fixture
def observed() -> Observed:
    return Observed([PODS, CACHE_TENANTS])


@pytest.fixture
def changes(observed: Observed) -> list[Change]:
    changes: list[Change] = []
    observed.on_change(changes.append)
    return changes


def versions(observed: Observed) -> dict[str, str]:
    return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in observed.all_of(PODS)}


def test_an_older_object_never_replaces_a_newer_one(observed: Observed, changes: list[Change]) -> None:
    observed.seen(PODS, pod("p", 5))
    observed.seen(PODS, pod("p", 3))
    observed.seen(PODS, pod("p", 5))
    observed.all_seen(PODS, listing(4, pod("p", 4)))
    assert versions(observed) == {"p": "5"}
    assert len(changes) == 1


def test_a_listing_shows_what_a_watch_has_missed(observed: Observed, changes: list[Change]) -> None:
    for name in ("missed", "stays", "later"):
        observed.seen(PODS, pod(name, 9 if name == "later" else 2))
    observed.all_seen(PODS, listing(7, pod("stays", 2), pod("new", 6)))
    assert versions(observed) == {"later": "9", "new": "6", "stays": "2"}
    assert [change.key.name for change in changes if change.after is None] == ["missed"]


def test_a_deletion_outlives_listings_that_are_older(observed: Observed) -> None:
    observed.seen(PODS, pod("p", 2))
    observed.gone(PODS, pod("p", 8))
    observed.all_seen(PODS, listing(7, pod("p", 2)))
    observed.seen(PODS, pod("p", 2))
    assert versions(observed) == {}
    observed.all_seen(PODS, listing(10, pod("p", 9, uid="another")))
    assert versions(observed) == {"p": "9"}


def test_a_late_deletion_spares_the_next_object_of_the_name(observed: Observed) -> None:
    observed.seen(PODS, pod("p", 9, uid="another"))
    observed.gone(PODS, pod("p", 8))
    assert versions(observed) == {"p": "9"}


def test_listings_and_watches_however_they_interleave_end_in_the_same() -> None:
    def watch(mirror: Observed) -> list[Callable[[], None]]:
        return [
            partial(mirror.seen, PODS, pod("p", 1)),
            partial(mirror.seen, PODS, pod("p", 3)),
            partial(mirror.seen, PODS, pod("q", 4)),
            partial(mirror.gone, PODS, pod("p", 5)),
            partial(mirror.seen, PODS, pod("p", 6, uid="v")),
            partial(mirror.gone, PODS, pod("q", 8)),
        ]

    def listings(mirror: Observed) -> list[Callable[[], None]]:
        return [
            partial(mirror.all_seen, PODS, listing(2, pod("p", 1))),
            partial(mirror.all_seen, PODS, listing(5, pod("q", 4))),
            partial(mirror.all_seen, PODS, listing(7, pod("p", 6, uid="v"), pod("q", 4))),
        ]

    for seed in range(300):
        chance, mirror = random.Random(seed), Observed([PODS])
        sources = [watch(mirror), listings(mirror)]
        while any(sources):
            chance.choice([source for source in sources if source]).pop(0)()
        assert versions(mirror) == {"p": "6"}, seed


def test_an_index_follows_every_change(observed: Observed) -> None:
    def nodes(document: Document) -> list[ObjectKey]:
        return [ObjectKey("", label) for label in document["metadata"]["labels"].values()]

    observed.index(PODS, "node", nodes)
    one, two = ObjectKey("", "one"), ObjectKey("", "two")
    observed.seen(PODS, pod("b", 1, node="one"))
    observed.seen(PODS, pod("a", 2, node="one"))
    assert [each["metadata"]["name"] for each in observed.indexed(PODS, "node", one)] == ["a", "b"]
    observed.seen(PODS, pod("a", 3, node="two"))
    assert [each["metadata"]["name"] for each in observed.indexed(PODS, "node", two)] == ["a"]
    observed.gone(PODS, pod("a", 4, node="two"))
    assert observed.indexed(PODS, "node", two) == []
    assert [each["metadata"]["name"] for each in observed.indexed(PODS, "node", one)] == ["b"]


def test_a_namespace_is_read_by_labels(observed: Observed) -> None:
    observed.seen(PODS, pod("b", 1, app="x", tier="1"))
    observed.seen(PODS, pod("a", 2, app="x"))
    names = [each["metadata"]["name"] for each in observed.in_namespace(PODS, "a", {"app": "x"})]
    assert names == ["a", "b"]
    assert len(observed.in_namespace(PODS, "a", {"app": "x", "tier": "1"})) == 1
    assert observed.in_namespace(PODS, "b") == []


async def test_all_of_a_kind_is_there_once_it_was_listed(observed: Observed) -> None:
    observed.seen(PODS, pod("p", 1))
    assert not observed.is_listed(PODS)
    observed.all_seen(PODS, listing(1, pod("p", 1)))
    await observed.listed(PODS)
    assert observed.is_listed(PODS)
    assert not observed.is_listed()


def test_another_life_of_an_object_is_new(changes: list[Change], observed: Observed) -> None:
    observed.seen(PODS, pod("p", 1))
    observed.seen(PODS, pod("p", 2))
    observed.seen(PODS, pod("p", 3, uid="another"))
    observed.gone(PODS, pod("p", 4, uid="another"))
    assert [change.is_new for change in changes] == [True, False, True, False]


def test_of_a_pod_only_what_somebody_looks_at_is_kept(observed: Observed) -> None:
    full = pod("p", 1, app="x")
    full["metadata"] |= {"managedFields": [{}], "annotations": {"a": "b"}, "ownerReferences": [{"uid": "u"}]}
    container = {"name": "engine", "image": "i", "env": [{"name": "A", "value": "b"}]}
    full["spec"] = {"nodeName": "n", "containers": [container], "volumes": [{"name": "v"}]}
    full["status"] = {"phase": "Running", "conditions": [{"type": "Ready"}], "containerStatuses": [{}]}
    observed.seen(PODS, full)
    kept = observed.get(PODS, ObjectKey("a", "p"))
    assert kept is not None
    assert kept["metadata"] == {
        name: value for name, value in full["metadata"].items() if name != "managedFields"
    }
    assert kept["spec"] == {"nodeName": "n", "containers": [{"name": "engine"}]}
    assert kept["status"] == {"phase": "Running", "conditions": [{"type": "Ready"}]}
    tenant = {
        "metadata": {"name": "t", "resourceVersion": "1", "managedFields": []},
        "spec": {"tenantID": "t"},
    }
    observed.seen(CACHE_TENANTS, tenant)
    kept = observed.get(CACHE_TENANTS, ObjectKey("", "t"))
    assert kept == {"metadata": {"name": "t", "resourceVersion": "1"}, "spec": {"tenantID": "t"}}
