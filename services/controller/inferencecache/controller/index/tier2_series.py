"""How much the second tier served of each backend's traffic, as metrics [CTL-226..229]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from prometheus_client import CollectorRegistry

from inferencecache.core.index.aggregate import Tier2
from inferencecache.core.kube.kinds import ObjectKey
from inferencecache.core.service import CounterMeasure, GaugeMeasure

RATE: Final = GaugeMeasure(
    "inferencecache_backend_t2_hit_rate",
    "Share of the tokens looked up in the second tier that it served, since the engines started.",
    "how it is doing lately: it is an average over the engines' lives",
    ("backend",),
)
QUERIES: Final = CounterMeasure(
    "inferencecache_backend_t2_query_tokens",
    "Tokens looked up in the second tier.",
    "that they were computed before: a tier is asked for whatever the engine's own cache lacks",
    ("backend",),
)


class Tier2Series:
    """Series of the backends whose engines have asked the second tier; they end with that."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._rate = RATE.register(registry)
        self._queries = QUERIES.register(registry)
        self._baselines: dict[str, int] = {}

    def update(self, backends: Mapping[ObjectKey, Tier2 | None]) -> None:
        """All backends there are; None keeps the series of one as they are."""
        kept = {str(key) for key, tier2 in backends.items() if tier2 is None or tier2.queries > 0}
        for gone in self._baselines.keys() - kept:
            self._rate.remove(gone)
            self._queries.remove(gone)
            del self._baselines[gone]
        for key, tier2 in backends.items():
            if tier2 is not None and tier2.rate is not None:
                self._observe(str(key), tier2.queries, tier2.rate)

    def _observe(self, backend: str, queries: int, rate: float) -> None:
        """Engines that restart count from 0 again: a sum that falls is a new beginning [CTL-228]."""
        self._rate.labels(backend).set(rate)
        grown = queries - self._baselines.get(backend, queries)
        self._queries.labels(backend).inc(max(0, grown))
        self._baselines[backend] = queries
