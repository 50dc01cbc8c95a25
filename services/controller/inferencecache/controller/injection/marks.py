"""Writing the marks of injection on a pod, and taking them off [ADM-139..147]."""

from __future__ import annotations

from typing import Final

from inferencecache.controller.admission.reviews import Document
from inferencecache.controller.injection.pods import metadata_of
from inferencecache.core.kube.backends import Backend
from inferencecache.core.kube.marks import (
    INJECT_SKIPPED,
    INJECTED_BY,
    INJECTED_BY_UID,
    INJECTED_GENERATION,
    METRICS_LABEL,
)

SKIPPED_BY_ANNOTATION: Final = "skip-inject-annotation"
_INJECTED: Final = (INJECTED_BY, INJECTED_BY_UID, INJECTED_GENERATION)


def stamp_injected(pod: Document, backend: Backend) -> Document:
    """The pod with the marks of a wired one; `backend` must have its namespace."""
    marks = {
        INJECTED_BY: f"{backend.namespace}/{backend.name}",
        INJECTED_BY_UID: backend.uid,
        INJECTED_GENERATION: str(backend.generation),
    }
    return _annotated(pod, add=marks, remove=(INJECT_SKIPPED,))


def stamp_metrics(pod: Document) -> Document:
    """The pod with the label that scrapers of the cache server look for."""
    labels = metadata_of(pod, "labels") | {METRICS_LABEL: "true"}
    return pod | {"metadata": (pod.get("metadata") or {}) | {"labels": labels}}


def stamp_skipped(pod: Document) -> Document:
    """The pod with the mark of one whose author opted out, and no other [ADM-138]."""
    return _annotated(pod, add={INJECT_SKIPPED: SKIPPED_BY_ANNOTATION}, remove=_INJECTED)


def strip_marks(pod: Document) -> Document:
    """The pod without any mark, so that forged and copied ones are not believed; the very same pod when
    none says anything [ADM-146].
    """
    marks = (*_INJECTED, INJECT_SKIPPED)
    if not any(metadata_of(pod, "annotations").get(mark) for mark in marks):
        return pod
    return _annotated(pod, add={}, remove=marks)


def _annotated(pod: Document, *, add: dict[str, str], remove: tuple[str, ...]) -> Document:
    old = metadata_of(pod, "annotations")
    annotations = {key: value for key, value in old.items() if key not in remove} | add
    metadata = {key: value for key, value in (pod.get("metadata") or {}).items() if key != "annotations"}
    if annotations:
        metadata["annotations"] = annotations
    return pod | {"metadata": metadata}
