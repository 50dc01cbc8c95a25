"""What every process needs around its work: settings, logs, HTTP endpoints, start and stop.

A service's `main` builds a `SettingsParser`, configures logging from it, and hands its coroutine to
`run`, which sets an event when the process is asked to stop. Nothing here knows NATS, gRPC or the
index, and nothing imports more than the sidecar can afford.
"""

from __future__ import annotations

from inferencecache.core.service.asset_settings import AssetSettings, add_asset_settings, asset_settings
from inferencecache.core.service.errors import ListenError
from inferencecache.core.service.http import HttpEndpoints
from inferencecache.core.service.logs import configure_logging, get_logger
from inferencecache.core.service.runtime import run
from inferencecache.core.service.settings import (
    NatsSettings,
    SettingsParser,
    add_log_settings,
    add_nats_settings,
    at_least,
    duration,
    listen_address,
    nats_settings,
)

__all__ = [
    "AssetSettings",
    "HttpEndpoints",
    "ListenError",
    "NatsSettings",
    "SettingsParser",
    "add_asset_settings",
    "add_log_settings",
    "add_nats_settings",
    "asset_settings",
    "at_least",
    "configure_logging",
    "duration",
    "get_logger",
    "listen_address",
    "nats_settings",
    "run",
]
