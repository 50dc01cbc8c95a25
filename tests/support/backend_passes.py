"""A backend that the reconciler passes over, in a played cluster whose time tests tell.

The backend is `ns-a/cache` with uid `u1`; its selector is `{inferencecache.io/cache-domain: d}`.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from inferencecache.controller.backend.drafts import StatusDraft
from inferencecache.controller.backend.probe_gate import ProbeAnswer, ProbeFailedError
from inferencecache.controller.backend.reconciler import BackendReconciler
from inferencecache.core.kube.backends import Backend
from inferencecache.core.kube.kinds import (
    CACHE_BACKENDS,
    DEPLOYMENTS,
    PODS,
    SERVICES,
    Document,
    ObjectKey,
)
from inferencecache.schemas.requests import ProbeRequest, ProbeResult
from tests.support.backends import DOMAIN, REDIS, change, pod_local
from tests.support.played_kube import PlayedKube

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
KEY = ObjectKey("ns-a", "cache")
MARK = "inferencecache.io/"
ENDPOINT = "cache.ns-a.svc.cluster.local:6379"
ALL_OK = ProbeResult("r", "ns-a/cache", "ok", "ok", "skipped")


def at(minutes: int = 0, seconds: float = 0) -> datetime:
    """12:00:00 plus an offset."""
    return NOON + timedelta(minutes=minutes, seconds=seconds)


def of_case(document: Document, generation: int = 1) -> Document:
    """A backend as the worked cases have it: `ns-a/cache`, uid `u1`."""
    placed = copy.deepcopy(document)
    placed["metadata"] |= {"namespace": "ns-a", "name": "cache", "uid": "u1", "generation": generation}
    if "engineSelector" in placed["spec"]:
        placed["spec"]["engineSelector"] = {"matchLabels": {DOMAIN: "d"}}
    return placed


def managed(**redis: Any) -> Document:
    """A PodLocal backend with a managed Redis."""
    storage = REDIS | ({"redis": redis} if redis else {})
    return of_case(change(pod_local(), "spec.remoteStorage", storage))


def external(endpoint: str) -> Document:
    """A PodLocal backend with somebody else's Redis."""
    return of_case(
        change(
            pod_local(),
            "spec.remoteStorage",
            {"provider": "Redis", "ownership": "External", "endpoint": endpoint},
        )
    )


def stamps(uid: str = "u1", generation: int = 1) -> Document:
    """Marks of a pod that was wired for the backend."""
    return {
        f"{MARK}injected-by": "ns-a/cache",
        f"{MARK}injected-by-uid": uid,
        f"{MARK}injected-generation": str(generation),
    }


def engine(
    name: str = "e1",
    *,
    node: str = "",
    ready: bool = True,
    served: bool = True,
    marks: Document | None = None,
    labels: Document | None = None,
    init: Sequence[Document] = (),
    init_statuses: Sequence[Document] = (),
    statuses: Sequence[Document] = (),
    containers: Sequence[str] = ("vllm",),
    phase: str = "Running",
) -> Document:
    """An engine's pod as a kubelet reports it; verified and with a running server unless told otherwise."""
    server = {"name": "lmcache-mp-server", "ready": served, "state": {"running": {}} if served else {}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "ns-a",
            "labels": {DOMAIN: "d"} if labels is None else labels,
            "annotations": stamps() if marks is None else marks,
        },
        "spec": {
            "containers": [{"name": each} for each in containers],
            "initContainers": list(init),
            **({"nodeName": node} if node else {}),
        },
        "status": {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "initContainerStatuses": [server, *init_statuses],
            "containerStatuses": list(statuses),
        },
    }


def checked(name: str = "e1", ended: Document | None = None, *, strict: bool = False) -> Document:
    """An engine's pod with a kernel check, which ended like this or is running."""
    env = [{"name": "KERNEL_CHECK_STRICT", "value": "1" if strict else "0"}]
    state = {"running": {}} if ended is None else {"terminated": ended}
    return engine(
        name,
        init=[{"name": "lmcache-kernel-check", "env": env}],
        init_statuses=[{"name": "lmcache-kernel-check", "state": state}],
    )


def node_server(node: str, *, ready: bool = True, generation: int = 1, name: str = "") -> Document:
    """The server of a node, as the controller makes it and a kubelet runs it."""
    shm = "lmcache_l1_pool_inferencecache_u1"
    digest = hashlib.sha256(node.encode()).hexdigest()[:12]
    folder = {"path": "/dev/shm/inference-cache/u1", "type": "DirectoryOrCreate"}
    container = {
        "name": "lmcache-mp-server",
        "args": ["server", "--shm-name", shm],
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name or f"cache-{digest}",
            "namespace": "ns-a",
            "labels": {
                "app.kubernetes.io/name": "lmcache-mp-server",
                "app.kubernetes.io/managed-by": "inference-cache-controller",
                f"{MARK}lmcache-node-server": "true",
                f"{MARK}cache-backend-uid": "u1",
                f"{MARK}lmcache-mp-metrics": "true",
            },
            "annotations": {
                f"{MARK}node-local-owner": "ns-a/cache",
                f"{MARK}node-local-owner-uid": "u1",
                f"{MARK}node-local-generation": str(generation),
                f"{MARK}node-local-target-node": node,
                f"{MARK}node-local-shm-name": shm,
            },
            "ownerReferences": [owner()],
        },
        "spec": {
            "nodeName": node,
            "containers": [container],
            "volumes": [{"name": "shm", "hostPath": folder}],
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "containerStatuses": [{"name": "lmcache-mp-server", "ready": ready, "state": {"running": {}}}],
        },
    }


def owner(uid: str = "u1") -> Document:
    """The reference that makes the backend an object's controller."""
    return {
        "apiVersion": "inferencecache.io/v1alpha1",
        "kind": "CacheBackend",
        "name": "cache",
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


class Passes:
    """A played cluster with one backend. `answers` are what probes bring, the last of them for good; without
    any, probing is off.
    """

    def __init__(
        self, backend: Document, *pods: Document, answers: Sequence[ProbeAnswer] | None = None
    ) -> None:
        self.kube = PlayedKube()
        self.kube.put(CACHE_BACKENDS, backend)
        for pod in pods:
            self.kube.put(PODS, pod)
        self.now = NOON
        self.answers = list(answers or ())
        self.asked: list[ProbeRequest] = []
        self.churns = False
        self.server_failure: Exception | None = None
        self.reconciler = BackendReconciler(
            self.kube,
            ask=None if answers is None else self._ask,
            keep_servers=self._keep_servers,
            count_engines=self._count_engines,
            clock=lambda: self.now,
        )

    async def run(self, now: datetime | None = None) -> float | None:
        """One pass, at that time; when the next is wanted."""
        self.now = now or self.now
        return await self.reconciler.reconcile(KEY)

    async def settle(self, passes: int = 2) -> None:
        """Passes at one time, since `Ready` follows what the one before learned of the connector."""
        for _ in range(passes):
            await self.run()

    # -- what others do ------------------------------------------------------------------------------

    def change(self, path: str, value: Any) -> None:
        """A change of the backend by its author; one of the spec is a new generation."""
        changed = change(self.backend, path, value)
        if changed["spec"] != self.backend["spec"]:
            changed["metadata"]["generation"] += 1
        self.kube.put(CACHE_BACKENDS, changed)

    def annotate(self, **marks: str) -> None:
        """Annotations of the backend, by the name after the slash with underscores."""
        self.change("metadata.annotations", {MARK + key.replace("_", "-"): v for key, v in marks.items()})

    def observe_event(self, at: str) -> None:
        """The aggregate's projection tells of a first event."""
        self.change("status.indexParticipation", {"prefixCount": 1, "lastEventAt": at})

    def put_pods(self, *pods: Document) -> None:
        for pod in pods:
            self.kube.put(PODS, pod)

    def roll_out(self, *, updated: int = 1, available: int = 1) -> None:
        """The Deployment's own controller reports."""
        status = {"updatedReplicas": updated, "availableReplicas": available}
        status["observedGeneration"] = self.deployment["metadata"]["generation"]
        self.kube.put(DEPLOYMENTS, self.deployment | {"status": status})

    # -- what is stored ------------------------------------------------------------------------------

    @property
    def backend(self) -> Document:
        stored = self.kube.stored(CACHE_BACKENDS, "cache", "ns-a")
        assert stored is not None
        return stored

    @property
    def status(self) -> Document:
        found: Document = self.backend.get("status", {})
        return found

    @property
    def deployment(self) -> Document:
        stored = self.kube.stored(DEPLOYMENTS, "cache", "ns-a")
        assert stored is not None
        return stored

    @property
    def service(self) -> Document:
        stored = self.kube.stored(SERVICES, "cache", "ns-a")
        assert stored is not None
        return stored

    def condition(self, type_: str) -> Document:
        """Empty without it."""
        found = (each for each in self.status.get("conditions", ()) if each["type"] == type_)
        return next(found, {})

    @property
    def verdicts(self) -> dict[str, str]:
        """All conditions as `Status/Reason`."""
        conditions = self.status.get("conditions", ())
        return {each["type"]: f"{each['status']}/{each['reason']}" for each in conditions}

    @property
    def events(self) -> list[str]:
        """Reasons of the Events so far."""
        return [reason for _, reason in self.kube.events()]

    # -- what the reconciler is given ----------------------------------------------------------------

    async def _ask(self, request: ProbeRequest) -> ProbeAnswer:
        self.asked.append(request)
        assert self.answers, "no probe was expected"
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    async def _keep_servers(self, _: Backend, __: object, ___: datetime) -> None:
        if self.server_failure is not None:
            raise self.server_failure

    def _count_engines(self, _: Backend, __: object, ___: object, ____: StatusDraft) -> bool:
        return self.churns


NO_ANSWER = ProbeFailedError("no answer within 5 s")
