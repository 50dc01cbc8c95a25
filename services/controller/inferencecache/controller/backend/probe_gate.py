"""The gate of the functional probe, for a managed store's backend [CTL-120..132].

A probe takes a synthetic block through the log into a router's view. One that was answered is not repeated
for half a minute; one that was not says nothing about the backend.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

from inferencecache.controller.backend.verdicts import shortened
from inferencecache.core.kube.backends import Backend, text
from inferencecache.core.kube.conditions import Verdict
from inferencecache.schemas.ids import HashScheme, ModelId
from inferencecache.schemas.requests import ProbeRequest, ProbeResult

WINDOW_S: Final = 30.0
_BYPASS: Final = "inferencecache.io/skip-functional-probe"
_MODEL: Final = ModelId("functional-self-test")
STAGES: Final = ("ingest", "routing", "t2")
_PASSED: Final = ("ok", "skipped")
_FAILURES: Final = {
    "ingest": ("ProbeIngestFailed", "the synthetic block did not reach the index"),
    "routing": ("ProbeRoutingFailed", "the lookup of the synthetic block did not find it"),
    "t2": ("ProbeT2Failed", "the put/get cycle of tier 2 failed"),
}


class ProbeFailedError(Exception):
    """A probe has no answer that counts. The text says why [CTL-127]."""


ProbeAnswer = ProbeResult | ProbeFailedError


class Probed(NamedTuple):
    """What a pass makes of the gate. `condition` is what to set, None to leave it as it is; `wake_up_s` is 0
    without a wish.
    """

    ready: Verdict
    condition: Verdict | None = None
    wake_up_s: float = 0.0


class ProbeWindows:
    """When each backend's probe was last answered, as this process remembers it [CTL-128..130]."""

    def __init__(self) -> None:
        self._answered: dict[str, datetime] = {}

    def left_s(self, backend: str, now: datetime) -> float:
        """Seconds for which no probe is wanted; 0 when one may be made, also if the clock was set back."""
        answered = self._answered.get(backend)
        elapsed_s = -1.0 if answered is None else (now - answered).total_seconds()
        return WINDOW_S - elapsed_s if 0 <= elapsed_s < WINDOW_S else 0.0

    def consume(self, backend: str, now: datetime) -> None:
        """An answer was put into the status."""
        self._answered[backend] = now

    def forget(self, backend: str) -> None:
        """The backend is gone, or on a path without probes."""
        self._answered.pop(backend, None)


def is_bypassed(backend: Backend) -> bool:
    """Only the very word counts."""
    return backend.annotations.get(_BYPASS) == "true"


def probe_request(backend: Backend) -> ProbeRequest:
    """[CTL-121]."""
    return ProbeRequest(
        backend=f"{backend.namespace}/{backend.name}",
        model=_MODEL,
        hash_scheme=HashScheme(backend.runtime_id or "vllm"),
        backend_type=text(backend.spec, "type"),
    )


def bypassed(ready: Verdict) -> Probed:
    """By annotation."""
    return Probed(ready, Verdict("True", "ProbeBypassed", f"by the annotation {_BYPASS}"))


def held(ready: Verdict, condition: Verdict | None, left_s: float) -> Probed:
    """What an earlier probe found holds on for so long at least."""
    return Probed(_downgraded(ready, condition), None, left_s)


def answered(ready: Verdict, condition: Verdict | None, answer: ProbeAnswer) -> Probed:
    """A probe was made. Without an answer an earlier failure holds on, and anything else is unknown."""
    if isinstance(answer, ProbeResult):
        verdict = _judged(answer)
    elif condition is not None and condition.status == "False":
        return held(ready, condition, WINDOW_S)
    else:
        verdict = Verdict("Unknown", "ProbeError", shortened(f"probe call failed: {answer}"))
    return Probed(_downgraded(ready, verdict), verdict, WINDOW_S)


def counted_results(result: ProbeResult) -> tuple[tuple[str, str], ...]:
    """Each stage with the result that it is counted under [CTL-132]."""
    values = [(stage, getattr(result, stage)) for stage in STAGES]
    return tuple((stage, value if value in _PASSED else "failed") for stage, value in values)


def _downgraded(ready: Verdict, condition: Verdict | None) -> Verdict:
    if condition is None or condition.status != "False":
        return ready
    return Verdict("False", condition.reason, f"functional probe failed: {condition.message}")


def _judged(result: ProbeResult) -> Verdict:
    for stage, (reason, fallback) in _FAILURES.items():
        if getattr(result, stage) == "failed":
            said = next((error.message for error in result.errors if error.stage == stage), "")
            return Verdict("False", reason, shortened(said or fallback))
    if all(getattr(result, stage) in _PASSED for stage in STAGES):
        return Verdict("True", "ProbeOK", "a synthetic block was ingested and found by a lookup")
    values = " ".join(f'{stage}="{getattr(result, stage)}"' for stage in STAGES)
    return Verdict("False", "ProbeError", shortened(f"the answer makes no sense: {values}"))
