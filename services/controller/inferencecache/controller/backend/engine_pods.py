"""What is read of engine pods: whose they are, and how they do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from inferencecache.controller.injection.pods import metadata_of
from inferencecache.core.kube.backends import Backend
from inferencecache.core.kube.kinds import Document, is_controlled_by
from inferencecache.core.kube.marks import INJECTED_BY, INJECTED_BY_UID, INJECTED_GENERATION
from inferencecache.core.kube.selection import matches

_FINISHED = ("Succeeded", "Failed")


def name_of(pod: Document) -> str:
    """The pod's name."""
    name: str = pod["metadata"]["name"]
    return name


def node_of(pod: Document) -> str:
    """The pod's node, empty while it has none."""
    node: str = (pod.get("spec") or {}).get("nodeName") or ""
    return node


def selected_pods(backend: Backend, pods: Iterable[Document]) -> list[Document]:
    """Pods that the backend's selector matches, by name, in whatever state."""
    selector = backend.match_labels
    selected = (pod for pod in pods if matches(selector, metadata_of(pod, "labels")))
    return sorted(selected, key=name_of)


def pods_about(backend: Backend, pods: Iterable[Document]) -> list[Document]:
    """Pods that anything here may be read of: those selected, wired for the backend or controlled by it. A
    namespace may have thousands of others, which one look each is enough for.
    """
    selector, uid = backend.match_labels, backend.uid
    return [
        pod
        for pod in pods
        if matches(selector, metadata_of(pod, "labels"))
        or metadata_of(pod, "annotations").get(INJECTED_BY_UID) == uid
        or is_controlled_by(pod, uid)
    ]


def active_pods(backend: Backend, pods: Iterable[Document]) -> list[Document]:
    """Those selected that are neither finished nor being deleted [CTL-90]."""
    return [pod for pod in selected_pods(backend, pods) if is_active(pod)]


def is_active(pod: Document) -> bool:
    """Neither finished nor being deleted."""
    return not is_leaving(pod) and not is_finished(pod)


def is_leaving(pod: Document) -> bool:
    """Whether the pod is being deleted."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def is_finished(pod: Document) -> bool:
    """Whether the pod has ended for good; its name may stay."""
    return (pod.get("status") or {}).get("phase") in _FINISHED


def is_stamped(backend: Backend, pod: Document) -> bool:
    """Whether the pod was wired for this life of the backend, of whichever generation."""
    marks = metadata_of(pod, "annotations")
    by = (marks.get(INJECTED_BY), marks.get(INJECTED_BY_UID))
    return bool(backend.uid) and by == (f"{backend.namespace}/{backend.name}", backend.uid)


def is_verified(backend: Backend, pod: Document) -> bool:
    """Whether the pod was wired by this generation of the backend [CTL-91]."""
    generation = metadata_of(pod, "annotations").get(INJECTED_GENERATION)
    return is_stamped(backend, pod) and generation == str(backend.generation)


def is_ready(pod: Document) -> bool:
    """The pod's own Ready condition."""
    return condition_of(pod, "Ready").get("status") == "True"


def condition_of(pod: Document, type_: str) -> Document:
    """A condition of a pod, empty without it."""
    conditions: Sequence[Document] = (pod.get("status") or {}).get("conditions") or ()
    return next((condition for condition in conditions if condition.get("type") == type_), {})


def status_of_container(pod: Document, name: str, *, init: bool = False) -> Document:
    """How a container does, empty when nothing is known."""
    field = "initContainerStatuses" if init else "containerStatuses"
    statuses: Sequence[Document] = (pod.get("status") or {}).get(field) or ()
    return next((status for status in statuses if status.get("name") == name), {})


def is_serving(container: Document) -> bool:
    """Whether a container's status says that it runs and is ready."""
    return container.get("ready") is True and "running" in (container.get("state") or {})
