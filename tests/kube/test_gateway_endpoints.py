"""Endpoints of Services and inference pools, followed at a real API server."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from inferencecache.core.gateway import Endpoint
from inferencecache.router.gateway.kube_endpoints import PoolEndpoints, ServiceEndpoints
from tests.kube.test_overlays import foreign_kind
from tests.support.endpoints import endpoint, following
from tests.support.kube import ApiServer, Document, KubeClient
from tests.support.waiting import eventually

pytestmark = [pytest.mark.kube, pytest.mark.timeout(120)]

GROUP = "inference.networking.k8s.io"
SELECTED = {"app": "llama"}
FIRST_S = 10.0
"""For the first listing; every later change is to be told within a second."""


def slice_of(namespace: str, *endpoints: Document) -> Document:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "engines-1",
            "namespace": namespace,
            "labels": {"kubernetes.io/service-name": "engines"},
        },
        "addressType": "IPv4",
        "ports": [{"name": "metrics", "port": 9000}, {"name": "http", "port": 8000}],
        "endpoints": list(endpoints),
    }


def slice_entry(ip: str, pod: str, uid: str, **conditions: bool) -> Document:
    target = {"kind": "Pod", "name": pod, "uid": uid}
    return {"addresses": [ip], "conditions": conditions, "targetRef": target}


async def make_pod(kube: KubeClient, namespace: str, name: str, ip: str, **labels: str) -> str:
    """A pod that runs and is ready; answers its uid."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels or SELECTED},
        "spec": {
            "containers": [{"name": "engine", "image": "engine"}],
            "automountServiceAccountToken": False,
        },
    }
    made = await kube.create(pod)
    assert made.status == 201, made
    await set_ready(kube, namespace, name, ip)
    uid: str = made.body["metadata"]["uid"]
    return uid


async def set_ready(kube: KubeClient, namespace: str, name: str, ip: str, *, ready: bool = True) -> None:
    conditions = [{"type": "Ready", "status": str(ready)}]
    status = {"podIP": ip, "podIPs": [{"ip": ip}], "phase": "Running", "conditions": conditions}
    assert (await kube.set_status("Pod", name, namespace, status)).status == 200


def protected_kind(group: str, kind: str) -> Document:
    """As `foreign_kind`, in a group whose kinds need somebody's approval."""
    definition = foreign_kind(group, kind, "v1")
    definition["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, for tests"}
    return definition


@pytest.fixture
async def pools(kube: KubeClient) -> None:
    """The kind InferencePool, without the rules that its own definition has."""
    definition = protected_kind(GROUP, "InferencePool")
    answer = await kube.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    assert answer.status in (201, 409), answer

    async def is_served() -> bool:
        return (await kube.call("GET", f"/apis/{GROUP}/v1/inferencepools")).status == 200

    await eventually(is_served, within_s=FIRST_S)


def pool(namespace: str, *ports: int, **labels: str) -> Document:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "InferencePool",
        "metadata": {"name": "llama", "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": labels or SELECTED},
            "targetPorts": [{"number": port} for port in ports],
            "endpointPickerRef": {"name": "inference-cache-gateway", "port": {"number": 9002}},
        },
    }


async def change_pool(kube: KubeClient, namespace: str, spec: dict[str, Any]) -> None:
    path = f"/apis/{GROUP}/v1/namespaces/{namespace}/inferencepools/llama"
    headers = {"Content-Type": "application/merge-patch+json"}
    assert (await kube.call("PATCH", path, {"spec": spec}, headers=headers)).status == 200


async def make_pool(kube: KubeClient, namespace: str, document: Document) -> None:
    path = f"/apis/{GROUP}/v1/namespaces/{namespace}/inferencepools"
    assert (await kube.call("POST", path, document)).status == 201


async def test_a_service_is_the_pods_of_its_slices(
    api_server: ApiServer, kube: KubeClient, namespace: str
) -> None:
    entries = [
        slice_entry("10.0.0.1", "engine-0", "u0", ready=True),
        slice_entry("10.0.0.2", "engine-1", "u1", ready=False),
        slice_entry("10.0.0.3", "engine-2", "u2", ready=True, serving=True, terminating=True),
    ]
    made = await kube.create(slice_of(namespace, *entries))
    assert made.status == 201
    first = endpoint("10.0.0.1:8000", "engine-0", "u0")
    others = [
        endpoint("10.0.0.2:8000", "engine-1", "u1", ready=False),
        endpoint("10.0.0.3:8000", "engine-2", "u2", ready=False),
    ]
    source = ServiceEndpoints(f"{namespace}/engines:http", api_server.kubeconfig)
    async with following(source) as told:
        await told.are(first, *others, within_s=FIRST_S)
        taken_over = slice_entry("10.0.0.1", "engine-9", "u9", ready=True)
        answer = await kube.patch("EndpointSlice", "engines-1", namespace, {"endpoints": [taken_over]})
        assert answer.status == 200
        await told.are(endpoint("10.0.0.1:8000", "engine-9", "u9"))
        await kube.delete("EndpointSlice", "engines-1", namespace)
        await told.are()


@pytest.mark.usefixtures("pools")
async def test_a_pool_is_the_pods_that_it_selects_at_each_of_its_ports(
    api_server: ApiServer, kube: KubeClient, namespace: str
) -> None:
    async with following(PoolEndpoints(f"{namespace}/llama", api_server.kubeconfig)) as told:
        await told.are(within_s=FIRST_S)
        uid = await make_pod(kube, namespace, "engine-0", "10.0.1.1")
        await make_pod(kube, namespace, "other", "10.0.1.9", app="other")
        await make_pool(kube, namespace, pool(namespace, 8000))

        def at(port: int, replica: str = "engine-0", *, ready: bool = True) -> Endpoint:
            return endpoint(f"10.0.1.1:{port}", replica, uid, ready=ready)

        await told.are(at(8000))
        await set_ready(kube, namespace, "engine-0", "10.0.1.1", ready=False)
        await told.are(at(8000, ready=False))
        await set_ready(kube, namespace, "engine-0", "10.0.1.1")
        await change_pool(kube, namespace, {"targetPorts": [{"number": 8000}, {"number": 8001}]})
        await told.are(at(8000, "engine-0@dp0"), at(8001, "engine-0@dp1"))
        await change_pool(kube, namespace, {"selector": {"matchLabels": {"app": "nobody"}}})
        await told.are()


@pytest.mark.usefixtures("pools")
async def test_a_pod_of_the_same_name_and_address_is_another_endpoint(
    api_server: ApiServer, kube: KubeClient, namespace: str
) -> None:
    await make_pool(kube, namespace, pool(namespace, 8000))
    old = await make_pod(kube, namespace, "engine-0", "10.0.2.1")
    async with following(PoolEndpoints(f"{namespace}/llama", api_server.kubeconfig)) as told:
        await told.are(endpoint("10.0.2.1:8000", "engine-0", old), within_s=FIRST_S)
        path = f"/api/v1/namespaces/{namespace}/pods/engine-0"
        assert (await kube.call("DELETE", path, {"gracePeriodSeconds": 0})).status == 200
        await told.are()
        new = await make_pod(kube, namespace, "engine-0", "10.0.2.1")
        assert new != old
        await told.are(endpoint("10.0.2.1:8000", "engine-0", new))


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
async def test_what_was_told_last_holds_while_the_api_is_away(
    api_server: ApiServer, kube: KubeClient, namespace: str
) -> None:
    """asyncio may leave a socket behind when TLS is given up in the very moment that it begins; it is
    collected here, where that is no fault.
    """
    entry = slice_entry("10.0.3.1", "engine-0", "u0", ready=True)
    assert (await kube.create(slice_of(namespace, entry))).status == 201
    known = endpoint("10.0.3.1:8000", "engine-0", "u0")
    async with following(ServiceEndpoints(f"{namespace}/engines:8000", api_server.kubeconfig)) as told:
        await told.are(known, within_s=FIRST_S)
        api_server.kill_api()
        try:
            assert told.endpoints == (known,)
        finally:
            api_server.restart_api()
        await kube.delete("EndpointSlice", "engines-1", namespace)
        await told.are(within_s=FIRST_S)
    gc.collect()
