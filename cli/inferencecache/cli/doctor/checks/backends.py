"""Each CacheBackend by its status: conditions, engines, events, store [OPS-82..87]."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from inferencecache.cli.doctor.checks.reading import (
    in_order,
    labels_of,
    moment_of,
    pods_of,
    resource_of,
    unread,
)
from inferencecache.cli.doctor.facts import KubeFacts, ReadFailed
from inferencecache.cli.doctor.findings import BACKENDS, Finding, found
from inferencecache.core.kube.backends import EVENTS_ONLY, EXTERNAL, Backend, section, text
from inferencecache.core.kube.conditions import conditions_of
from inferencecache.core.kube.kinds import ObjectKey
from inferencecache.core.kube.selection import matches

STALE_AFTER: Final = timedelta(minutes=2)


def check_backends(facts: KubeFacts) -> Iterator[Finding]:
    """One finding for each axis that fails, and CB006 where none does [OPS-82]."""
    if isinstance(facts.backends, ReadFailed):
        yield unread("CacheBackend", facts.backends, BACKENDS)
        return
    for document in in_order(facts.backends):
        backend = Backend(document)
        resource = resource_of("CacheBackend", ObjectKey(backend.namespace, backend.name))
        findings = [*_check(backend, resource, facts)]
        yield from findings or [found("CB006", resource, _summary(backend, facts))]


def has_store(backend: Backend) -> bool:
    """Whether a store is declared that counts; events alone outrank one beside them [OPS-83]."""
    return backend.remote_storage is not None and backend.mode != EVENTS_ONLY


def endpoint_of(backend: Backend) -> str:
    """Where engines find the store, empty while nobody says so."""
    return text(section(backend.status, "remoteStorage"), "endpoint").strip()


def is_external(backend: Backend) -> bool:
    """Whether the store is somebody else's; then only Ready and the endpoint are judged [OPS-83]."""
    return has_store(backend) and text(backend.remote_storage, "ownership") == EXTERNAL


def _check(backend: Backend, resource: str, facts: KubeFacts) -> Iterator[Finding]:
    conditions = conditions_of(backend.status)
    ready = conditions.get("Ready")
    if ready is None:
        yield found("CB001", resource, "Ready is absent: no controller has judged this backend, or it cannot")
    elif ready.get("status") != "True":
        yield found("CB001", resource, _told("Ready", ready))
    if not is_external(backend):
        yield from _check_engines(backend, resource, facts)
        yield from _check_events(backend, resource, facts.now)
        probe = conditions.get("FunctionalProbeOK")
        if probe is not None and probe.get("status") != "True":
            yield found("CB007", resource, _told("FunctionalProbeOK", probe))
    if has_store(backend):
        yield from _check_endpoint(backend, resource, facts)


def _told(type_: str, condition: dict[str, object]) -> str:
    return f"{type_} is {condition.get('status')} ({condition.get('reason')}): {condition.get('message')}"


def _check_engines(backend: Backend, resource: str, facts: KubeFacts) -> Iterator[Finding]:
    if not backend.match_labels:
        return
    matched = matched_pods(backend, facts)
    if isinstance(matched, ReadFailed):
        reason = f"its pods could not be counted: {matched.reason}"
        yield found("API001", resource, reason)
    elif matched == 0:
        selector = ",".join(f"{key}={value}" for key, value in sorted(backend.match_labels.items()))
        yield found("CB002", resource, f"LikelySelectorMismatch: no pod has the labels {selector}")


def matched_pods(backend: Backend, facts: KubeFacts) -> int | ReadFailed:
    """As the controller counted them, else as they are now [OPS-84]."""
    counted = backend.status.get("matchedEnginePods")
    if isinstance(counted, int):
        return counted
    pods = pods_of(facts, backend.namespace)
    if isinstance(pods, ReadFailed):
        return pods
    return sum(matches(backend.match_labels, labels_of(pod)) for pod in pods)


def _check_events(backend: Backend, resource: str, now: datetime) -> Iterator[Finding]:
    """A drained backend, whose latch is set and that has no last event, is healthy [OPS-85]."""
    last = moment_of(section(backend.status, "indexParticipation"), "lastEventAt")
    if last is None:
        if moment_of(backend.status, "firstKVEventObservedAt") is None:
            yield found("CB003", resource, "EngineNotReportingState: no KV event has ever come")
    elif now - last > STALE_AFTER:
        age_s = (now - last).total_seconds()
        yield found("CB004", resource, f"EngineStale: the last KV event is {age_s:.0f} s old")


def _check_endpoint(backend: Backend, resource: str, facts: KubeFacts) -> Iterator[Finding]:
    endpoint = endpoint_of(backend)
    if not endpoint:
        yield found("CB005", resource, "status.remoteStorage.endpoint is empty")
    elif problem := (facts.dials or {}).get(endpoint, ""):
        yield found("CB005", resource, f"{endpoint} takes no connection: {problem}")


def _summary(backend: Backend, facts: KubeFacts) -> str:
    """[OPS-86]."""
    if is_external(backend):
        about = "external backend"
    else:
        prefixes = (section(backend.status, "indexParticipation") or {}).get("prefixCount") or 0
        engines = "pods matched" if backend.match_labels else "no selector"
        about = f"{prefixes} prefixes, {engines}"
    if not has_store(backend):
        return f"{about}, host-only"
    return f"{about}, endpoint {'present' if facts.dials is None else 'reachable'}"
