"""The indexer's flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from inferencecache.core.service import (
    AssetSettings,
    NatsSettings,
    SettingsParser,
    add_asset_settings,
    add_log_settings,
    add_nats_settings,
    add_tracing_settings,
    asset_settings,
    duration,
    listen_address,
    nats_settings,
)

UNBOUNDED: Final = -1
DEFAULT_MAX_ENTRIES: Final = 1_000_000
DEFAULT_SWEEP_S: Final = 60
_LONGEST_SNAPSHOT_INTERVAL_S: Final = 3600.0
_DESCRIPTION: Final = (
    "Folds the log of engine events into the index and tells routers what changed, as snapshots and "
    "deltas. All its state is rebuilt from NATS at every start. Several may run side by side: each "
    "partition has one owner at a time."
)
_EPILOG: Final = """examples:
  inferencecache-indexer --nats-url=nats://127.0.0.1:4222 --insecure-nats
  INFERENCECACHE_NATS_URL=nats://nats:4222 INFERENCECACHE_NATS_CREDS_FILE=/etc/nats/indexer.creds \\
      inferencecache-indexer --max-entries=5000000

The NATS server keeps the log: JetStream must be on, with room for the streams on its disk."""


class IndexerSettings(msgspec.Struct, frozen=True):
    """Times in seconds; `http_address` None means no listener, `max_entries` -1 no limit."""

    nats: NatsSettings
    log_format: str = "json"
    log_level: str = "info"
    http_address: tuple[str, int] | None = None
    assets: AssetSettings = AssetSettings()
    max_entries: int = DEFAULT_MAX_ENTRIES
    snapshot_interval_s: float = 600.0
    sweep_interval_s: int = DEFAULT_SWEEP_S
    delta_interval_s: float = 0.01


def read_settings(
    arguments: Sequence[str] | None = None, environment: Mapping[str, str] | None = None
) -> IndexerSettings:
    """Settings from the command line and the environment; a wrong one ends the process with 2."""
    parser = SettingsParser("inferencecache-indexer", _DESCRIPTION, epilog=_EPILOG, environment=environment)
    add_nats_settings(parser, required=True)
    add_asset_settings(parser)
    with parser.section("index"):
        parser.setting(
            "--max-entries",
            default=str(DEFAULT_MAX_ENTRIES),
            parse=_cap,
            help="Most entries of the whole index, one for each prefix and replica that holds it; about "
            "64 bytes each, here and in every router. Each partition has a part of it, by demand. 0 or less "
            "means no limit.",
        )
        parser.setting(
            "--sweep-interval",
            default="60s",
            parse=_whole_seconds,
            help="Time in which every entry is looked at once for having expired; 0 means the default.",
        )
        parser.setting(
            "--delta-interval",
            default="10ms",
            parse=_delta_interval,
            help="Least time between two deltas: shorter is fresher, longer is cheaper.",
        )
        parser.setting(
            "--snapshot-interval",
            default="10m",
            parse=_snapshot_interval,
            help="Most time between two snapshots, at most 1h. A router or indexer that starts reads the "
            "latest one and what came after it.",
        )
    with parser.section("health and metrics"):
        parser.setting(
            "--http-bind-address",
            default=":8080",
            parse=listen_address,
            help="Address of /healthz, /readyz and /metrics; empty for none.",
        )
    add_log_settings(parser)
    add_tracing_settings(parser)
    args = parser.parse_args(arguments)
    return IndexerSettings(
        nats=nats_settings(args),
        log_format=args.log_format,
        log_level=args.log_level,
        http_address=args.http_bind_address,
        assets=asset_settings(args),
        max_entries=args.max_entries,
        snapshot_interval_s=args.snapshot_interval,
        sweep_interval_s=args.sweep_interval,
        delta_interval_s=args.delta_interval,
    )


def _cap(text: str) -> int:
    """A cap that is no limit is -1 [IDX-09]."""
    try:
        return max(int(text), 0) or UNBOUNDED
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number of entries") from None


def _whole_seconds(text: str) -> int:
    """Seconds between sweeps; the default for 0 or less [IDX-09]."""
    seconds = duration(text)
    if seconds <= 0:
        return DEFAULT_SWEEP_S
    if seconds < 1 or seconds != int(seconds):
        raise ValueError("write whole seconds, at least 1s")
    return int(seconds)


def _delta_interval(text: str) -> float:
    seconds = duration(text)
    if not 0.001 <= seconds <= 1:
        raise ValueError("write a time from 1ms to 1s")
    return seconds


def _snapshot_interval(text: str) -> float:
    seconds = duration(text)
    if not 1 <= seconds <= _LONGEST_SNAPSHOT_INTERVAL_S:
        raise ValueError("write a time from 1s to 1h")
    return seconds
