"""From what a pass found to the status of a backend.

`judge` is the whole of it, a pure function; a pass calls it once to learn whether a probe is wanted and once
more with the answer. What it publishes is judged about the objects that are there, never about those that
were meant to be applied.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from inferencecache.controller.backend.advisories import engine_compatibility, t2_degraded
from inferencecache.controller.backend.connector import connector_of
from inferencecache.controller.backend.drafts import StatusDraft
from inferencecache.controller.backend.kernel_health import KERNEL_DEGRADED, kernel_health
from inferencecache.controller.backend.kv_event_gate import EventClock, Gated, gate_of_events
from inferencecache.controller.backend.paths import PUBLISHED, Path
from inferencecache.controller.backend.probe_gate import (
    ProbeAnswer,
    Probed,
    answered,
    bypassed,
    held,
    is_bypassed,
)
from inferencecache.controller.backend.readiness import progressing_by, typed_base
from inferencecache.controller.backend.redis import service_endpoint
from inferencecache.controller.backend.storage import (
    external_endpoint,
    external_storage,
    managed_storage,
    unavailable,
)
from inferencecache.controller.backend.verdicts import (
    CONNECTOR_READY,
    DEGRADED,
    ENGINE_COMPATIBILITY,
    ENGINE_KERNELS_HEALTHY,
    FUNCTIONAL_PROBE_OK,
    NO_EVENTS,
    PROGRESSING,
    READY,
    REMOTE_STORAGE_READY,
    T2_DEGRADED,
)
from inferencecache.controller.backend.workload import workload_verdict
from inferencecache.controller.injection.refusals import NotWiredError
from inferencecache.core.kube.backends import Backend, text
from inferencecache.core.kube.conditions import Verdict, read_timestamp, timestamp
from inferencecache.core.kube.kinds import Document, is_controlled_by


class ProbeState(NamedTuple):
    """Where the backend's self-test stands: `left_s` of the time for which its last answer counts, and the
    answer of this pass, None while none was asked for.
    """

    left_s: float = 0.0
    answer: ProbeAnswer | None = None


class Found(NamedTuple):
    """What a pass read. `pods` are those of the namespace, None when they could not be listed; `deployment`
    and `service` are live objects of the backend's name, whoever controls them; `problem` says why objects
    could not be applied; `probe` is None where probing is switched off.
    """

    pods: Sequence[Document] | None
    deployment: Document | None = None
    service: Document | None = None
    problem: str = ""
    probe: ProbeState | None = None


class Judged(NamedTuple):
    """`wake_up_s` is what the path asks for, 0 for nothing; `wants_probe` says that a probe is due."""

    wake_up_s: float = 0.0
    wants_probe: bool = False


def judge(backend: Backend, path: Path, found: Found, draft: StatusDraft) -> Judged:
    """Bring the draft to what the path publishes [CTL-57..66]."""
    for type_ in PUBLISHED[Path.MANAGED] - PUBLISHED[path]:
        draft.judge(type_, None)
    match path:
        case Path.MANAGED:
            return _judge_managed(backend, found, draft)
        case Path.EXTERNAL:
            return _judge_external(backend, draft)
        case Path.HOST_ONLY | Path.EVENTS_ONLY:
            return _judge_without_store(backend, path, found, draft)
        case Path.UNMANAGED:
            for field in ("connector", "remoteStorage", "firstAvailableAt"):
                draft.put(field, None)
            draft.judge(CONNECTOR_READY, None)
            return Judged()


def judge_connector(backend: Backend, pods: Sequence[Document] | None, draft: StatusDraft) -> None:
    """The last part of a pass, so that `Ready` never rests on what was just learned [CTL-88, CTL-109]."""
    if not backend.is_typed_mp:
        draft.put("connector", None)
        draft.judge(CONNECTOR_READY, None)
        return
    connector = None
    if pods is not None:
        with contextlib.suppress(NotWiredError):
            connector = connector_of(backend, pods)
    if connector is None:
        draft.keep("connector", CONNECTOR_READY)
        return
    draft.put("connector", connector.status)
    draft.judge(CONNECTOR_READY, connector.verdict, current=True)


def _judge_managed(backend: Backend, found: Found, draft: StatusDraft) -> Judged:
    endpoint = ""
    if found.service is not None and is_controlled_by(found.service, backend.uid):
        endpoint = service_endpoint(found.service)
    if found.deployment is not None and is_controlled_by(found.deployment, backend.uid):
        workload = workload_verdict(found.deployment)
        remote = managed_storage(workload, endpoint, found.problem)
    else:
        workload = remote = unavailable(found.problem)
    _put_storage(backend, draft, endpoint, remote)
    base = _base(backend, draft, workload, remote)
    if base.holds and draft.get("firstAvailableAt") is None:
        draft.put("firstAvailableAt", timestamp(draft.now))
    gated = _gate(backend, draft, base, _first_available(draft), is_breached=_has_breached(draft))
    probed = _probe(backend, draft, gated.ready, found.probe)
    if probed is None:
        return Judged(wants_probe=True)
    if probed.condition is not None:
        draft.judge(FUNCTIONAL_PROBE_OK, probed.condition)
    ready = _behind_kernels(backend, found, draft, probed.ready)
    _judge_compatibility(backend, found, draft)
    draft.judge(T2_DEGRADED, t2_degraded(draft.get("indexParticipation")))
    _publish(draft, ready, gated.degraded)
    return Judged(min((wish for wish in (gated.wake_up_s, probed.wake_up_s) if wish), default=0.0))


def _judge_external(backend: Backend, draft: StatusDraft) -> Judged:
    endpoint = text(backend.remote_storage, "endpoint").strip()
    accepted = external_endpoint(endpoint)
    remote = external_storage(accepted)
    _put_storage(backend, draft, endpoint, remote)
    _publish(draft, _base(backend, draft, accepted, remote))
    return Judged()


def _judge_without_store(backend: Backend, path: Path, found: Found, draft: StatusDraft) -> Judged:
    is_flip = draft.get("remoteStorage") is not None
    draft.put("remoteStorage", None)
    if path is Path.EVENTS_ONLY:
        base = Verdict("True", "EventsOnlyActive", "engines are observed, nothing is stored")
    else:
        active = Verdict("True", "HostOnlyActive", "engines cache in the memory of their hosts alone")
        base = _base(backend, draft, active, None)
    anchor = draft.now if is_flip else _first_available(draft)
    if is_flip:
        draft.put("firstAvailableAt", None)
    if base.holds and draft.get("firstAvailableAt") is None:
        draft.put("firstAvailableAt", timestamp(draft.now))
    gated = _gate(backend, draft, base, anchor, is_breached=_has_breached(draft) and not is_flip)
    ready = gated.ready
    if path is Path.HOST_ONLY:
        ready = _behind_kernels(backend, found, draft, ready)
        _judge_compatibility(backend, found, draft)
    _publish(draft, ready, gated.degraded)
    return Judged(gated.wake_up_s)


def _first_available(draft: StatusDraft) -> datetime:
    """From when on the wait for the first event runs: now, where nothing is stored [CTL-63]."""
    stored = draft.get("firstAvailableAt")
    return draft.now if stored is None else read_timestamp(stored)


def _base(backend: Backend, draft: StatusDraft, of_path: Verdict, remote: Verdict | None) -> Verdict:
    """[CTL-107]."""
    if not backend.is_typed_mp:
        return of_path
    connector = draft.judged(CONNECTOR_READY) if draft.is_current(CONNECTOR_READY) else None
    return typed_base(connector, remote, fail_open=backend.fail_open)


def _put_storage(backend: Backend, draft: StatusDraft, endpoint: str, remote: Verdict) -> None:
    """[CTL-103]."""
    if not backend.is_typed_mp:
        draft.put("remoteStorage", None)
        draft.judge(REMOTE_STORAGE_READY, None)
        return
    provider = text(backend.remote_storage, "provider")
    draft.put("remoteStorage", {"provider": provider, "endpoint": endpoint, "ready": remote.status})
    draft.judge(REMOTE_STORAGE_READY, remote)


def _has_breached(draft: StatusDraft) -> bool:
    ready = draft.judged(READY)
    return ready is not None and ready.reason == NO_EVENTS


def _gate(
    backend: Backend, draft: StatusDraft, base: Verdict, anchor: datetime, *, is_breached: bool
) -> Gated:
    seen_at = (draft.get("indexParticipation") or {}).get("lastEventAt")
    if seen_at and draft.get("firstKVEventObservedAt") is None:
        draft.put("firstKVEventObservedAt", seen_at)
    clock = EventClock(draft.get("firstKVEventObservedAt") is not None, anchor, is_breached)
    return gate_of_events(backend, base, clock, draft.now)


def _probe(backend: Backend, draft: StatusDraft, ready: Verdict, state: ProbeState | None) -> Probed | None:
    """None when a probe has to be made first [CTL-120]."""
    if state is None:
        draft.judge(FUNCTIONAL_PROBE_OK, None)
        return Probed(ready)
    if not ready.holds:
        return Probed(ready)
    if is_bypassed(backend):
        return bypassed(ready)
    condition = draft.judged(FUNCTIONAL_PROBE_OK)
    if state.answer is not None:
        return answered(ready, condition, state.answer)
    if state.left_s > 0:
        return held(ready, condition, state.left_s)
    return None


def _behind_kernels(backend: Backend, found: Found, draft: StatusDraft, ready: Verdict) -> Verdict:
    if found.pods is None:  # what was found before holds on
        stored = draft.judged(READY)
        return stored if stored is not None and stored.reason == KERNEL_DEGRADED else ready
    health = kernel_health(backend, found.pods) if backend.is_typed_mp else None
    draft.judge(ENGINE_KERNELS_HEALTHY, None if health is None else health.verdict)
    return ready if health is None else health.gate(ready)


def _judge_compatibility(backend: Backend, found: Found, draft: StatusDraft) -> None:
    if found.pods is not None:
        draft.judge(ENGINE_COMPATIBILITY, engine_compatibility(backend, found.pods))


def _publish(draft: StatusDraft, ready: Verdict, degraded: Verdict | None = None) -> None:
    draft.judge(READY, ready)
    draft.judge(PROGRESSING, progressing_by(ready))
    if degraded is not None:
        draft.judge(DEGRADED, degraded)
