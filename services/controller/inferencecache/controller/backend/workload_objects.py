"""Bringing a managed store's Deployment and Service to what they should be [CTL-43..51]."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from inferencecache.controller.backend.merging import merged_deployment, merged_service
from inferencecache.controller.backend.redis import redis_deployment, redis_service
from inferencecache.controller.kube.writing import Build
from inferencecache.controller.reconciling.controllers import Means
from inferencecache.controller.reconciling.queue import RetryError
from inferencecache.core.kube.api import KubeError
from inferencecache.core.kube.backends import Backend
from inferencecache.core.kube.kinds import (
    DEPLOYMENTS,
    SERVICES,
    Document,
    ObjectKey,
    ObjectKind,
    is_controlled_by,
)


class ForeignObjectError(RetryError):
    """An object has the name that one of a backend needs, and the backend does not control it."""

    def __init__(self, kind: ObjectKind, key: ObjectKey) -> None:
        super().__init__(
            f"{kind.name} {key} is there and does not belong to the CacheBackend of that name; delete it, or "
            "give the backend another name"
        )
        self.kind = kind
        self.key = key


class Workload(NamedTuple):
    """Live objects, also foreign ones; `failure` is why they are not all as they should be."""

    deployment: Document | None = None
    service: Document | None = None
    failure: KubeError | RetryError | None = None


async def apply_workload(backend: Backend, means: Means) -> Workload:
    """Apply, and read what is there when that fails. Raises `RenderingError`, and the failure itself when
    there is no Deployment to tell of [CTL-47, CTL-48].

    Objects that were watched are taken as they were seen: whatever becomes of one brings another pass.
    """
    key = ObjectKey(backend.namespace, backend.name)
    api, writer, seen = means.api, means.writer, means.observed
    deployment = build_of(backend, DEPLOYMENTS, redis_deployment(backend), merged_deployment)
    service = build_of(backend, SERVICES, redis_service(backend), merged_service)
    try:
        stored = await writer.apply(DEPLOYMENTS, key, deployment, seen.get(DEPLOYMENTS, key))
    except (KubeError, RetryError) as failure:
        live = await api.get(DEPLOYMENTS, *key)
        if live is None:
            raise
        return Workload(live, await api.get(SERVICES, *key), failure)
    try:
        return Workload(stored, await writer.apply(SERVICES, key, service, seen.get(SERVICES, key)), None)
    except (KubeError, RetryError) as failure:
        return Workload(stored, await api.get(SERVICES, *key), failure)


async def delete_workload(backend: Backend, means: Means) -> None:
    """Delete what the backend controls; what is not there or somebody else's is left alone [CTL-51]."""
    key = ObjectKey(backend.namespace, backend.name)
    for kind in (DEPLOYMENTS, SERVICES):
        if means.observed.get(kind, key) is not None or not means.observed.is_listed(kind):
            await means.writer.delete_owned(kind, key, backend.uid)


def build_of(
    backend: Backend, kind: ObjectKind, desired: Document, merge: Callable[[Document, Document], Document]
) -> Build:
    """What makes a live object the desired one. The build raises `ForeignObjectError`."""

    def build(live: Document | None) -> Document:
        if live is None:
            return desired
        if not is_controlled_by(live, backend.uid):
            raise ForeignObjectError(kind, ObjectKey(backend.namespace, backend.name))
        return merge(live, desired)

    return build
