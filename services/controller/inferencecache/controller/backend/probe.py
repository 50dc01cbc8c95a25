"""Asking for a functional probe: one question on NATS, which one router of all answers."""

from __future__ import annotations

from typing import Final

import msgspec
from prometheus_client import CollectorRegistry

from inferencecache.controller.backend.probe_gate import ProbeAnswer, ProbeFailedError, counted_results
from inferencecache.core.log import Log, NoAnswerError
from inferencecache.core.log.subjects import PROBE_SUBJECT
from inferencecache.core.service import CounterMeasure
from inferencecache.schemas.requests import ProbeRequest, ProbeResult
from inferencecache.schemas.unreadable import UNREADABLE

LIMIT_S: Final = 5.0

RESULTS: Final = CounterMeasure(
    "inferencecache_backend_probe_result",
    "Stages of answered functional probes by result.",
    "that the backend's engines report anything: a probe uses a key of its own",
    ("backend", "stage", "result"),
)

_decoder = msgspec.json.Decoder(ProbeResult)


class Prober:
    """Probes over one connection, and counts what was answered [CTL-127, CTL-132]."""

    def __init__(self, log: Log, registry: CollectorRegistry, *, limit_s: float = LIMIT_S) -> None:
        self._log = log
        self._limit_s = limit_s
        self._results = RESULTS.register(registry)

    async def ask(self, request: ProbeRequest) -> ProbeAnswer:
        """The answer, or why there is none that counts."""
        try:
            message = await self._log.request(
                PROBE_SUBJECT, msgspec.json.encode(request), timeout_s=self._limit_s
            )
            result = _decoder.decode(message.data)
        except (NoAnswerError, *UNREADABLE) as error:
            return ProbeFailedError(str(error))
        if result.backend != request.backend:
            said = "; ".join(failure.message for failure in result.errors)
            about = result.backend or "no backend"
            return ProbeFailedError(f"the answer is about {about}" + (f": {said}" if said else ""))
        for stage, value in counted_results(result):
            self._results.labels(request.backend, stage, value).inc()
        return result

    def forget(self, backend: str) -> None:
        """The backend is gone, and what was counted for it."""
        self._results.remove_by_labels({"backend": backend})
