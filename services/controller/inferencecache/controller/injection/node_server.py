"""The server of a node, which the controller runs and engines of that node wait for [ADM-263..270].

It goes where its engines are: bound to their node by an affinity, so that the scheduler sees when its
ports are taken, and tolerating what they tolerate.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final

from inferencecache.controller.admission.reviews import Document
from inferencecache.controller.injection.bindings import Binding
from inferencecache.controller.injection.environment import from_field
from inferencecache.controller.injection.mounts import SHARED_MEMORY
from inferencecache.controller.injection.mp_server import (
    NODE_IP,
    SECURITY_CONTEXT,
    SERVER_NAME,
    gibibytes_text,
    server_environment,
    server_ports,
    server_probes,
)
from inferencecache.controller.injection.refusals import NotWiredError
from inferencecache.controller.injection.servers import node_local_server
from inferencecache.core.kube.backends import Backend, section
from inferencecache.core.kube.marks import METRICS_LABEL

SHM_VOLUME: Final = "lmcache-node-shm"
NODE_SERVER_LABEL: Final = "inferencecache.io/lmcache-node-server"
BACKEND_UID_LABEL: Final = "inferencecache.io/cache-backend-uid"
OWNER_MARK: Final = "inferencecache.io/node-local-owner"
OWNER_UID_MARK: Final = "inferencecache.io/node-local-owner-uid"
GENERATION_MARK: Final = "inferencecache.io/node-local-generation"
TARGET_NODE_MARK: Final = "inferencecache.io/node-local-target-node"
SHM_NAME_MARK: Final = "inferencecache.io/node-local-shm-name"

_UID: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]+", re.ASCII)
_SHM_PREFIX: Final = "lmcache_l1_pool_inferencecache_"
_LONGEST_SHM_NAME: Final = 255
_LONGEST_POD_NAME: Final = 253
_GRACE_S: Final = 30


def instance_id(backend: Backend) -> str:
    """One life of one generation of a backend [ADM-192]."""
    return f"{backend.namespace}/{backend.name}@{backend.uid}#{backend.generation}"


def shm_name(backend: Backend) -> str:
    """The shared-memory object: the same for every generation and on every node [ADM-191]."""
    return _SHM_PREFIX + _checked_uid(backend)


def shm_volume(backend: Backend) -> Document:
    """The node's folder that is `/dev/shm` of its server and its engines [ADM-190]."""
    folder = {"path": f"{SHARED_MEMORY}/inference-cache/{_checked_uid(backend)}", "type": "DirectoryOrCreate"}
    return {"name": SHM_VOLUME, "hostPath": folder}


def _checked_uid(backend: Backend) -> str:
    """The uid becomes part of a path."""
    if not _UID.fullmatch(backend.uid) or len(_SHM_PREFIX) + len(backend.uid) > _LONGEST_SHM_NAME:
        raise NotWiredError(f"the backend's uid {backend.uid!r} cannot be part of a path")
    return backend.uid


def node_server_name(backend: Backend, node: str) -> str:
    """The pod's name, one a backend and node [ADM-263]."""
    digest = hashlib.sha256(node.encode()).hexdigest()[:12]
    return f"{backend.name[: _LONGEST_POD_NAME - 1 - len(digest)].rstrip('. -')}-{digest}"


def node_server_pod(backend: Backend, engine: Document, binding: Binding | None) -> Document:
    """The server's pod on the node of `engine`, a scheduled pod of the backend.

    Raises `NotWiredError` for settings that no server can run with [ADM-270].
    """
    engine_spec = engine.get("spec") or {}
    node = engine_spec.get("nodeName")
    if not node:
        raise NotWiredError("the engine has no node yet")
    spec = {
        "hostNetwork": True,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Always",
        "affinity": _affinity(node),
        **_scheduling(engine_spec, section(backend.lm_cache, "nodeLocal", "scheduling") or {}),
        "containers": [_container(backend, binding)],
        "volumes": [shm_volume(backend)],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _metadata(backend, node), "spec": spec}


def _metadata(backend: Backend, node: str) -> Document:
    return {
        "name": node_server_name(backend, node),
        "namespace": backend.namespace,
        "labels": {
            "app.kubernetes.io/name": SERVER_NAME,
            "app.kubernetes.io/managed-by": "inference-cache-controller",
            NODE_SERVER_LABEL: "true",
            BACKEND_UID_LABEL: backend.uid,
            METRICS_LABEL: "true",
        },
        "annotations": {
            OWNER_MARK: f"{backend.namespace}/{backend.name}",
            OWNER_UID_MARK: backend.uid,
            GENERATION_MARK: str(backend.generation),
            TARGET_NODE_MARK: node,
            SHM_NAME_MARK: shm_name(backend),
        },
    }


def _affinity(node: str) -> Document:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"nodeAffinity": required}


def _scheduling(engine: Document, own: Document) -> Document:
    """As the engine's pod is scheduled, with what the backend adds or replaces [ADM-267]."""
    chosen: Document = {
        "schedulerName": own.get("schedulerName") or engine.get("schedulerName") or "default-scheduler",
        "terminationGracePeriodSeconds": own.get("terminationGracePeriodSeconds", _GRACE_S),
        "tolerations": _united(engine.get("tolerations"), own.get("tolerations")),
        "imagePullSecrets": _united(engine.get("imagePullSecrets"), own.get("imagePullSecrets")),
        "serviceAccountName": own.get("serviceAccountName"),
        "securityContext": own.get("securityContext"),
    }
    for key in ("priorityClassName", "runtimeClassName"):
        chosen[key] = own.get(key) or engine.get(key)
    return {key: value for key, value in chosen.items() if value not in (None, "", [])}


def _united(*lists: list[Any] | None) -> list[Any]:
    united: list[Any] = []
    for items in lists:
        united += [item for item in items or () if item not in united]
    return united


def _container(backend: Backend, binding: Binding | None) -> Document:
    settings = node_local_server(backend)
    ports = server_ports(settings.port, settings.http_port)
    return {
        "name": SERVER_NAME,
        "image": settings.image.strip(),
        "imagePullPolicy": "IfNotPresent",
        "command": ["lmcache"],
        "args": _arguments(backend, binding),
        "env": server_environment(binding, from_field(NODE_IP, "status.hostIP")),
        "ports": [port | {"hostPort": port["containerPort"]} for port in ports],
        **server_probes(),
        "securityContext": SECURITY_CONTEXT,
        "volumeMounts": [{"name": SHM_VOLUME, "mountPath": SHARED_MEMORY}],
        "resources": (backend.server or {})["resources"],
    }


def _arguments(backend: Backend, binding: Binding | None) -> list[str]:
    settings = node_local_server(backend)
    arguments = [
        "server",
        *("--instance-id", instance_id(backend)),
        *("--shm-name", shm_name(backend)),
        *("--host", f"$({NODE_IP})"),
        *("--port", str(settings.port)),
        *("--http-host", f"$({NODE_IP})"),
        *("--http-port", str(settings.http_port)),
        *("--chunk-size", str(backend.chunk_tokens)),
        *("--l1-size-gb", gibibytes_text(settings.l1_capacity)),
        *("--eviction-policy", "LRU"),
        *("--max-gpu-workers", str(settings.max_gpu_workers)),
        *("--max-cpu-workers", str(settings.max_cpu_workers)),
    ]
    return arguments if binding is None else [*arguments, "--l2-adapter", binding.adapter_text]
