"""LMCache with a server in the engine's own pod: a native sidecar that shares the engine's memory.

The sidecar is an init container that keeps running, so it is ready before the engine starts and ends
after it. Engine and server see the same `/dev/shm` [ADM-174..189].
"""

from __future__ import annotations

from typing import Final

from inferencecache.controller.admission.reviews import Document
from inferencecache.controller.injection.bindings import Binding
from inferencecache.controller.injection.lmcache_client import CONFIG_FOLDERS, config_path
from inferencecache.controller.injection.mounts import SHARED_MEMORY, add_config_volume, mount, mount_at
from inferencecache.controller.injection.mp_server import (
    SECURITY_CONTEXT,
    SERVER_MARKER,
    SERVER_NAME,
    gibibytes_text,
    memory_budget,
    quantity_text,
    server_environment,
    server_ports,
    server_probes,
    size_of,
)
from inferencecache.controller.injection.pods import find, find_own, parts, put
from inferencecache.controller.injection.refusals import NotWiredError
from inferencecache.controller.injection.servers import pod_local_server
from inferencecache.core.kube.backends import POD_LOCAL, Backend

SHM_VOLUME: Final = "lmcache-mp-shm"
CONFIG_VOLUME: Final = "lmcache-mp-config"
_HTTP_PORT: Final = 8080

_WRITE_CONFIG: Final = (
    "set -eu\n"
    'printf \'chunk_size: %s\\nmp_host: "127.0.0.1"\\nmp_port: %s\\n\' "$2" "$3" > "$1"\n'
    "shift 3\n"
    'exec "$@"\n'
)
"""Writes the client file from its arguments and becomes the rest of them, so that no value is ever part
of a script [ADM-179].
"""


def add_server(pod: Document, engine: Document, backend: Backend, binding: Binding | None) -> None:
    """Put the server into the pod, or the current one in the place of an older one of ours.

    Raises `NotWiredError` when something of the pod is in its way.
    """
    settings = pod_local_server(backend)
    ours = find_own(pod, SERVER_NAME, SERVER_MARKER) is not None
    is_sglang = backend.runtime_id == "sglang"
    folder = CONFIG_FOLDERS[POD_LOCAL]
    if is_sglang:
        add_config_volume(pod, engine, CONFIG_VOLUME, folder, ours=ours)
    mounts = [_share_memory(pod, engine, memory_budget(settings.l1_capacity), ours=ours)]
    if is_sglang:
        mounts.append({"name": CONFIG_VOLUME, "mountPath": folder})
    server: Document = {
        "name": SERVER_NAME,
        "image": settings.image.strip(),
        "imagePullPolicy": "IfNotPresent",
        "restartPolicy": "Always",
        **_command(backend, binding),
        "env": server_environment(binding),
        "ports": server_ports(settings.port, _HTTP_PORT),
        **server_probes(),
        "securityContext": SECURITY_CONTEXT,
        "volumeMounts": mounts,
        "resources": (backend.server or {})["resources"],
    }
    put(pod["spec"], "initContainers", server)


def _command(backend: Backend, binding: Binding | None) -> Document:
    arguments = server_arguments(backend, binding)
    if backend.runtime_id == "vllm":
        return {"command": ["lmcache"], "args": arguments}
    values = [config_path(POD_LOCAL), str(backend.chunk_tokens), str(pod_local_server(backend).port)]
    script = [_WRITE_CONFIG, "inference-cache-lmcache-config", *values]
    return {"command": ["/bin/sh", "-c"], "args": [*script, "lmcache", *arguments]}


def server_arguments(backend: Backend, binding: Binding | None) -> list[str]:
    """Of `lmcache`, each one entry [ADM-175]."""
    settings = pod_local_server(backend)
    arguments = [
        "server",
        *("--host", "127.0.0.1"),
        *("--port", str(settings.port)),
        *("--http-host", "0.0.0.0"),  # noqa: S104 - probes come from the node
        *("--http-port", str(_HTTP_PORT)),
        *("--chunk-size", str(backend.chunk_tokens)),
        *("--l1-size-gb", gibibytes_text(settings.l1_capacity)),
        *("--eviction-policy", "LRU"),
        *("--max-workers", str(settings.max_workers)),
    ]
    return arguments if binding is None else [*arguments, "--l2-adapter", binding.adapter_text]


def _share_memory(pod: Document, engine: Document, size: int, *, ours: bool) -> Document:
    """The server's mount of what the engine has at `/dev/shm`, or now gets there [ADM-185, ADM-186]."""
    there = mount_at(engine, SHARED_MEMORY)
    if there is not None and not (ours and there["name"] == SHM_VOLUME):
        _check_own_memory(pod, there, size)
        shared = {"name": there["name"], "mountPath": SHARED_MEMORY}
        return shared | ({"subPath": there["subPath"]} if there.get("subPath") else {})
    if find(parts(pod["spec"], "volumes"), SHM_VOLUME) is not None and not ours:
        raise NotWiredError(f"the pod has a volume {SHM_VOLUME} of its own; rename it")
    volume = {"name": SHM_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": quantity_text(size)}}
    put(pod["spec"], "volumes", volume)
    mount(engine, SHM_VOLUME, SHARED_MEMORY)
    return {"name": SHM_VOLUME, "mountPath": SHARED_MEMORY}


def _check_own_memory(pod: Document, there: Document, size: int) -> None:
    def refuse(problem: str) -> NotWiredError:
        return NotWiredError(f"the engine's mount at {SHARED_MEMORY} {problem}; change it or leave it out")

    if there.get("readOnly"):
        raise refuse("is read-only")
    if there.get("subPathExpr"):
        raise refuse("has a subPathExpr")
    volume = find(parts(pod["spec"], "volumes"), there["name"]) or {}
    memory = volume.get("emptyDir")
    if memory is None or memory.get("medium") != "Memory":
        raise refuse("is no emptyDir of medium Memory")
    limit = memory.get("sizeLimit")
    if limit is None or size_of(limit) < size:
        raise refuse(f"needs a sizeLimit of {quantity_text(size)} or more")
