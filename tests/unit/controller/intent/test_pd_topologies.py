"""Which replicas are in a topology's pools."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inferencecache.controller.aggregate import Source
from inferencecache.controller.intent.pd_topologies import PublishedTopologies
from inferencecache.controller.kube.observed import Change, Observed
from inferencecache.core.kube.kinds import PD_TOPOLOGIES, PODS, Document, ObjectKey
from inferencecache.schemas.aggregate import Aggregate, AggregateReplica
from inferencecache.schemas.resources import document_of
from tests.support.resources import topology

MADE = topology(
    "a/pd",
    prefillPools=[{"name": "p", "matchLabels": {"phase": "p"}}],
    decodePools=[{"name": "d", "matchLabels": {"phase": "d"}}, {"name": "none", "matchLabels": {}}],
)


def pod(name: str, version: int = 1, *, namespace: str = "a", ready: str = "True", **more: Any) -> Document:
    metadata = {
        "namespace": namespace,
        "name": name,
        "uid": name,
        "resourceVersion": str(version),
        "labels": {"phase": name[0]},
    }
    status = {"conditions": [{"type": "Ready", "status": ready}]} | more.pop("status", {})
    return {"metadata": metadata | more, "status": status}


class World:
    def __init__(self) -> None:
        self.observed = Observed([PODS, PD_TOPOLOGIES])
        self.asked: list[ObjectKey] = []
        self.published = PublishedTopologies(self.observed, self.asked.append)
        document = document_of(MADE)
        document["metadata"] |= {"uid": "u", "resourceVersion": "1"}
        self.observed.seen(PD_TOPOLOGIES, document)
        self.concerned: list[ObjectKey] = []
        self.observed.on_change(self._changed)

    def _changed(self, change: Change) -> None:
        self.concerned += self.published.concerns(change)

    def pools(self) -> dict[str, list[str]]:
        value = json.loads(self.published.resolve(MADE).value)
        return {
            pool["name"]: pool["replicas"] for side in ("prefillPools", "decodePools") for pool in value[side]
        }


@pytest.fixture
def world() -> World:
    return World()


def test_pods_that_serve_are_the_replicas_of_the_pools_that_select_them(world: World) -> None:
    for each in (
        pod("p2"),
        pod("p1"),
        pod("d1"),
        pod("x"),
        pod("p-elsewhere", namespace="b"),
        pod("p-unready", ready="False"),
        pod("p-going", deletionTimestamp="2026-01-01T00:00:00Z"),
        pod("p-over", status={"phase": "Failed"}),
    ):
        world.observed.seen(PODS, each)
    assert world.pools() == {"p": ["p1", "p2"], "d": ["d1"], "none": []}


def test_a_topology_is_resolved_anew_only_when_a_pod_enters_or_leaves_a_pool(world: World) -> None:
    key = ObjectKey("a", "pd")
    world.observed.seen(PODS, pod("x"))
    world.observed.seen(PODS, pod("p1", 1, ready="False"))
    assert world.concerned == []
    world.observed.seen(PODS, pod("p1", 2))
    assert world.concerned == [key]
    world.observed.seen(PODS, pod("p1", 3, status={"phase": "Running"}))
    assert world.concerned == [key]
    world.observed.gone(PODS, pod("p1", 4))
    assert world.concerned == [key, key]


async def test_ranks_that_the_index_knows_of_a_pod_are_replicas_too(world: World) -> None:
    world.observed.seen(PODS, pod("d1"))

    async def project(*ids: str) -> None:
        replicas = tuple(AggregateReplica(replica_id=id_, tenant="a") for id_ in ids)
        await world.published.project(Source(Aggregate(replicas=replicas), "s"))

    await project("d1@dp1", "d1@dp0", "p9@dp0", "d1")
    assert world.asked == [ObjectKey("a", "pd")]
    assert world.pools()["d"] == ["d1", "d1@dp0", "d1@dp1"]
    await project("d1@dp0", "d1@dp1", "p9@dp0")
    assert world.asked == [ObjectKey("a", "pd")], "nothing has changed"
