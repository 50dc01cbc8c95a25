"""LMCache with one server a node, which the controller runs: the engine's pod only waits for it.

The wait is an init container, since an engine that starts without its server runs on without cache. The
memory they share is a folder of the node under the backend's uid [ADM-190..199].
"""

from __future__ import annotations

from typing import Final

from inferencecache.controller.admission.reviews import Document
from inferencecache.controller.injection.environment import from_field, literal, same
from inferencecache.controller.injection.lmcache_client import CONFIG_FOLDERS, config_path
from inferencecache.controller.injection.mounts import SHARED_MEMORY, add_config_volume, mount, mount_at
from inferencecache.controller.injection.mp_server import NODE_IP, SECURITY_CONTEXT
from inferencecache.controller.injection.node_server import SHM_VOLUME, instance_id, shm_name, shm_volume
from inferencecache.controller.injection.pods import find, find_own, parts, put
from inferencecache.controller.injection.refusals import NotWiredError
from inferencecache.controller.injection.scripts import script_text
from inferencecache.controller.injection.servers import node_local_server
from inferencecache.core.kube.backends import NODE_LOCAL, Backend

GATE_NAME: Final = "lmcache-node-local-gate"
GATE_MARKER: Final = "INFERENCECACHE_NODE_LOCAL_GATE"
CONFIG_VOLUME: Final = "lmcache-node-config"


def add_gate(pod: Document, engine: Document, backend: Backend) -> None:
    """Put the gate into the pod, or the current one in the place of an older one of ours, and share memory
    with the node. Raises `NotWiredError` when something of the pod is in the way.
    """
    ours = find_own(pod, GATE_NAME, GATE_MARKER) is not None
    _check_node_ip(engine, ours=ours)
    is_sglang = backend.runtime_id == "sglang"
    folder = CONFIG_FOLDERS[NODE_LOCAL]
    if is_sglang:
        add_config_volume(pod, engine, CONFIG_VOLUME, folder, ours=ours)
    _share_memory(pod, engine, backend, ours=ours)
    gate: Document = {
        "name": GATE_NAME,
        "image": node_local_server(backend).image.strip(),
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c"],
        "args": [script_text("gate")],
        "env": _environment(backend, config_path(NODE_LOCAL) if is_sglang else ""),
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}},
        "securityContext": SECURITY_CONTEXT,
    }
    if is_sglang:
        gate["volumeMounts"] = [{"name": CONFIG_VOLUME, "mountPath": folder}]
    put(pod["spec"], "initContainers", gate)


def _environment(backend: Backend, client_config: str) -> list[Document]:
    settings = node_local_server(backend)
    return [
        literal(GATE_MARKER, "true"),
        from_field(NODE_IP, "status.hostIP"),
        literal("EXPECTED_INSTANCE_ID", instance_id(backend)),
        literal("EXPECTED_SHM_NAME", shm_name(backend)),
        literal("EXPECTED_MP_PORT", str(settings.port)),
        literal("EXPECTED_HTTP_PORT", str(settings.http_port)),
        literal("EXPECTED_CHUNK_SIZE", str(backend.chunk_tokens)),
        literal("EXPECTED_MAX_GPU_WORKERS", str(settings.max_gpu_workers)),
        literal("EXPECTED_MAX_CPU_WORKERS", str(settings.max_cpu_workers)),
        literal("CLIENT_CONFIG_PATH", client_config),
    ]


def _check_node_ip(engine: Document, *, ours: bool) -> None:
    wanted = from_field(NODE_IP, "status.hostIP")
    others = [e for e in parts(engine, "env") if e["name"] == NODE_IP and not same(e, wanted)]
    if others and not ours:
        raise NotWiredError(f"the engine sets {NODE_IP} otherwise than by the field status.hostIP; remove it")


def _share_memory(pod: Document, engine: Document, backend: Backend, *, ours: bool) -> None:
    wanted = shm_volume(backend)
    there = mount_at(engine, SHARED_MEMORY)
    volume = find(parts(pod["spec"], "volumes"), SHM_VOLUME if there is None else there["name"])
    if there is not None:
        changed = any(there.get(key) for key in ("readOnly", "subPath", "subPathExpr"))
        if changed or volume is None or volume.get("hostPath") != wanted["hostPath"]:
            raise NotWiredError(
                f"the engine mounts {there['name']} at {SHARED_MEMORY}, where the node's shared memory "
                "belongs; leave it out"
            )
        return
    if volume is not None and not ours:
        raise NotWiredError(f"the pod has a volume {SHM_VOLUME} of its own; rename it")
    put(pod["spec"], "volumes", wanted)
    mount(engine, SHM_VOLUME, SHARED_MEMORY)
