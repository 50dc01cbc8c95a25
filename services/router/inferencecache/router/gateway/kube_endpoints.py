"""Endpoints from Kubernetes: what the objects say (pure), and the following of them.

A pod is an endpoint by its address, and a replica by its name, as sidecars report it; its uid tells it
from a successor of the same name or address. Where a pool has several target ports, each serves one
data-parallel rank of a pod, in their order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from inferencecache.core.gateway import Endpoint, EndpointId
from inferencecache.core.kube.access import access_to_cluster
from inferencecache.core.kube.api import KubeApi
from inferencecache.core.kube.cluster import Cluster
from inferencecache.core.kube.following import Objects, follow
from inferencecache.core.kube.kinds import ENDPOINT_SLICES, INFERENCE_POOLS, PODS, Document, ObjectKey
from inferencecache.core.service import get_logger
from inferencecache.router.gateway.sources import Tell
from inferencecache.schemas.ids import ReplicaId

SERVICE_LABEL: Final = "kubernetes.io/service-name"

log = get_logger("endpoints")


def endpoints_of_slices(slices: Iterable[Document], port: str = "") -> tuple[Endpoint, ...]:
    """Endpoints of a Service that are pods; `port` is a name or number, empty for the first one."""
    return tuple(endpoint for each in slices for endpoint in _of_slice(each, port))


def _of_slice(document: Document, port: str) -> Iterator[Endpoint]:
    ports = document.get("ports") or ()
    # One without a number stands for all there are, which says nothing of where an engine listens.
    numbered = [each for each in ports if each.get("port") is not None]
    numbers = [each["port"] for each in numbered if port in ("", each.get("name"), str(each["port"]))]
    if not numbers or document.get("addressType") not in ("IPv4", "IPv6"):
        return
    for each in document.get("endpoints") or ():
        target = each.get("targetRef") or {}
        conditions = each.get("conditions") or {}
        # Absent means true; what terminates still serves what it has and takes no more.
        is_ready = conditions.get("ready") is not False and not conditions.get("terminating")
        if target.get("kind") != "Pod":
            continue
        for address in (each.get("addresses") or ())[:1]:
            replica = ReplicaId(target.get("name") or "")
            yield Endpoint(
                EndpointId(_joined(address, numbers[0]), replica, target.get("uid") or ""), is_ready
            )


def endpoints_of_pool(pool: Document | None, pods: Iterable[Document]) -> tuple[Endpoint, ...]:
    """Endpoints of an InferencePool: its pods at each of its target ports."""
    if pool is None:
        return ()
    ports = [each["number"] for each in pool["spec"].get("targetPorts") or ()]
    return tuple(endpoint for pod in pods for endpoint in _of_pod(pod, ports))


def _of_pod(pod: Document, ports: list[int]) -> Iterator[Endpoint]:
    metadata, status = pod["metadata"], pod.get("status") or {}
    ip = status.get("podIP")
    if not ip:
        return
    conditions = {each.get("type"): each.get("status") for each in status.get("conditions") or ()}
    is_ready = conditions.get("Ready") == "True" and not metadata.get("deletionTimestamp")
    for rank, port in enumerate(ports):
        name = metadata["name"] if len(ports) == 1 else f"{metadata['name']}@dp{rank}"
        yield Endpoint(EndpointId(_joined(ip, port), ReplicaId(name), metadata.get("uid") or ""), is_ready)


def selector_of(pool: Document | None) -> str:
    """A pool's selector as the API takes it; empty when it selects nothing."""
    labels: dict[str, Any] = {} if pool is None else pool["spec"].get("selector", {}).get("matchLabels") or {}
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))


def _joined(ip: str, port: int) -> str:
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


class ServiceEndpoints:
    """The pods behind `namespace/name` or `namespace/name:port`, a Service with a selector."""

    def __init__(self, service: str, kubeconfig: Path | None) -> None:
        self._namespace, _, name = service.partition("/")
        self._name, _, self._port = name.partition(":")
        self._access = access_to_cluster(kubeconfig)

    async def run(self, tell: Tell) -> None:
        def changed(slices: Objects) -> None:
            tell(endpoints_of_slices(slices.values(), self._port))

        async with Cluster(self._access) as cluster:
            labels = f"{SERVICE_LABEL}={self._name}"
            await follow(KubeApi(cluster), ENDPOINT_SLICES, self._namespace, changed, labels=labels)


class PoolEndpoints:
    """The pods that the InferencePool `namespace/name` selects."""

    def __init__(self, pool: str, kubeconfig: Path | None) -> None:
        self._key = ObjectKey(*pool.split("/", 1))
        self._access = access_to_cluster(kubeconfig)
        self._begin()

    def _begin(self) -> None:
        self._pool: Document | None = None
        self._pods: Objects = {}
        self._following: asyncio.Task[None] | None = None

    async def run(self, tell: Tell) -> None:
        self._begin()
        async with Cluster(self._access) as cluster, asyncio.TaskGroup() as group:
            api = KubeApi(cluster)

            def pods_changed(pods: Objects) -> None:
                self._pods = pods
                tell(endpoints_of_pool(self._pool, pods.values()))

            def pools_changed(pools: Objects) -> None:
                before, self._pool = self._pool, pools.get(self._key)
                selector = selector_of(self._pool)
                if not selector:
                    log.warning("pool_selects_nothing", pool=str(self._key))
                if before is not None and selector == selector_of(before):
                    pods_changed(self._pods)
                    return
                if self._following is not None:
                    self._following.cancel()
                if not selector:
                    pods_changed({})
                    return
                pods = follow(api, PODS, self._key.namespace, pods_changed, labels=selector)
                self._following = group.create_task(pods)

            await follow(api, INFERENCE_POOLS, self._key.namespace, pools_changed)
