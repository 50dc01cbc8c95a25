"""Events on a backend: transitions between the status before a pass and the status stored by it [CTL-211].

A steady state has none, and what could not be stored did not happen [CTL-20].
"""

from __future__ import annotations

from inferencecache.controller.backend.verdicts import (
    AWAITING_FIRST_EVENT,
    CONNECTOR_READY,
    DEGRADED,
    ENGINE_COMPATIBILITY,
    EVENTS_OBSERVED,
    NO_EVENTS,
    READY,
    REMOTE_STORAGE_READY,
)
from inferencecache.controller.kube.recording import NORMAL, WARNING, Note
from inferencecache.core.kube.conditions import conditions_of
from inferencecache.core.kube.kinds import Document


def transitions(before: Document, after: Document) -> list[Note]:
    """What became different, in the order of the table."""
    old, new = conditions_of(before), conditions_of(after)
    events: list[Note] = []
    for type_ in (CONNECTOR_READY, REMOTE_STORAGE_READY):
        events += _of_condition(old.get(type_), new.get(type_))
    events += _of_readiness(old, new)
    events += _of_first_event(before, after)
    events += _of_fail_open(before, after)
    compatibility = new.get(ENGINE_COMPATIBILITY, {})
    if compatibility.get("status") == "False" and old.get(ENGINE_COMPATIBILITY, {}).get("status") != "False":
        events.append(Note(WARNING, compatibility["reason"], compatibility["message"]))
    return [*events, *_of_selector(before, after)]


def _of_condition(old: Document | None, new: Document | None) -> list[Note]:
    looked_at = ("status", "reason", "observedGeneration")
    if new is None or (old is not None and all(old.get(key) == new.get(key) for key in looked_at)):
        return []
    type_ = NORMAL if new["status"] == "True" else WARNING
    return [Note(type_, new["reason"], new["message"])]


def _of_readiness(old: dict[str, Document], new: dict[str, Document]) -> list[Note]:
    was, ready = old.get(READY, {}), new.get(READY, {})
    was_degraded, is_degraded = (side.get(DEGRADED, {}).get("status") == "True" for side in (old, new))
    reason, message = ready.get("reason"), ready.get("message", "")
    events: list[Note] = []
    if is_degraded and not was_degraded and reason != NO_EVENTS:
        events.append(Note(WARNING, "BackendDegraded", message))
    if was_degraded and ready.get("status") == "True" and was.get("reason") != NO_EVENTS:
        events.append(Note(NORMAL, "BackendRecovered", message))
    if reason != was.get("reason"):
        if reason == AWAITING_FIRST_EVENT:
            events.append(Note(NORMAL, AWAITING_FIRST_EVENT, message))
        if reason == NO_EVENTS:
            events.append(Note(WARNING, NO_EVENTS, message))
    return events


def _of_first_event(before: Document, after: Document) -> list[Note]:
    field = "firstKVEventObservedAt"
    if before.get(field) or not after.get(field):
        return []
    return [Note(NORMAL, EVENTS_OBSERVED, f"the first KV event was observed at {after[field]}")]


def _of_fail_open(before: Document, after: Document) -> list[Note]:
    was, is_now = (side.get("failOpen") is not False for side in (before, after))
    if was and not is_now:
        message = "integration.failOpen is false: without its remote store the backend is not ready"
        return [Note(WARNING, "FailClosedEnabled", message)]
    if is_now and not was:
        message = "integration.failOpen is true: engines serve on without the remote store"
        return [Note(NORMAL, "FailOpenRestored", message)]
    return []


def _of_selector(before: Document, after: Document) -> list[Note]:
    """[CTL-157]."""
    message = after.get("engineSelectorMessage")
    if after.get("matchedEnginePods") != 0 or not message:
        return []
    if before.get("matchedEnginePods") == 0 and before.get("engineSelectorMessage"):
        return []
    return [Note(NORMAL, "EngineSelectorUnmatched", message)]
