"""Volumes of a pod and where its containers mount them."""

from __future__ import annotations

import posixpath
from typing import Final

from inferencecache.controller.admission.reviews import Document
from inferencecache.controller.injection.pods import find, parts, put
from inferencecache.controller.injection.refusals import NotWiredError

SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - the path that processes share memory under


def mount_at(container: Document, path: str) -> Document | None:
    """What a container mounts there, however the path is spelled."""
    mounts = parts(container, "volumeMounts")
    return next((mount for mount in mounts if posixpath.normpath(mount["mountPath"]) == path), None)


def mount(container: Document, volume: str, path: str) -> None:
    """Mount a volume at a path, instead of what is there."""
    mounts = list(parts(container, "volumeMounts"))
    there = mount_at(container, path)
    at = len(mounts) if there is None else mounts.index(there)
    mounts[at : at + 1] = [{"name": volume, "mountPath": path}]
    container["volumeMounts"] = mounts


def add_config_volume(pod: Document, engine: Document, volume: str, path: str, *, ours: bool) -> None:
    """An empty volume that a client file is handed over in; `ours` says that the pod was wired before.

    Raises `NotWiredError` when name or path are somebody else's [ADM-188, ADM-194].
    """
    if find(parts(pod["spec"], "volumes"), volume) is not None and not ours:
        raise NotWiredError(f"the pod has a volume {volume} of its own; rename it")
    there = mount_at(engine, path)
    if there is not None and not (ours and there["name"] == volume):
        raise NotWiredError(f"the engine mounts {there['name']} at {path}, which is reserved; move it")
    put(pod["spec"], "volumes", {"name": volume, "emptyDir": {}})
    mount(engine, volume, path)
