"""Which backends a change of an object is about [CTL-10, CTL-11]."""

from __future__ import annotations

from inferencecache.controller.backend.references import read_reference
from inferencecache.controller.injection.pods import metadata_of
from inferencecache.controller.kube.observed import Change
from inferencecache.core.kube.kinds import (
    CACHE_BACKENDS,
    DEPLOYMENTS,
    PODS,
    SERVICES,
    Document,
    ObjectKey,
    ObjectKind,
    controller_of,
    key_of,
)
from inferencecache.core.kube.marks import INJECTED_BY, INJECTED_BY_UID


def backends_of(change: Change) -> tuple[ObjectKey, ...]:
    """Both sides count, since an object may stop being a backend's. A changed status counts as well: the
    first event of a backend comes as one.
    """
    keys = (_backend_of(change.kind, document) for document in change.documents)
    return tuple({key for key in keys if key is not None})


def _backend_of(kind: ObjectKind, document: Document) -> ObjectKey | None:
    if kind == CACHE_BACKENDS:
        return key_of(document)
    if kind not in (DEPLOYMENTS, SERVICES, PODS):
        return None
    owner = controller_of(document) or {}
    if (owner.get("apiVersion"), owner.get("kind")) == (CACHE_BACKENDS.api_version, CACHE_BACKENDS.name):
        return ObjectKey(key_of(document).namespace, owner["name"])
    marks = metadata_of(document, "annotations")
    if kind != PODS or not marks.get(INJECTED_BY_UID):
        return None
    return read_reference(marks.get(INJECTED_BY) or "")
