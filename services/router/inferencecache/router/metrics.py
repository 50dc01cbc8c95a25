"""The router's metrics of the serving surface [OPS-37]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry

from inferencecache.core.service import OTHER, CounterMeasure, GaugeMeasure, HistogramMeasure, LabelNames

UP: Final = GaugeMeasure(
    "inferencecache_server_up",
    "1 from before the listeners accept until shutdown.",
    "that the process can be reached, or that its view is complete",
)
GRPC_TLS: Final = GaugeMeasure(
    "inferencecache_server_grpc_tls_enabled",
    "1 when the gRPC port speaks TLS.",
    "that the certificate is valid, or that callers check it",
)
CALLS: Final = CounterMeasure(
    "inferencecache_lookup_route_calls",
    "LookupRoute calls answered; hint_used says whether the answer had a scored replica.",
    "that a hint was right or was followed; the engines' cache hit rates do",
    ("model", "reason_code", "hint_used"),
)
LATENCY: Final = HistogramMeasure(
    "inferencecache_lookup_route_latency_seconds",
    "Time from entering the LookupRoute handler to its answer.",
    "how long callers wait: the network and the queue of the connection come on top",
    ("model",),
)

_LATENCY_BUCKETS_S: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1)


class ServerMetrics:
    """Whether the process serves, and what it answers."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.up = UP.register(registry)
        self.grpc_tls_enabled = GRPC_TLS.register(registry)
        self._calls = CALLS.register(registry)
        self._latency = LATENCY.register(registry, _LATENCY_BUCKETS_S)
        self._models = LabelNames()
        self._count: dict[tuple[str, str, bool], Callable[[], None]] = {}
        self._observe: dict[str, Callable[[float], None]] = {}

    def answered(
        self, model: str, reason_code: str, hint_used: bool, seconds: float, is_known: Callable[[], bool]
    ) -> None:
        """Count one call. `is_known` says whether the index knows the model: callers choose its name,
        so only known names become labels.
        """
        model = self._models.label(model) if model in self._models or is_known() else OTHER
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
