"""Servers of nodes at a real API server; tests play scheduler and kubelet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from inferencecache.controller.operating import Operating
from tests.kube.engines import delete_pod, engine_pod, stored_backend
from tests.kube.objects import stored
from tests.support.backends import change, node_local
from tests.support.engine_pods import PREFIX
from tests.support.kube import ApiServer, Document, KubeClient
from tests.support.nats import NatsServer
from tests.support.operating import operating
from tests.support.waiting import eventually

pytestmark = pytest.mark.kube
WITHIN_S = 45.0
OF_NODE_A = "cache-66570ff05a20"
IDLE = f"{PREFIX}node-local-idle-since"


@pytest.fixture
async def operation(
    operated_server: ApiServer, operator_token: str, nats_server: NatsServer
) -> AsyncIterator[Operating]:
    """A running controller."""
    async with operating(
        operated_server, operator_token, nats_server.url, functional_probe=False
    ) as operation:
        yield operation


class Cluster:
    """A namespace as a scheduler and kubelets would work on it."""

    def __init__(self, kube: KubeClient, namespace: str) -> None:
        self.kube = kube
        self.namespace = namespace

    async def servers(self) -> list[Document]:
        pods = (await self.kube.list_all("Pod", self.namespace)).body["items"]
        return [pod for pod in pods if f"{PREFIX}lmcache-node-server" in pod["metadata"].get("labels", {})]

    async def server(self, **marks: Any) -> Document:
        """The only server, once it has these annotations, or lacks those that are None."""
        found: list[Document] = []

        async def is_there() -> bool:
            found[:] = await self.servers()
            there = found[0]["metadata"]["annotations"] if len(found) == 1 else None
            return there is not None and all(there.get(PREFIX + key) == value for key, value in marks.items())

        await eventually(is_there, within_s=WITHIN_S, what=f"a server with {marks}")
        return found[0]

    async def run(self, pod: Document, node: str) -> None:
        """Bind a server to its node, and say that it runs."""
        name = pod["metadata"]["name"]
        binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}/binding"
        answer = await self.kube.call("POST", path, {"apiVersion": "v1", "kind": "Binding"} | binding)
        assert answer.status == 201, answer.body
        container = {
            "name": "lmcache-mp-server",
            "ready": True,
            "restartCount": 0,
            "image": "i",
            "imageID": "i",
        }
        container["state"] = {"running": {}}
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        answer = await self.kube.set_status(
            "Pod", name, self.namespace, status | {"containerStatuses": [container]}
        )
        assert answer.status == 200, answer.body

    async def backend(self) -> Document:
        return (await self.kube.get("CacheBackend", "cache", self.namespace)).body


@pytest.mark.usefixtures("operation")
@pytest.mark.rule("CTL-W17", "CTL-70", "CTL-73", "CTL-82", "CTL-89", "CTL-98")
async def test_a_server_comes_to_the_node_of_its_engines_and_is_replaced_with_each_generation(
    operated: KubeClient, operated_namespace: str
) -> None:
    cluster = Cluster(operated, operated_namespace)
    backend = await stored_backend(operated, operated_namespace, node_local())
    for name, node in (("e1", "node-a"), ("e2", "node-a"), ("e3", "")):
        await stored(operated, engine_pod(operated_namespace, name, backend, node=node))
    server = await cluster.server(**{"node-local-target-node": "node-a", "node-local-generation": "1"})
    assert server["metadata"]["name"] == OF_NODE_A
    (reference,) = server["metadata"]["ownerReferences"]
    assert (reference["uid"], reference["controller"]) == (backend["metadata"]["uid"], True)
    assert server["spec"]["hostNetwork"]
    assert "nodeName" not in server["spec"]
    await cluster.run(server, "node-a")

    async def is_served() -> bool:
        connector = (await cluster.backend()).get("status", {}).get("connector", {})
        counts = ("desiredServers", "readyServers", "coveredEnginePods", "uncoveredEnginePods")
        return [connector.get(key) for key in counts] == [1, 1, 2, 1]

    await eventually(is_served, within_s=WITHIN_S)
    status = (await cluster.backend())["status"]
    rows = {row["name"]: row["reason"] for row in status["connector"]["enginePodCoverage"]}
    assert rows == {"e1": "ConnectorReady", "e2": "ConnectorReady", "e3": "EngineSchedulingPending"}
    (verdict,) = (each for each in status["conditions"] if each["type"] == "ConnectorReady")
    assert (verdict["status"], verdict["reason"]) == ("False", "NodeLocalServerPoolPending")

    await operated.patch(
        "CacheBackend", "cache", operated_namespace, {"spec": {"lmCache": {"chunkSizeTokens": 512}}}
    )

    async def is_leaving() -> bool:
        return all("deletionTimestamp" in each["metadata"] for each in await cluster.servers())

    await eventually(is_leaving, within_s=WITHIN_S)
    await delete_pod(operated, server)
    replaced = await cluster.server(**{"node-local-generation": "2"})
    arguments = replaced["spec"]["containers"][0]["args"]
    assert arguments[arguments.index("--chunk-size") + 1] == "512"
    assert replaced["metadata"]["name"] == OF_NODE_A


@pytest.mark.usefixtures("operation")
@pytest.mark.rule("CTL-W18", "CTL-83", "CTL-84", "CTL-87")
async def test_a_server_waits_for_engines_to_come_back_and_goes_with_its_topology(
    operated: KubeClient, operated_namespace: str
) -> None:
    cluster = Cluster(operated, operated_namespace)
    backend = await stored_backend(operated, operated_namespace, node_local())
    engine = await stored(operated, engine_pod(operated_namespace, "e1", backend, node="node-a"))
    server = await cluster.server()
    await delete_pod(operated, engine)

    async def is_idle() -> bool:
        return IDLE in (await cluster.server())["metadata"]["annotations"]

    await eventually(is_idle, within_s=WITHIN_S)
    await stored(operated, engine_pod(operated_namespace, "e2", backend, node="node-a"))
    again = await cluster.server(**{"node-local-idle-since": None})
    assert again["metadata"]["uid"] == server["metadata"]["uid"]
    await operated.patch(
        "CacheBackend", "cache", operated_namespace, {"spec": {"type": "SGLangHiCache", "runtime": "SGLang"}}
    )

    async def is_gone() -> bool:
        return await cluster.servers() == []

    await eventually(is_gone, within_s=WITHIN_S)


@pytest.mark.usefixtures("operation")
@pytest.mark.rule("CTL-86", "CTL-83")
async def test_a_pod_in_the_way_is_waited_out_and_an_idle_server_goes_in_the_end(
    operated: KubeClient, operated_namespace: str
) -> None:
    cluster = Cluster(operated, operated_namespace)
    at_once = change(node_local(), "spec.lmCache.nodeLocal.idleRetentionSeconds", 0)
    in_the_way = change(engine_pod(operated_namespace, OF_NODE_A), "metadata.labels", {})
    in_the_way = await stored(operated, in_the_way)
    backend = await stored_backend(operated, operated_namespace, at_once)
    engine = await stored(operated, engine_pod(operated_namespace, "e1", backend, node="node-a"))

    async def is_tried() -> bool:
        return bool((await cluster.backend()).get("status", {}).get("matchedEnginePods") == 1)

    await eventually(is_tried, within_s=WITHIN_S)
    assert await cluster.servers() == []
    await delete_pod(operated, in_the_way)
    await cluster.server()
    await delete_pod(operated, engine)

    async def is_gone() -> bool:
        return await cluster.servers() == []

    await eventually(is_gone, within_s=WITHIN_S)
