"""The gate for KV events: a backend whose engines report none is of no use [CTL-111..119]."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from inferencecache.controller.backend.readiness import NOT_DEGRADED, degraded_by
from inferencecache.controller.backend.verdicts import (
    AWAITING_FIRST_EVENT,
    EVENTS_OBSERVED,
    NO_EVENTS,
)
from inferencecache.core.kube.backends import EVENTS_ONLY, Backend
from inferencecache.core.kube.conditions import Verdict

_OPT_OUT = "inferencecache.io/require-kv-events"


class Gated(NamedTuple):
    """`wake_up_s` is when the wait ends, 0 without one."""

    ready: Verdict
    degraded: Verdict
    wake_up_s: float = 0.0


class EventClock(NamedTuple):
    """What is known of a backend's events: whether one was seen, since when it could have been, and whether
    the wait for it was found to be over by an earlier pass.
    """

    seen: bool
    anchor: datetime
    is_breached: bool


def gate_of_events(backend: Backend, base: Verdict, clock: EventClock, now: datetime) -> Gated:
    """The verdict behind the gate. A breach stays, whatever becomes of the timeout: only an event ends it
    [CTL-117].
    """
    if not base.holds or backend.annotations.get(_OPT_OUT) == "false":
        return Gated(base, degraded_by(base))
    if clock.seen:
        return Gated(Verdict("True", EVENTS_OBSERVED, "KV events of the engines were observed"), NOT_DEGRADED)
    timeout = timedelta(microseconds=backend.first_event_timeout_ns / 1000)
    left_s = (clock.anchor + timeout - now).total_seconds()
    wired = "wired" if backend.mode == EVENTS_ONLY else "available"
    what = "the backend is" if backend.mode == EVENTS_ONLY else "the workload is"
    shown = duration_text(backend.first_event_timeout_ns)
    if not clock.is_breached and left_s > 0:
        message = f"{what} {wired}; no KV event yet, one is awaited within {shown}"
        return Gated(Verdict("False", AWAITING_FIRST_EVENT, message), NOT_DEGRADED, left_s)
    message = (
        f"{what} {wired}, but no KV event came within {shown}; see whether engine pods are attached "
        "(status.matchedEnginePods) and whether the engine publishes KV events (--kv-events-config)"
    )
    return Gated(Verdict("False", NO_EVENTS, message), Verdict("True", NO_EVENTS, message))


def duration_text(nanoseconds: int) -> str:
    """As Kubernetes objects spell a duration: `5m`, `1h30m`, `1.5s`."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    hours, minutes = divmod(seconds // 60, 60)
    part = f"{rest:09}".rstrip("0")
    last = f"{seconds % 60}" + (f".{part}" if part else "")
    shown = [(str(hours), "h"), (str(minutes), "m"), (last, "s")]
    return "".join(f"{number}{unit}" for number, unit in shown if number != "0") or "0s"
