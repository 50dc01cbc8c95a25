"""Whether a pod is the server of a node that a backend would run there now [CTL-81, CTL-97]."""

from __future__ import annotations

import itertools

from inferencecache.controller.injection.mounts import SHARED_MEMORY, mount_at
from inferencecache.controller.injection.mp_server import SERVER_NAME
from inferencecache.controller.injection.node_server import (
    BACKEND_UID_LABEL,
    GENERATION_MARK,
    NODE_SERVER_LABEL,
    OWNER_MARK,
    OWNER_UID_MARK,
    SHM_NAME_MARK,
    TARGET_NODE_MARK,
    shm_name,
    shm_volume,
)
from inferencecache.controller.injection.pods import find, metadata_of, parts
from inferencecache.core.kube.backends import Backend
from inferencecache.core.kube.kinds import Document, is_controlled_by


def is_server_of(backend: Backend, pod: Document) -> bool:
    """Whether a pod is a server of this life of the backend, of whichever generation."""
    labels = metadata_of(pod, "labels")
    marked = (labels.get(NODE_SERVER_LABEL), labels.get(BACKEND_UID_LABEL))
    return marked == ("true", backend.uid) and is_controlled_by(pod, backend.uid)


def is_of_generation(backend: Backend, pod: Document) -> bool:
    """Whether a server's marks name this life and generation of the backend."""
    marks = metadata_of(pod, "annotations")
    expected = {
        OWNER_MARK: f"{backend.namespace}/{backend.name}",
        OWNER_UID_MARK: backend.uid,
        GENERATION_MARK: str(backend.generation),
    }
    return all(marks.get(key) == value for key, value in expected.items())


def target_node_of(server: Document) -> str:
    """The node that a server was made for, whether or not it runs there; empty without the mark."""
    return metadata_of(server, "annotations").get(TARGET_NODE_MARK, "")


def shares_memory(backend: Backend, pod: Document) -> bool:
    """Whether a server has the memory that the backend's engines expect, by mark, mount and argument.

    Raises `NotWiredError` for a backend whose uid makes no name.
    """
    name = shm_name(backend)
    spec = pod.get("spec") or {}
    server = find(parts(spec, "containers"), SERVER_NAME) or {}
    mount = mount_at(server, SHARED_MEMORY) or {}
    volume = find(parts(spec, "volumes"), mount.get("name", "")) or {}
    is_plain = not any(mount.get(key) for key in ("readOnly", "subPath", "subPathExpr"))
    arguments: list[str] = parts(server, "args")
    return (
        metadata_of(pod, "annotations").get(SHM_NAME_MARK) == name
        and is_plain
        and volume.get("hostPath") == shm_volume(backend)["hostPath"]
        and ("--shm-name", name) in itertools.pairwise(arguments)
    )
