"""The router's flags."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from inferencecache.core.index.request import DEFAULT_BLOCK_SIZE
from inferencecache.core.index.work import DEFAULT_DECAY_S
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
from inferencecache.router.gateway.settings import (
    GatewaySettings,
    add_gateway_settings,
    gateway_settings,
)
from inferencecache.router.restriction import EVERYTHING, Restriction
from inferencecache.schemas.ids import ModelId, TenantId

_DESCRIPTION: Final = (
    "Answers LookupRoute: which replica of a model already has the prefix of a prompt in its cache. It "
    "holds a replica of the index, rebuilt from snapshots and deltas at every start, so any number of "
    "routers may run side by side. It also takes cache reports over gRPC and appends them to the log."
)
_EPILOG: Final = """examples:
  inferencecache-router --nats-url=nats://127.0.0.1:4222 --insecure-nats
  INFERENCECACHE_NATS_URL=nats://nats:4222 INFERENCECACHE_NATS_CREDS_FILE=/etc/nats/router.creds \\
      inferencecache-router --log-format=text

The NATS server keeps the log (JetStream must be on) and at least one inferencecache-indexer must run."""


class RouterSettings(msgspec.Struct, frozen=True):
    """Times in seconds; `http_address` None means no listener, the TLS files None mean plaintext."""

    nats: NatsSettings
    log_format: str
    log_level: str
    grpc_address: tuple[str, int]
    http_address: tuple[str, int] | None
    grpc_reflection: bool
    tls_files: tuple[Path, Path] | None
    block_size: int
    ready_timeout_s: float
    models_dir: Path | None = None
    balanced_ranking: bool = True
    load_decay_s: float = DEFAULT_DECAY_S
    assets: AssetSettings = AssetSettings()
    restriction: Restriction = EVERYTHING
    gateway: GatewaySettings = GatewaySettings(None)


def read_settings(
    arguments: Sequence[str] | None = None, environment: Mapping[str, str] | None = None
) -> RouterSettings:
    """Settings from the command line and the environment; a wrong one ends the process with 2."""
    parser = SettingsParser("inferencecache-router", _DESCRIPTION, epilog=_EPILOG, environment=environment)
    add_nats_settings(parser, required=True)
    add_asset_settings(parser)
    with parser.section("gRPC", "Where gateways and producers call."):
        parser.setting(
            "--grpc-bind-address",
            default=":9090",
            parse=_grpc_address,
            help="Address of the gRPC service, its health service and reflection.",
        )
        parser.setting(
            "--grpc-reflection",
            default=True,
            parse=bool,
            help="Let tools such as grpcurl list and call the service without a copy of its contract.",
        )
        parser.setting(
            "--tls-cert-file",
            default="",
            help="PEM certificate (chain) of the gRPC port; with --tls-key-file it speaks TLS. A new "
            "file is used from the next handshake on.",
        )
        parser.setting("--tls-key-file", default="", help="PEM private key of --tls-cert-file.")
    with parser.section("lookups"):
        parser.setting(
            "--engine-block-size",
            default=str(DEFAULT_BLOCK_SIZE),
            parse=_block_size,
            help="KV block size of the engines in tokens, for lookups that send token ids. It must be "
            "theirs: another one never matches. 0 or less means the default.",
        )
        parser.setting(
            "--tokenizer-models-dir",
            default="",
            help="Folder of tokenizers, for lookups that send text: a model's folder below it is named like "
            "the model and holds tokenizer.json and its chat template. Loaded once at start; empty for "
            "none. Needs the extra inference-cache-router[text].",
        )
        parser.setting(
            "--balanced-ranking",
            default=True,
            parse=bool,
            help="Rank by cached prefix and by the work that hints assigned lately. Without it a prefix "
            "that everybody shares sends everybody to one replica.",
        )
        parser.setting(
            "--load-decay",
            default="10s",
            parse=_load_decay,
            help="Time in which assigned work falls to 1/e: about how long it keeps an engine busy. Routers "
            "tell each other of it every hundredth of this time.",
        )
    with parser.section(
        "part of the fleet",
        "A router serves every tenant and model unless it is restricted. Lookups about anything else then "
        "get NO_HINT, and it answers no functional probes; reports are taken for all. It holds those "
        "partitions that may have what it serves, each of them whole, since a part of one cannot be checked "
        "against its owner's digest. So memory is saved only when both are given: with one of them any "
        "partition may have it.",
    ):
        parser.setting(
            "--tenants",
            default="",
            parse=_names,
            help="Serve only these tenants, separated by commas; empty for all.",
        )
        parser.setting(
            "--models",
            default="",
            parse=_names,
            help="Serve only these models, separated by commas; empty for all.",
        )
    add_gateway_settings(parser)
    with parser.section("health and metrics"):
        parser.setting(
            "--http-bind-address",
            default=":8080",
            parse=listen_address,
            help="Address of /healthz, /readyz and /metrics; empty for none.",
        )
        parser.setting(
            "--ready-timeout",
            default="30s",
            parse=duration,
            help="How long /readyz waits for the whole index before it turns true without it; until the "
            "index is complete lookups answer NO_HINT.",
        )
    add_log_settings(parser)
    add_tracing_settings(parser)
    parser.check(_check_tls)
    args = parser.parse_args(arguments)
    files = (Path(args.tls_cert_file), Path(args.tls_key_file)) if args.tls_cert_file else None
    return RouterSettings(
        nats=nats_settings(args),
        log_format=args.log_format,
        log_level=args.log_level,
        grpc_address=args.grpc_bind_address,
        http_address=args.http_bind_address,
        grpc_reflection=args.grpc_reflection,
        tls_files=files,
        block_size=args.engine_block_size,
        ready_timeout_s=args.ready_timeout,
        models_dir=Path(args.tokenizer_models_dir) if args.tokenizer_models_dir else None,
        balanced_ranking=args.balanced_ranking,
        load_decay_s=args.load_decay,
        assets=asset_settings(args),
        restriction=Restriction(frozenset(map(TenantId, args.tenants)), frozenset(map(ModelId, args.models))),
        gateway=gateway_settings(args),
    )


def _grpc_address(text: str) -> tuple[str, int]:
    address = listen_address(text)
    if address is None:
        raise ValueError("a router without a gRPC listener serves nobody; write HOST:PORT or :PORT")
    return address


def _block_size(text: str) -> int:
    try:
        size = int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number of tokens") from None
    return size if size > 0 else DEFAULT_BLOCK_SIZE


def _names(text: str) -> tuple[str, ...]:
    """Names separated by commas; the empty text is none."""
    names = tuple(name.strip() for name in text.split(",")) if text.strip() else ()
    if not all(names):
        raise ValueError(f"{text!r} has an empty name; separate names by single commas")
    return names


def _load_decay(text: str) -> float:
    seconds = duration(text)
    if seconds <= 0:
        raise ValueError("work that never decays grows without end; write a duration above 0 such as 10s")
    return seconds


def _check_tls(args: argparse.Namespace) -> None:
    if bool(args.tls_cert_file) != bool(args.tls_key_file):
        raise ValueError("--tls-cert-file and --tls-key-file must both be set or both be empty")
