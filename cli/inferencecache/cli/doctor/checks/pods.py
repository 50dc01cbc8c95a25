"""Engine pods: wired for the backend that selects them, or selected by none [OPS-88, OPS-89]."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from inferencecache.cli.doctor.checks.reading import (
    annotations_of,
    backends_by_namespace,
    in_order,
    labels_of,
    moment_of,
    pods_of,
    resource_of,
    unread,
)
from inferencecache.cli.doctor.facts import KubeFacts, ReadFailed
from inferencecache.cli.doctor.findings import INJECTION, ORPHANS, Finding, found
from inferencecache.core.kube.backends import Backend, section, text
from inferencecache.core.kube.kinds import Document, ObjectKey, key_of, uid_of
from inferencecache.core.kube.marks import INJECTED_BY, INJECTED_BY_UID
from inferencecache.core.kube.selection import matching_backends

WIRED: Final = "InjectedByCacheBackend"
UNMATCHED: Final = "NoMatchingCacheBackend"
REMEMBERED: Final = timedelta(hours=24)


def check_injection(facts: KubeFacts) -> Iterator[Finding]:
    """Every pod that a backend's selector matches; nothing where no backend has a selector."""
    if isinstance(facts.backends, ReadFailed):
        yield unread("CacheBackend", facts.backends, INJECTION)
        return
    selecting = [document for document in facts.backends if Backend(document).match_labels]
    if not selecting:
        return
    if isinstance(facts.events, ReadFailed):
        yield unread("Event", facts.events, INJECTION)
        return
    told = {_pod_uid(event) for event in facts.events if event.get("reason") == WIRED}
    for namespace, backends in backends_by_namespace(selecting):
        pods = pods_of(facts, namespace)
        if isinstance(pods, ReadFailed):
            yield unread("Pod", pods, INJECTION)
            return
        documents = [backend.document for backend in backends]
        for pod in in_order(pods):
            matching = matching_backends(documents, labels_of(pod))
            if matching:
                yield _audit(pod, matching, told)


def _audit(pod: Document, matching: Sequence[Backend], told: set[str]) -> Finding:
    resource = resource_of("Pod", key_of(pod))
    if len(matching) > 1:
        names = ", ".join(backend.name for backend in matching)
        return found("EP003", resource, f"the backends {names} all select it")
    (backend,) = matching
    marks = annotations_of(pod)
    by, uid = marks.get(INJECTED_BY), marks.get(INJECTED_BY_UID)
    if by == str(key_of(backend.document)) and backend.uid and uid == backend.uid:
        return found("EP002", resource, f"it was wired for {by}")
    if uid_of(pod) and uid_of(pod) in told:
        return found("EP002", resource, f"an Event {WIRED} says that it was wired")
    return found("EP001", resource, f"nothing proves that it was wired for {key_of(backend.document)}")


def check_orphans(facts: KubeFacts) -> Iterator[Finding]:
    """One finding a pod, by the newest Event about it."""
    if isinstance(facts.events, ReadFailed):
        yield unread("Event", facts.events, ORPHANS)
        return
    orphans = {
        key: note
        for event in _by_time(facts.events)
        if event.get("reason") == UNMATCHED and (key := _pod_key(event)) is not None
        if facts.now - time_of(event) <= REMEMBERED
        for note in [text(event, "note") or text(event, "message")]
    }
    for key in sorted(orphans):
        message = f"LikelyOperatorMisconfiguration: {orphans[key] or 'no CacheBackend selects it'}"
        yield found("OP001", resource_of("Pod", key), message)


def time_of(event: Document) -> datetime:
    """When it last happened: its series' time, else last timestamp, else event time, else creation."""
    times = (
        moment_of(section(event, "series"), "lastObservedTime"),
        moment_of(event, "lastTimestamp"),
        moment_of(event, "deprecatedLastTimestamp"),
        moment_of(event, "eventTime"),
        moment_of(section(event, "metadata"), "creationTimestamp"),
    )
    return next((moment for moment in times if moment is not None), _NEVER)


_NEVER: Final = datetime.fromisoformat("0001-01-01T00:00:00+00:00")


def _by_time(events: Iterable[Document]) -> list[Document]:
    return sorted(events, key=time_of)


def _about(event: Document) -> Document:
    """Both Event APIs tell of one object, each under a name of its own."""
    return section(event, "regarding") or section(event, "involvedObject") or {}


def _pod_uid(event: Document) -> str:
    return text(_about(event), "uid")


def _pod_key(event: Document) -> ObjectKey | None:
    about = _about(event)
    is_pod = text(about, "kind") == "Pod" and text(about, "name")
    return ObjectKey(text(about, "namespace"), text(about, "name")) if is_pod else None
