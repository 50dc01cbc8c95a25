"""The engines' side of a backend with LMCache servers: which engine pods are served [CTL-88..102]."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from inferencecache.controller.backend.engine_pods import (
    active_pods,
    condition_of,
    is_active,
    is_ready,
    is_serving,
    is_stamped,
    is_verified,
    name_of,
    node_of,
    status_of_container,
)
from inferencecache.controller.backend.server_identity import (
    is_of_generation,
    is_server_of,
    shares_memory,
    target_node_of,
)
from inferencecache.controller.backend.verdicts import (
    INJECTION_UNVERIFIED,
)
from inferencecache.controller.injection.mp_server import SERVER_NAME
from inferencecache.controller.injection.node_server import shm_name
from inferencecache.controller.injection.servers import node_local_server
from inferencecache.core.kube.backends import POD_LOCAL, Backend
from inferencecache.core.kube.conditions import Verdict
from inferencecache.core.kube.kinds import Document

_SERVED: Final = "ConnectorReady"
_NO_SERVER: Final = "MPServersNotReady"
_NO_NODE: Final = "EngineSchedulingPending"
_OVER_CAPACITY: Final = "NodeLocalWorkerCapacityExceeded"
_AMBIGUOUS: Final = "AmbiguousNodeLocalServers"
_POOL_PENDING: Final = "NodeLocalServerPoolPending"
_PORT_CONFLICT: Final = "NodeLocalHostPortConflict"
_CONFLICT_WORDS: Final = ("free ports", "hostport", "host port")


class Connector(NamedTuple):
    """`status` is `status.connector`, `verdict` the condition `ConnectorReady`."""

    status: Document
    verdict: Verdict


class _Coverage(NamedTuple):
    pod: Document
    reason: str

    @property
    def is_served(self) -> bool:
        return self.reason == _SERVED


class _Census(NamedTuple):
    """Active engine pods with how each is served, and servers wanted and ready."""

    coverage: list[_Coverage]
    desired: int
    ready: int

    @property
    def served(self) -> int:
        return sum(row.is_served for row in self.coverage)

    @property
    def served_and_ready(self) -> int:
        return sum(row.is_served and is_ready(row.pod) for row in self.coverage)

    @property
    def is_whole(self) -> bool:
        everything = len(self.coverage)
        return self.ready == self.desired and self.served_and_ready == everything


def connector_of(backend: Backend, pods: Sequence[Document]) -> Connector:
    """`pods` are those of the backend's namespace. Raises `NotWiredError` for a backend that no server of a
    node can be told to belong to [CTL-99].
    """
    active = active_pods(backend, pods)
    unverified = [pod for pod in active if not is_verified(backend, pod)]
    if backend.topology == POD_LOCAL:
        census = _pod_local(backend, active)
        verdict = _verdict_of_pods(census)
    else:
        nodes = _Nodes.of(backend, pods, active)
        census = nodes.census(backend, active)
        verdict = nodes.verdict(census)
    if not active:
        verdict = Verdict("False", "NoEnginePods", "no engine pod matches spec.engineSelector")
    elif unverified:
        verified = f"{len(active) - len(unverified)}/{len(active)}"
        message = (
            f"{verified} engine pods were wired by this generation; recreate the others, such as "
            f"{name_of(unverified[0])}"
        )
        verdict = Verdict("Unknown", INJECTION_UNVERIFIED, message)
    return Connector(_status(backend, census), verdict)


def _status(backend: Backend, census: _Census) -> Document:
    matched = len(census.coverage)
    return {
        "mode": "Multiprocess",
        "topology": backend.topology,
        "matchedEnginePods": matched,
        "readyEnginePods": census.served_and_ready,
        "desiredServers": census.desired,
        "readyServers": census.ready,
        "coveredEnginePods": census.served,
        "uncoveredEnginePods": matched - census.served,
        "enginePodCoverage": [_row(coverage) for coverage in census.coverage],
    }


def _row(coverage: _Coverage) -> Document:
    pod = coverage.pod
    node = {"nodeName": node_of(pod)} if node_of(pod) else {}
    facts = {"ready": is_ready(pod), "covered": coverage.is_served, "reason": coverage.reason}
    return {"name": name_of(pod), **node, **facts}


# ------------------------------------------------------------------------------------------ PodLocal


def _pod_local(backend: Backend, active: Sequence[Document]) -> _Census:
    coverage = [_Coverage(pod, _reason_in_pod(backend, pod)) for pod in active]
    return _Census(coverage, desired=len(active), ready=sum(row.is_served for row in coverage))


def _reason_in_pod(backend: Backend, pod: Document) -> str:
    if not is_verified(backend, pod):
        return INJECTION_UNVERIFIED
    return _SERVED if is_serving(status_of_container(pod, SERVER_NAME, init=True)) else _NO_SERVER


def _verdict_of_pods(census: _Census) -> Verdict:
    servers = f"{census.ready}/{census.desired} servers in engine pods are ready"
    if census.is_whole:
        return Verdict("True", _SERVED, servers)
    return Verdict("False", _NO_SERVER, f"{servers}, {census.served_and_ready} of these pods are")


# ----------------------------------------------------------------------------------------- NodeLocal


class _Nodes(NamedTuple):
    """`engines` counts by node the engine pods that were wired for the backend, `ready` the servers that are
    ready there; `blocked` are nodes whose server finds its ports taken.
    """

    engines: Mapping[str, int]
    ready: Mapping[str, int]
    blocked: frozenset[str]
    verified: frozenset[str]
    capacity: int

    @classmethod
    def of(cls, backend: Backend, pods: Sequence[Document], active: Sequence[Document]) -> _Nodes:
        shm_name(backend)  # a uid that makes no name has no servers to look for
        servers = [pod for pod in pods if _counts(backend, pod)]
        targets = [(target_node_of(pod), pod) for pod in servers]
        owned = [pod for pod in active if is_stamped(backend, pod) and node_of(pod)]
        return cls(
            engines=Counter(map(node_of, owned)),
            ready=Counter(node for node, pod in targets if _is_ready_there(pod, node)),
            blocked=frozenset(node for node, pod in targets if _finds_ports_taken(pod)),
            verified=frozenset(node_of(pod) for pod in owned if is_verified(backend, pod)),
            capacity=node_local_server(backend).max_gpu_workers,
        )

    def census(self, backend: Backend, active: Sequence[Document]) -> _Census:
        coverage = [_Coverage(pod, self._reason(backend, pod)) for pod in active]
        ready = sum(self.ready.get(node) == 1 for node in self.engines)
        return _Census(coverage, desired=len(self.engines), ready=ready)

    def _reason(self, backend: Backend, pod: Document) -> str:
        node = node_of(pod)
        if not is_verified(backend, pod):
            return INJECTION_UNVERIFIED
        if not node:
            return _NO_NODE
        if self._is_over_capacity(node):
            return _OVER_CAPACITY
        match self.ready.get(node, 0):
            case 0:
                return _NO_SERVER
            case 1:
                return _SERVED
        return _AMBIGUOUS

    def _is_over_capacity(self, node: str) -> bool:
        return self.engines[node] > self.capacity

    def verdict(self, census: _Census) -> Verdict:
        if not self.engines:
            return Verdict("False", _POOL_PENDING, "no engine pod is on a node yet")
        if conflicts := sorted(self.blocked & self.engines.keys()):
            message = (
                f"the server of node {conflicts[0]} finds its host ports taken; change "
                "spec.lmCache.nodeLocal.server.port or httpPort, or free them"
            )
            return Verdict("False", _PORT_CONFLICT, message)
        if over := sorted(filter(self._is_over_capacity, self.verified)):
            message = (
                f"node {over[0]} has {self.engines[over[0]]} engine pods, above maxGPUWorkers={self.capacity}"
            )
            return Verdict("False", _OVER_CAPACITY, message)
        if several := sorted(node for node in self.engines if self.ready.get(node, 0) > 1):
            message = f"node {several[0]} has {self.ready[several[0]]} servers that are ready"
            return Verdict("False", _AMBIGUOUS, message)
        servers = f"{census.ready}/{census.desired} servers of nodes are ready"
        message = f"{servers}, {census.served}/{len(census.coverage)} engine pods are covered"
        return (
            Verdict("True", _SERVED, message) if census.is_whole else Verdict("False", _POOL_PENDING, message)
        )


def _counts(backend: Backend, pod: Document) -> bool:
    """Whether a pod is a server that engines of this generation can use [CTL-97]."""
    if not is_server_of(backend, pod) or not is_active(pod):
        return False
    return is_of_generation(backend, pod) and shares_memory(backend, pod)


def _is_ready_there(server: Document, node: str) -> bool:
    is_there = bool(node) and node_of(server) == node
    return is_there and is_ready(server) and is_serving(status_of_container(server, SERVER_NAME))


def _finds_ports_taken(server: Document) -> bool:
    """[CTL-102]."""
    scheduled = condition_of(server, "PodScheduled")
    if (scheduled.get("status"), scheduled.get("reason")) != ("False", "Unschedulable"):
        return False
    message = (scheduled.get("message") or "").lower()
    return any(words in message for words in _CONFLICT_WORDS)
