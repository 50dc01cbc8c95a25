"""Servers of nodes follow the engines of their backend [CTL-67..87]."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from inferencecache.controller.pods.node_servers import (
    NodeServers,
    ServerPlan,
    ServerProblemError,
    plan_servers,
)
from inferencecache.core.kube.backends import Backend
from inferencecache.core.kube.kinds import CACHE_BACKENDS, PODS
from tests.support.backend_passes import MARK, NOON, at, engine, node_server, of_case, owner, stamps
from tests.support.backends import Document, change, events_only, node_local, pod_local
from tests.support.played_kube import PlayedKube

rule = pytest.mark.rule
IDLE = f"{MARK}node-local-idle-since"
NODE_LOCAL = of_case(node_local())
OF_NODE_A = "cache-66570ff05a20"
RETENTION = "spec.lmCache.nodeLocal.idleRetentionSeconds"


def planned(backend: Document, *pods: Document, now: datetime = NOON) -> ServerPlan:
    return plan_servers(Backend(backend), pods, now)


def named(documents: tuple[Document, ...]) -> list[str]:
    return [document["metadata"]["name"] for document in documents]


def leaving(pod: Document) -> Document:
    pod["metadata"]["deletionTimestamp"] = "2026-03-01T11:59:00Z"
    return pod


def idle_since(text: str, node: str = "node-a") -> Document:
    server = node_server(node)
    server["metadata"]["annotations"][IDLE] = text
    return server


# ------------------------------------------------------------------------------------------ demand


@rule("CTL-W17", "CTL-67", "CTL-69", "CTL-70")
def test_two_engines_of_a_node_get_one_server_and_an_unscheduled_one_gets_none() -> None:
    first = engine("e1", node="node-a")
    first["spec"]["tolerations"] = [{"key": "of-e1"}]
    second = engine("e2", node="node-a")
    second["spec"]["tolerations"] = [{"key": "of-e2"}]
    plan = planned(NODE_LOCAL, second, first, engine("e3"))
    (server,) = plan.creations
    assert server["metadata"]["name"] == OF_NODE_A
    assert server["metadata"]["namespace"] == "ns-a"
    assert server["metadata"]["ownerReferences"] == [owner()]
    assert server["spec"]["tolerations"] == [{"key": "of-e1"}]
    assert plan._replace(creations=()) == ServerPlan()


@rule("CTL-71", "CTL-70")
def test_the_server_is_marked_as_this_life_and_generation_of_the_backend() -> None:
    (server,) = planned(NODE_LOCAL, engine(node="node-a")).creations
    assert server["metadata"] == node_server("node-a")["metadata"]


@rule("CTL-67", "CTL-68")
@pytest.mark.parametrize(
    "pod",
    [
        engine(),
        leaving(engine(node="node-a")),
        engine(node="node-a", phase="Succeeded"),
        engine(node="node-a", phase="Failed"),
        engine(node="node-a", labels={}),
        engine(node="node-a", marks={}),
        engine(node="node-a", marks=stamps(uid="u0")),
    ],
)
def test_no_other_pod_makes_a_demand(pod: Document) -> None:
    assert planned(NODE_LOCAL, pod) == ServerPlan()


@rule("CTL-67")
def test_an_engine_of_an_earlier_generation_makes_a_demand() -> None:
    old = engine(node="node-a", marks=stamps(generation=0))
    assert named(planned(NODE_LOCAL, old).creations) == [OF_NODE_A]


# --------------------------------------------------------------------------------------- lifecycle


@rule("CTL-81")
def test_a_server_that_is_as_it_should_be_is_left_alone() -> None:
    assert planned(NODE_LOCAL, engine(node="node-a"), node_server("node-a")) == ServerPlan()


@rule("CTL-82")
def test_another_generation_replaces_every_server() -> None:
    backend = of_case(node_local(), generation=2)
    servers = [node_server("node-a"), node_server("node-b")]
    plan = planned(backend, engine(node="node-a"), engine("e2", node="node-b"), *servers)
    assert named(plan.deletions) == named(tuple(servers))
    assert plan._replace(deletions=()) == ServerPlan()  # their names are taken until they are gone


@rule("CTL-81", "CTL-82", "CTL-217")
@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"metadata.annotations.{MARK}node-local-owner-uid", "u0"),
        (f"metadata.annotations.{MARK}node-local-shm-name", "another"),
        ("metadata.labels", {}),
        ("spec.volumes", []),
        ("status.phase", "Failed"),
    ],
)
def test_a_server_that_is_not_as_it_should_be_is_deleted(path: str, value: Any) -> None:
    server = node_server("node-a")
    *parents, last = path.split(".", 1) if path.startswith("spec") else path.split(".", 2)
    part = server
    for key in parents:
        part = part[key]
    part[last] = value
    plan = planned(NODE_LOCAL, engine(node="node-a"), server)
    assert named(plan.deletions) == [OF_NODE_A]
    assert plan.creations == ()


@rule("CTL-81", "CTL-85")
def test_a_second_server_of_a_node_is_deleted() -> None:
    second = node_server("node-a", name="cache-000000000000")
    plan = planned(NODE_LOCAL, engine(node="node-a"), node_server("node-a"), second)
    assert named(plan.deletions) == ["cache-000000000000"]
    assert plan._replace(deletions=()) == ServerPlan()


@rule("CTL-82")
def test_pods_that_the_backend_does_not_control_are_never_touched() -> None:
    alien = node_server("node-b")
    alien["metadata"]["ownerReferences"] = [owner(uid="u0")]
    free = node_server("node-c")
    del free["metadata"]["ownerReferences"]
    for backend in (NODE_LOCAL, of_case(pod_local())):
        assert planned(backend, alien, free) == ServerPlan()


@rule("CTL-86")
def test_servers_are_made_in_the_order_of_their_nodes() -> None:
    engines = [engine(f"e{at}", node=node) for at, node in enumerate(("node-c", "node-a", "node-b"))]
    nodes = [
        server["metadata"]["annotations"][f"{MARK}node-local-target-node"]
        for server in planned(NODE_LOCAL, *engines).creations
    ]
    assert nodes == ["node-a", "node-b", "node-c"]


@rule("CTL-86")
def test_a_name_that_is_still_ours_is_waited_for() -> None:
    assert planned(NODE_LOCAL, engine(node="node-a"), leaving(node_server("node-a"))) == ServerPlan()


@rule("CTL-86")
def test_a_name_that_is_somebody_elses_is_told_and_other_nodes_are_served() -> None:
    other = engine(OF_NODE_A, labels={}, marks={})
    plan = planned(NODE_LOCAL, engine(node="node-a"), engine("e2", node="node-b"), other)
    assert named(plan.creations) == ["cache-93ef37c61571"]
    assert plan.problem == f"the name {OF_NODE_A} of the server of node node-a is occupied by another pod"


@rule("CTL-87", "CTL-25")
@pytest.mark.parametrize(
    "backend",
    [
        of_case(pod_local()),
        of_case(events_only()),
        change(NODE_LOCAL, "spec.integration.mode", "EventsOnly"),
        change(NODE_LOCAL, "spec.type", "SGLangHiCache"),
    ],
)
def test_a_backend_whose_engines_use_no_server_of_a_node_loses_all(backend: Document) -> None:
    plan = planned(backend, engine(node="node-a"), node_server("node-a"), node_server("node-b"))
    assert named(plan.deletions) == named((node_server("node-a"), node_server("node-b")))
    assert plan._replace(deletions=()) == ServerPlan()


@rule("CTL-80")
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.lmCache.nodeLocal.server", None),
        ("spec.lmCache.nodeLocal.server.image", " "),
        ("spec.lmCache.nodeLocal.server.httpPort", 6555),
        ("spec.lmCache.nodeLocal.server.l1Capacity", "0"),
        ("spec.lmCache.nodeLocal.server.maxGPUWorkers", 0),
        ("metadata.uid", "u/1"),
        ("spec.lmCache.nodeLocal.server.l1Capacity", "1e999999999"),
        ("spec.lmCache.nodeLocal.server.resources", {"limits": {"memory": "1e999999999"}}),
    ],
)
def test_settings_that_no_server_can_run_with_are_a_problem(path: str, value: Any) -> None:
    backend = change(NODE_LOCAL, path, value)
    stamped = stamps(uid=backend["metadata"]["uid"])
    plan = planned(backend, engine(node="node-a", marks=stamped))
    assert plan.creations == ()
    assert plan.problem


@rule("CTL-80")
def test_a_server_waits_for_the_endpoint_of_its_store() -> None:
    managed = change(NODE_LOCAL, "spec.remoteStorage", {"provider": "Redis", "ownership": "Managed"})
    assert "endpoint" in planned(managed, engine(node="node-a")).problem
    known = managed | {"status": {"remoteStorage": {"endpoint": "cache.ns-a.svc.cluster.local:6379"}}}
    (server,) = planned(known, engine(node="node-a")).creations
    assert server["spec"]["containers"][0]["args"][-2:] == [
        "--l2-adapter",
        '{"host":"cache.ns-a.svc.cluster.local","port":6379,"type":"resp"}',
    ]


# ---------------------------------------------------------------------------------------- idleness


@rule("CTL-W18", "CTL-83")
def test_an_idle_server_is_marked_and_deleted_once_its_time_is_over() -> None:
    plan = planned(NODE_LOCAL, node_server("node-a"))
    ((server, mark),) = plan.marks
    assert (server["metadata"]["name"], mark) == (OF_NODE_A, "2026-03-01T12:00:00.000000000Z")
    assert plan.deletions == ()
    marked = idle_since("2026-03-01T12:00:00.000000000Z")
    assert planned(NODE_LOCAL, marked, now=at(4, 59.999999)) == ServerPlan()
    assert named(planned(NODE_LOCAL, marked, now=at(5)).deletions) == [OF_NODE_A]


@rule("CTL-W18", "CTL-84")
def test_an_engine_that_comes_back_in_time_finds_its_server() -> None:
    marked = idle_since("2026-03-01T12:00:00.000000000Z")
    plan = planned(NODE_LOCAL, marked, engine(node="node-a"), now=at(4))
    assert plan == ServerPlan(marks=((marked, None),))


@rule("CTL-W18", "CTL-83")
def test_without_retention_an_idle_server_goes_at_once() -> None:
    backend = change(NODE_LOCAL, RETENTION, 0)
    assert planned(backend, node_server("node-a")) == ServerPlan(deletions=(node_server("node-a"),))


@rule("CTL-83")
def test_retention_is_as_it_is_set() -> None:
    backend = change(NODE_LOCAL, RETENTION, 60)
    marked = idle_since("2026-03-01T12:00:00.5Z")
    assert planned(backend, marked, now=at(1)) == ServerPlan()
    assert named(planned(backend, marked, now=at(1, 0.5)).deletions) == [OF_NODE_A]


@rule("CTL-83")
def test_a_mark_that_is_no_time_is_set_anew() -> None:
    ((_, mark),) = planned(NODE_LOCAL, idle_since("yesterday"), now=at(9)).marks
    assert mark == "2026-03-01T12:09:00.000000000Z"


# ------------------------------------------------------------------------------------ carrying out


async def keep(kube: PlayedKube, backend: Document, now: datetime = NOON) -> None:
    pods = (await kube.api.list_all(PODS, "ns-a")).items
    await NodeServers(kube.writer).keep(Backend(backend), pods, now)


def stored_servers(kube: PlayedKube) -> list[str]:
    return sorted(key.name for kind, key in kube.objects if kind == PODS and key.name.startswith("cache-"))


@rule("CTL-19", "CTL-83")
async def test_what_is_planned_is_done_and_nothing_else() -> None:
    kube = PlayedKube()
    kube.put(CACHE_BACKENDS, NODE_LOCAL)
    kube.put(PODS, engine("e1", node="node-a"))
    await keep(kube, NODE_LOCAL)
    assert stored_servers(kube) == [OF_NODE_A]
    writes = kube.writes
    await keep(kube, NODE_LOCAL)
    assert kube.writes == writes
    kube.drop(PODS, "e1", "ns-a")
    await keep(kube, NODE_LOCAL, at(1))
    await keep(kube, NODE_LOCAL, at(2))
    assert kube.writes == writes + 1
    kube.put(PODS, engine("e2", node="node-a"))
    await keep(kube, NODE_LOCAL, at(3))
    server = kube.stored(PODS, OF_NODE_A, "ns-a")
    assert server is not None
    assert IDLE not in server["metadata"]["annotations"]
    kube.drop(PODS, "e2", "ns-a")
    await keep(kube, NODE_LOCAL, at(4))
    await keep(kube, NODE_LOCAL, at(9))
    assert stored_servers(kube) == []


@rule("CTL-67", "CTL-80")
async def test_a_problem_and_a_list_that_failed_are_errors_of_the_pass() -> None:
    kube = PlayedKube()
    kube.put(PODS, engine("e1", node="node-a"))
    with pytest.raises(ServerProblemError, match="image is blank"):
        await keep(kube, change(NODE_LOCAL, "spec.lmCache.nodeLocal.server.image", " "))
    with pytest.raises(ServerProblemError, match="ns-a could not be listed"):
        await NodeServers(kube.writer).keep(Backend(NODE_LOCAL), None, NOON)
