"""Which engine pods are served, in pods and on nodes."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from inferencecache.controller.backend.connector import Connector, connector_of
from inferencecache.controller.injection.refusals import NotWiredError
from inferencecache.core.kube.backends import Backend
from inferencecache.core.kube.kinds import Document
from tests.support.backend_passes import Passes, engine, node_server, of_case, stamps
from tests.support.backends import change, node_local, pod_local

rule = pytest.mark.rule
OLD = stamps(generation=0)
NOT_OURS = stamps(uid="u0")


def of_pods(*pods: Document) -> Connector:
    return connector_of(Backend(of_case(pod_local())), pods)


def of_nodes(*pods: Document, most: int = 2) -> Connector:
    document = change(node_local(), "spec.lmCache.nodeLocal.server.maxGPUWorkers", most)
    return connector_of(Backend(of_case(document)), pods)


def reasons(connector: Connector) -> dict[str, str]:
    return {row["name"]: row["reason"] for row in connector.status["enginePodCoverage"]}


# ------------------------------------------------------------------------------------------ PodLocal


@rule("CTL-89", "CTL-90", "CTL-94", "CTL-96")
def test_without_engine_pods_there_is_no_connector() -> None:
    leaving = engine("leaving")
    leaving["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:00Z"
    others = (
        leaving,
        engine("done", phase="Succeeded"),
        engine("failed", phase="Failed"),
        engine("other", labels={"inferencecache.io/cache-domain": "other"}),
    )
    connector = of_pods(*others)
    assert connector.verdict[:2] == ("False", "NoEnginePods")
    assert connector.status == {
        "mode": "Multiprocess",
        "topology": "PodLocal",
        "matchedEnginePods": 0,
        "readyEnginePods": 0,
        "desiredServers": 0,
        "readyServers": 0,
        "coveredEnginePods": 0,
        "uncoveredEnginePods": 0,
        "enginePodCoverage": [],
    }


@rule("CTL-90", "CRD-100")
def test_an_empty_selector_has_no_engine_pods() -> None:
    document = change(of_case(pod_local()), "spec.engineSelector", None)
    assert connector_of(Backend(document), [engine()]).verdict.reason == "NoEnginePods"


@rule("CTL-91", "CTL-95", "CTL-96", "OPS-116")
@pytest.mark.parametrize(
    "marks", [{}, OLD, NOT_OURS, stamps() | {"inferencecache.io/injected-by": "ns-b/cache"}]
)
def test_a_pod_that_this_generation_did_not_wire_is_unverified(marks: Document) -> None:
    connector = of_pods(engine("a"), engine("b", marks=marks))
    assert connector.verdict[:2] == ("Unknown", "ConnectorInjectionUnverified")
    assert "1/2" in connector.verdict.message
    assert reasons(connector) == {"a": "ConnectorReady", "b": "ConnectorInjectionUnverified"}
    assert connector.status["coveredEnginePods"] == 1
    assert connector.status["uncoveredEnginePods"] == 1
    assert connector.status["desiredServers"] == 2
    assert connector.status["readyServers"] == 1


@rule("CTL-89", "CTL-94", "CTL-95", "CTL-96")
def test_engines_are_served_once_the_server_in_each_runs_and_the_pods_are_ready() -> None:
    served = of_pods(engine("b", node="node-b"), engine("a"))
    assert served.verdict[:2] == ("True", "ConnectorReady")
    assert served.status["enginePodCoverage"] == [
        {"name": "a", "ready": True, "covered": True, "reason": "ConnectorReady"},
        {"name": "b", "nodeName": "node-b", "ready": True, "covered": True, "reason": "ConnectorReady"},
    ]
    without = of_pods(engine("a"), engine("b", served=False))
    assert without.verdict[:2] == ("False", "MPServersNotReady")
    assert "1/2" in without.verdict.message
    assert reasons(without)["b"] == "MPServersNotReady"
    unready = of_pods(engine("a"), engine("b", ready=False))
    assert unready.verdict[:2] == ("False", "MPServersNotReady")
    assert "2/2" in unready.verdict.message
    assert unready.status["readyEnginePods"] == 1
    assert unready.status["readyServers"] == 2


@rule("CTL-94")
@pytest.mark.parametrize("status", [{"ready": True, "state": {"terminated": {}}}, {"state": {"running": {}}}])
def test_a_server_is_ready_only_while_it_runs(status: Document) -> None:
    pod = engine()
    pod["status"]["initContainerStatuses"] = [{"name": "lmcache-mp-server"} | status]
    assert of_pods(pod).status["readyServers"] == 0


# ----------------------------------------------------------------------------------------- NodeLocal


@rule("CTL-W17", "CTL-97", "CTL-98", "CTL-100", "CTL-101")
def test_engines_of_a_node_share_its_server() -> None:
    pods = [engine("e1", node="node-a"), engine("e2", node="node-a"), engine("e3"), node_server("node-a")]
    connector = of_nodes(*pods)
    assert connector.verdict[:2] == ("False", "NodeLocalServerPoolPending")
    assert "1/1" in connector.verdict.message
    assert "2/3" in connector.verdict.message
    shown = connector.status
    assert (shown["desiredServers"], shown["readyServers"]) == (1, 1)
    assert (shown["coveredEnginePods"], shown["uncoveredEnginePods"]) == (2, 1)
    assert reasons(connector) == {
        "e1": "ConnectorReady",
        "e2": "ConnectorReady",
        "e3": "EngineSchedulingPending",
    }
    crowded = of_nodes(*pods, most=1)
    assert crowded.verdict[:2] == ("False", "NodeLocalWorkerCapacityExceeded")
    assert "maxGPUWorkers=1" in crowded.verdict.message
    assert reasons(crowded)["e1"] == "NodeLocalWorkerCapacityExceeded"
    assert crowded.status["coveredEnginePods"] == 0
    assert of_nodes(pods[0], pods[1], pods[3]).verdict[:2] == ("True", "ConnectorReady")


@rule("CTL-101")
def test_engines_without_a_node_wait_for_one() -> None:
    connector = of_nodes(engine("a"), node_server("node-a"))
    assert connector.verdict[:2] == ("False", "NodeLocalServerPoolPending")
    assert connector.status["desiredServers"] == 0
    assert of_nodes().verdict[:2] == ("False", "NoEnginePods")
    assert of_nodes(engine("a", marks=OLD)).verdict[:2] == ("Unknown", "ConnectorInjectionUnverified")


@rule("CTL-98", "CTL-100", "CTL-101")
def test_two_servers_of_a_node_are_one_too_many() -> None:
    servers = (node_server("node-a"), node_server("node-a", name="second"))
    connector = of_nodes(engine("a", node="node-a"), *servers)
    assert connector.verdict[:2] == ("False", "AmbiguousNodeLocalServers")
    assert reasons(connector) == {"a": "AmbiguousNodeLocalServers"}
    assert connector.status["readyServers"] == 0


@rule("CTL-98")
def test_an_engine_of_an_earlier_generation_still_needs_its_node_served() -> None:
    connector = of_nodes(engine("a", node="node-a", marks=OLD), node_server("node-a"))
    assert connector.status["desiredServers"] == 1
    assert connector.status["readyServers"] == 1
    assert connector.status["coveredEnginePods"] == 0


@rule("CTL-101", "CTL-102")
@pytest.mark.parametrize(
    ("message", "is_conflict"),
    [
        ("0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.", True),
        ("HostPort 6555 is taken", True),
        ("a host port is taken", True),
        ("0/1 nodes are available: insufficient memory", False),
    ],
)
@pytest.mark.parametrize("node", ["node-a", "node-b"])
def test_a_server_that_finds_its_ports_taken_is_told_of(
    message: str, node: str, *, is_conflict: bool
) -> None:
    server = node_server(node, ready=False)
    del server["spec"]["nodeName"]
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    server["status"]["conditions"].append(unscheduled)
    connector = of_nodes(engine("a", node="node-a"), server)
    reason = "NodeLocalHostPortConflict" if is_conflict and node == "node-a" else "NodeLocalServerPoolPending"
    assert connector.verdict[:2] == ("False", reason)


def without(path: str) -> Document:
    """A server that lacks one thing it is known by."""
    server = node_server("node-a")
    *parents, last = path.split("|")
    part: Any = server
    for key in parents:
        part = part[int(key)] if key.isdigit() else part[key]
    del part[last]
    return server


@rule("CTL-81", "CTL-97", "CTL-100")
@pytest.mark.parametrize(
    "server",
    [
        pytest.param(without("metadata|labels|inferencecache.io/lmcache-node-server"), id="label"),
        pytest.param(
            without("metadata|labels|inferencecache.io/cache-backend-uid"), id="label of the backend"
        ),
        pytest.param(without("metadata|ownerReferences"), id="owner"),
        pytest.param(without("metadata|annotations|inferencecache.io/node-local-owner"), id="mark"),
        pytest.param(
            without("metadata|annotations|inferencecache.io/node-local-owner-uid"), id="mark of uid"
        ),
        pytest.param(
            without("metadata|annotations|inferencecache.io/node-local-shm-name"), id="mark of memory"
        ),
        pytest.param(node_server("node-a", generation=2), id="generation"),
        pytest.param(without("spec|volumes|0|hostPath"), id="folder"),
        pytest.param(without("spec|containers|0|volumeMounts"), id="mount"),
        pytest.param(without("spec|containers|0|args"), id="argument"),
        pytest.param(change(node_server("node-a"), "metadata.deletionTimestamp", "now"), id="leaving"),
        pytest.param(node_server("node-a", ready=False), id="not ready"),
        pytest.param(change(node_server("node-a"), "spec.nodeName", "node-b"), id="elsewhere"),
        pytest.param(without("status|containerStatuses|0|state|running"), id="not running"),
    ],
)
def test_a_server_that_is_not_this_generations_serves_nobody(server: Document) -> None:
    engine_pod = engine("a", node="node-a")
    assert of_nodes(engine_pod, node_server("node-a")).status["readyServers"] == 1
    connector = of_nodes(engine_pod, server)
    assert connector.status["readyServers"] == 0
    assert reasons(connector) == {"a": "MPServersNotReady"}


@rule("CTL-81", "CTL-97")
@pytest.mark.parametrize("key", ["readOnly", "subPath", "subPathExpr"])
def test_a_server_that_mounts_only_a_part_of_the_memory_serves_nobody(key: str) -> None:
    server = copy.deepcopy(node_server("node-a"))
    server["spec"]["containers"][0]["volumeMounts"][0][key] = True
    assert of_nodes(engine("a", node="node-a"), server).status["readyServers"] == 0


@rule("CTL-99")
@pytest.mark.parametrize(
    ("path", "value"), [("spec.lmCache.nodeLocal.server", None), ("metadata.uid", "u/1")]
)
async def test_a_backend_without_a_server_to_look_for_keeps_what_was_seen(
    path: str, value: str | None
) -> None:
    document = change(of_case(node_local()), path, value)
    with pytest.raises(NotWiredError):
        connector_of(Backend(document), [engine()])
    known = {"type": "ConnectorReady", "status": "True", "reason": "ConnectorReady", "message": ""}
    known["lastTransitionTime"] = "2026-03-01T11:00:00Z"
    connector = {"mode": "Multiprocess", "matchedEnginePods": 3}
    passes = Passes(document | {"status": {"conditions": [known], "connector": connector}}, engine())
    await passes.run()
    assert passes.condition("ConnectorReady") == known
    assert passes.status["connector"] == connector


@rule("CTL-88")
async def test_a_backend_that_has_no_servers_any_more_loses_its_connector() -> None:
    passes = Passes(of_case(pod_local()), engine())
    await passes.run()
    assert "connector" in passes.status
    passes.change("spec", {"runtime": "SGLang", "type": "SGLangHiCache", "hiCache": {"ratio": "2"}})
    await passes.run()
    assert "connector" not in passes.status
    assert "ConnectorReady" not in passes.verdicts
