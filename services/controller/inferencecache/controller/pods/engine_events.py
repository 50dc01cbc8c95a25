"""Events on engine pods that tell what admission did to them, for `kubectl describe pod` [CTL-202..210].

The webhook cannot record them: the pod has no identity yet when it is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from inferencecache.controller.backend.references import read_reference
from inferencecache.controller.injection.marks import SKIPPED_BY_ANNOTATION
from inferencecache.controller.injection.opt_out import opts_out
from inferencecache.controller.injection.pods import metadata_of
from inferencecache.controller.kube.observed import Change
from inferencecache.controller.kube.recording import NORMAL, WARNING, Note
from inferencecache.controller.reconciling.controllers import Means
from inferencecache.core.kube.backends import DOMAIN_LABEL
from inferencecache.core.kube.kinds import CACHE_BACKENDS, PODS, Document, ObjectKey, key_of, uid_of
from inferencecache.core.kube.marks import INJECT_SKIPPED, INJECTED_BY, INJECTED_BY_UID
from inferencecache.core.kube.selection import matching_backends

COMPONENT: Final = "engine-pod-events"


class EnginePodEvents:
    """Records one Event for each new pod that there is something to tell of."""

    name = "engine-pod-events"

    def __init__(self, means: Means) -> None:
        self._means = means
        self._recorder = means.recorder(COMPONENT)

    def concerns(self, change: Change) -> tuple[ObjectKey, ...]:
        """Pods when they are made, and all there are when the controller starts [CTL-202]."""
        is_told = (
            change.kind == PODS and change.after is not None and change.is_new and is_marked(change.after)
        )
        return (change.key,) if is_told else ()

    async def reconcile(self, key: ObjectKey) -> float | None:
        """Backends are read from the API, where they are as admission saw them [CTL-206]. Raises
        `KubeError` [CTL-205].
        """
        pod = self._means.observed.get(PODS, key)
        if pod is None:
            return None
        marks = metadata_of(pod, "annotations")
        if marks.get(INJECTED_BY):
            reference = read_reference(marks[INJECTED_BY])
            backend = None if reference is None else await self._means.api.get(CACHE_BACKENDS, *reference)
            if backend is not None and (note := note_of_wired(pod, backend)):
                await self._recorder.record(pod, note, backend)
        elif opts_out(marks):
            if note := note_of_skipped(pod):
                await self._recorder.record(pod, note)
        else:
            backends = (await self._means.api.list_all(CACHE_BACKENDS, key.namespace)).items
            if note := note_of_unmatched(pod, backends):
                await self._recorder.record(pod, note)
        return None


def is_marked(pod: Document) -> bool:
    """Whether there may be something to tell of a pod; of most pods of a cluster there is not."""
    marks = metadata_of(pod, "annotations")
    return any(marks.get(mark) for mark in (INJECTED_BY, INJECT_SKIPPED)) or _domain_of(pod) is not None


def note_of_wired(pod: Document, backend: Document) -> Note | None:
    """The backend is the one that the pod's mark names; another life of it did not wire the pod [CTL-203]."""
    if metadata_of(pod, "annotations").get(INJECTED_BY_UID) != uid_of(backend):
        return None
    return Note(
        NORMAL, "InjectedByCacheBackend", f'Injected engine config from CacheBackend "{key_of(backend)}"'
    )


def note_of_skipped(pod: Document) -> Note | None:
    """The pod's author opted out, and admission says that this is why [CTL-207]."""
    if metadata_of(pod, "annotations").get(INJECT_SKIPPED) != SKIPPED_BY_ANNOTATION:
        return None
    return Note(NORMAL, "SkippedByOperator", f"Skipped cache injection: {SKIPPED_BY_ANNOTATION}")


def note_of_unmatched(pod: Document, backends: Sequence[Document]) -> Note | None:
    """The pod names a cache domain, and none of the backends of its namespace selects it. Other labels are
    chosen by each backend's author, so no pod can be said to lack one.
    """
    domain = _domain_of(pod)
    if domain is None or matching_backends(backends, metadata_of(pod, "labels")):
        return None
    message = (
        f"No CacheBackend of namespace {key_of(pod).namespace} selects the pod, which has the label "
        f"{DOMAIN_LABEL}={domain}; it runs without cache. Correct spec.engineSelector or the pod's labels, "
        "and make the pod again"
    )
    return Note(WARNING, "NoMatchingCacheBackend", message)


def _domain_of(pod: Document) -> str | None:
    return metadata_of(pod, "labels").get(DOMAIN_LABEL)
