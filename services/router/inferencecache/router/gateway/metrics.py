"""The gateway's metrics: what was picked by, how long it took, and which endpoints there are."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry

from inferencecache.core.gateway import Endpoints, Refusals
from inferencecache.core.gateway.open_work import OpenWork
from inferencecache.core.service import CounterMeasure, GaugeMeasure, HistogramMeasure

_PREFIX: Final = "inferencecache_gateway_"
_BUCKETS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)

PICKS: Final = CounterMeasure(
    f"{_PREFIX}picks",
    "Requests that a proxy asked about, by the reason for what it was told.",
    "that the proxy followed the pick, nor that the engine had the prefix",
    ("reason",),
)
LATENCY: Final = HistogramMeasure(
    f"{_PREFIX}pick_seconds",
    "Time from the whole of a request's prompt to its pick, tokenizing and lookup included.",
    "how long the proxy waited: reading the prompt comes first",
)
REFUSALS: Final = CounterMeasure(
    f"{_PREFIX}refusals",
    "Answers with status 429 or 503 that proxies reported.",
    "that there were no others: a proxy need not report",
)
ENDPOINTS: Final = GaugeMeasure(
    f"{_PREFIX}endpoints",
    "Endpoints that the source names, by whether they take requests.",
    "that an engine listens there",
    ("ready",),
)
REFUSING: Final = GaugeMeasure(
    f"{_PREFIX}endpoints_refusing",
    "Endpoints whose last answer was a refusal.",
    "that they still would refuse",
)
OPEN: Final = GaugeMeasure(
    f"{_PREFIX}open_requests",
    "Requests that were picked for and are not over.",
    "how much engines have to do: other routers pick for them too",
)


class GatewayMetrics:
    """Counts picks; the gauges read the tables when they are scraped."""

    def __init__(
        self, registry: CollectorRegistry, endpoints: Endpoints, refusals: Refusals, open_work: OpenWork
    ) -> None:
        self._picks = PICKS.register(registry)
        self._latency = LATENCY.register(registry, _BUCKETS_S)
        self._refusals = REFUSALS.register(registry)
        named = ENDPOINTS.register(registry)
        named.labels("true").set_function(lambda: len(endpoints.ready()))
        named.labels("false").set_function(lambda: len(endpoints) - len(endpoints.ready()))
        REFUSING.register(registry).set_function(lambda: len(refusals))
        OPEN.register(registry).set_function(lambda: sum(open_work.requests.values()))

    def picked(self, reason: str, seconds: float) -> None:
        """One pick; reasons are ours, so their number is small."""
        self._picks.labels(reason).inc()
        self._latency.observe(seconds)

    def refused(self) -> None:
        """One answer that was a refusal."""
        self._refusals.inc()
