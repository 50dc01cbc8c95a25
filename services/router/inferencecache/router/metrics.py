"""The router's metrics of the serving surface [OPS-37]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

MAX_MODELS: Final = 1000
OTHER_MODELS: Final = "other"
_LATENCY_BUCKETS_S: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1)


class ServerMetrics:
    """Whether the process serves, and what it answers.

    None of them proves that a hint was right or was followed; the engines' cache hit rates do.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.up = Gauge(
            "inferencecache_server_up",
            "1 from before the listeners accept until shutdown.",
            registry=registry,
        )
        self.grpc_tls_enabled = Gauge(
            "inferencecache_server_grpc_tls_enabled", "1 when the gRPC port speaks TLS.", registry=registry
        )
        self._calls = Counter(
            "inferencecache_lookup_route_calls",
            "LookupRoute calls answered; hint_used says whether the answer had a scored replica.",
            ("model", "reason_code", "hint_used"),
            registry=registry,
        )
        self._latency = Histogram(
            "inferencecache_lookup_route_latency_seconds",
            "Time from entering the LookupRoute handler to its answer, without the network.",
            ("model",),
            buckets=_LATENCY_BUCKETS_S,
            registry=registry,
        )
        self._models: set[str] = set()
        self._count: dict[tuple[str, str, bool], Callable[[], None]] = {}
        self._observe: dict[str, Callable[[float], None]] = {}

    def answered(
        self, model: str, reason_code: str, hint_used: bool, seconds: float, is_known: Callable[[], bool]
    ) -> None:
        """Count one call. `is_known` says whether the index knows the model: callers choose its name,
        so only known names become labels, and at most 1,000 of them.
        """
        if model not in self._models:
            if len(self._models) < MAX_MODELS and is_known():
                self._models.add(model)
            else:
                model = OTHER_MODELS
        key = (model, reason_code, hint_used)
        count = self._count.get(key)
        if count is None:
            labels = (model, reason_code, "true" if hint_used else "false")
            count = self._count[key] = self._calls.labels(*labels).inc
        count()
        observe = self._observe.get(model)
        if observe is None:
            observe = self._observe[model] = self._latency.labels(model).observe
        observe(seconds)
