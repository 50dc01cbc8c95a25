"""Which backends a change of an object makes the controller look at again."""

from __future__ import annotations

import pytest

from inferencecache.controller.backend.concerns import backends_of
from inferencecache.controller.backend.references import read_reference
from inferencecache.controller.kube.observed import Change
from inferencecache.core.kube.kinds import (
    CACHE_BACKENDS,
    CACHE_POLICIES,
    DEPLOYMENTS,
    PODS,
    SERVICES,
    Document,
    ObjectKey,
    ObjectKind,
    key_of,
)
from tests.support.backend_passes import KEY, Passes, engine, managed, node_server, owner, stamps
from tests.support.backends import change

rule = pytest.mark.rule


def concerned(kind: ObjectKind, before: Document | None, after: Document | None) -> set[ObjectKey]:
    document = after or before
    assert document is not None
    keys = backends_of(Change(kind, key_of(document), before, after))
    assert len(keys) == len(set(keys))
    return set(keys)


@rule("CTL-10")
def test_any_change_of_a_backend_concerns_it() -> None:
    document = managed()
    assert concerned(CACHE_BACKENDS, None, document) == {KEY}
    with_event = change(document, "status.indexParticipation.lastEventAt", "2026-03-01T12:00:00Z")
    assert concerned(CACHE_BACKENDS, document, with_event) == {KEY}
    assert concerned(CACHE_BACKENDS, document, None) == {KEY}
    assert concerned(CACHE_POLICIES, None, document) == set()


@rule("CTL-10")
@pytest.mark.parametrize("kind", [DEPLOYMENTS, SERVICES])
def test_what_it_owns_concerns_it_also_when_it_goes(kind: ObjectKind) -> None:
    owned = {"metadata": {"name": "any", "namespace": "ns-a", "ownerReferences": [owner()]}}
    assert concerned(kind, owned, None) == {KEY}
    assert concerned(kind, owned, change(owned, "metadata.ownerReferences", [])) == {KEY}
    assert concerned(kind, None, change(owned, "metadata.ownerReferences", [])) == set()
    for key, value in (("kind", "Deployment"), ("apiVersion", "v1"), ("controller", False)):
        other = change(owned, "metadata.ownerReferences", [owner() | {key: value}])
        assert concerned(kind, None, other) == set()


@rule("CTL-11")
def test_a_pod_concerns_its_owner_or_who_it_was_wired_for() -> None:
    assert concerned(PODS, None, node_server("node-a")) == {KEY}
    assert concerned(PODS, None, engine()) == {KEY}
    elsewhere = change(engine(), "metadata.namespace", "ns-b")
    assert concerned(PODS, None, elsewhere) == {KEY}, "the mark names the namespace"
    for marks in (
        {},
        {"inferencecache.io/injected-by": "ns-a/cache"},
        stamps() | {"inferencecache.io/injected-by-uid": ""},
        stamps() | {"inferencecache.io/injected-by": "cache"},
        stamps() | {"inferencecache.io/injected-by": "ns-a/UPPER"},
    ):
        assert concerned(PODS, None, engine(marks=marks)) == set()


@pytest.mark.parametrize("kind", [DEPLOYMENTS, SERVICES])
def test_what_is_in_the_way_of_a_backend_concerns_it_when_it_goes(kind: ObjectKind) -> None:
    passes = Passes(managed())
    foreign = {"metadata": {"name": "cache", "namespace": "ns-a"}}
    assert passes.reconciler.concerns(Change(kind, KEY, foreign, None)) == (KEY,)
    other = ObjectKey("ns-a", "other")
    assert passes.reconciler.concerns(Change(kind, other, foreign, None)) == ()


@rule("CTL-209")
@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("ns-a/cache", ObjectKey("ns-a", "cache")),
        ("ns-a/cache.v2", ObjectKey("ns-a", "cache.v2")),
        (f"{'n' * 63}/{'c' * 253}", ObjectKey("n" * 63, "c" * 253)),
        ("", None),
        ("cache", None),
        ("/cache", None),
        ("ns-a/", None),
        ("ns-a/cache/x", None),
        ("ns.a/cache", None),
        ("ns-a/UPPER", None),
        ("ns-a/cache.", None),
        ("ns-a/-cache", None),
        ("ns-a/cache\n", None),
        ("ns-a/ca che", None),
        (f"{'n' * 64}/cache", None),
        (f"ns-a/{'c' * 254}", None),
    ],
)
def test_a_reference_is_a_namespace_and_a_name(text: str, key: ObjectKey | None) -> None:
    assert read_reference(text) == key
