"""What every process needs around its work: settings, logs, HTTP endpoints, start and stop.

A service's `main` builds a `SettingsParser`, configures logging from it, and hands its coroutine to
`run`, which sets an event when the process is asked to stop. Nothing here knows NATS, gRPC or the
index, and nothing imports more than the sidecar can afford.
"""

from __future__ import annotations

from inferencecache.core.service.asset_settings import AssetSettings, add_asset_settings, asset_settings
from inferencecache.core.service.cancelling import ended
from inferencecache.core.service.errors import ListenError, RefusedError
from inferencecache.core.service.http import HttpEndpoints
from inferencecache.core.service.labels import MOST_NAMES, OTHER, LabelNames
from inferencecache.core.service.logs import configure_logging, get_logger
from inferencecache.core.service.measures import CounterMeasure, GaugeMeasure, HistogramMeasure, Measure
from inferencecache.core.service.queues import Queue, QueueMetrics, queue_measures, queue_metrics
from inferencecache.core.service.runtime import run
from inferencecache.core.service.settings import (
    NatsSettings,
    Setting,
    SettingsParser,
    add_log_settings,
    add_nats_settings,
    at_least,
    duration,
    listen_address,
    nats_settings,
    nats_url,
)
from inferencecache.core.service.tls import CertificateError, CertificateFiles, CertificatePair
from inferencecache.core.service.tracing import add_tracing_settings, configure_tracing

__all__ = [
    "MOST_NAMES",
    "OTHER",
    "AssetSettings",
    "CertificateError",
    "CertificateFiles",
    "CertificatePair",
    "CounterMeasure",
    "GaugeMeasure",
    "HistogramMeasure",
    "HttpEndpoints",
    "LabelNames",
    "ListenError",
    "Measure",
    "NatsSettings",
    "Queue",
    "QueueMetrics",
    "RefusedError",
    "Setting",
    "SettingsParser",
    "add_asset_settings",
    "add_log_settings",
    "add_nats_settings",
    "add_tracing_settings",
    "asset_settings",
    "at_least",
    "configure_logging",
    "configure_tracing",
    "duration",
    "ended",
    "get_logger",
    "listen_address",
    "nats_settings",
    "nats_url",
    "queue_measures",
    "queue_metrics",
    "run",
]
