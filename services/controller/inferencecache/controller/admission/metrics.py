"""What the webhooks export."""

from __future__ import annotations

from typing import Final, Literal

from prometheus_client import CollectorRegistry

from inferencecache.core.service import CounterMeasure, HistogramMeasure

Outcome = Literal["allowed", "denied", "malformed"]

REVIEWS: Final = CounterMeasure(
    "inferencecache_admission_reviews",
    "Answered admission requests.",
    "that the API server had the answer in time; a request that never reached this replica is in no series",
    ("webhook", "outcome"),
)
SECONDS: Final = HistogramMeasure(
    "inferencecache_admission_review_seconds",
    "Time from a request's head to its answer, reading of other objects included.",
    "how long the API server waited: TLS handshakes come on top",
    ("webhook",),
)


class AdmissionMetrics:
    """Counted where an answer is written."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._reviews = REVIEWS.register(registry)
        self._seconds = SECONDS.register(registry)

    def told(self, webhook: str, outcome: Outcome, seconds: float) -> None:
        """One answer."""
        self._reviews.labels(webhook, outcome).inc()
        self._seconds.labels(webhook).observe(seconds)
