"""A deleted pod's replicas are found without looking at those of all others."""

from __future__ import annotations

from inferencecache.core.index.lives import Life, Lives
from inferencecache.schemas.deltas import ReplicaName
from inferencecache.schemas.ids import Incarnation, ModelId, ReplicaId, TenantId


def name(replica: str) -> ReplicaName:
    return ReplicaName(TenantId("t"), ModelId("m"), ReplicaId(replica))


def life(uid: str) -> Life:
    return Life(Incarnation("i"), 1, 1, uid, "")


def test_replicas_are_found_by_their_pod() -> None:
    lives = Lives()
    lives[name("pod@dp0")] = first = life("u")
    lives[name("pod@dp1")] = second = life("u")
    lives[name("other")] = life("v")
    assert lives.of_pod("u") == [(name("pod@dp0"), first), (name("pod@dp1"), second)]
    assert lives.of_pod("nobody's") == []


def test_a_replica_that_begins_in_another_pod_has_left_the_first() -> None:
    lives = Lives()
    lives[name("pod")] = life("u")
    lives[name("pod")] = successor = life("v")
    assert lives.of_pod("u") == []
    assert lives.of_pod("v") == [(name("pod"), successor)]
    assert lives == {name("pod"): successor}


def test_what_is_forgotten_leaves_nothing_behind() -> None:
    lives = Lives()
    lives[name("pod")] = life("u")
    del lives[name("pod")]
    assert (len(lives), lives._of_pods) == (0, {})
