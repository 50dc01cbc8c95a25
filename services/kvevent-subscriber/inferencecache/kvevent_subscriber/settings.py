"""The sidecar's flags [SUB-150..178]; the defaults suit a managed engine, which passes only what it must."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NoReturn, get_args
from urllib.parse import urlsplit

import msgspec

from inferencecache.core.log.subjects import InvalidIdError, escape
from inferencecache.core.protocol.producer import ProducerSettings
from inferencecache.core.service import (
    NatsSettings,
    SettingsParser,
    add_log_settings,
    add_nats_settings,
    at_least,
    duration,
    listen_address,
    nats_settings,
)
from inferencecache.kvevent_subscriber.adapters import parse_adapter_names
from inferencecache.kvevent_subscriber.endpoints import check_endpoint, of_rank, replay_beside
from inferencecache.kvevent_subscriber.engine_metrics import CacheTier, StatsSettings
from inferencecache.kvevent_subscriber.event_path import OnGap
from inferencecache.kvevent_subscriber.mapping import MappingSettings, UnknownParent
from inferencecache.kvevent_subscriber.media import CpuMedium
from inferencecache.schemas.ids import HashScheme, ModelId, ReplicaId, TenantId

DEFAULT_NATS_URL: Final = "nats://127.0.0.1:4222"
DEFAULT_WINDOW_S: Final = 0.02
DEFAULT_STATS_INTERVAL_S: Final = 10.0
DEFAULT_ALIVE_INTERVAL_S: Final = 20.0

_DESCRIPTION: Final = (
    "Sidecar of an inference engine: reads the engine's KV-cache events and metrics page and appends what "
    "they say to the log in NATS JetStream. It never slows the engine down, starts without engine and "
    "without NATS, and passes on hashes and counts only, no prompts and no token ids."
)
_EPILOG: Final = """examples:
  kvevent-subscriber --replica-id=vllm-0 --model-id=Qwen/Qwen2.5-0.5B-Instruct
  kvevent-subscriber --replica-id=sgl-0 --model-id=my-model --hash-scheme=sglang --topic= \\
      --engine-metrics-url=http://127.0.0.1:30000/metrics

vLLM needs --kv-events-config
  {"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5557",
   "replay_endpoint":"tcp://*:5558","topic":"kv-events"}
SGLang the same without the first key, with --enable-metrics and a page size equal to the router's
block size. Both publish under an empty topic unless told otherwise. POD_UID, if set, is the uid of
the pod; NATS_CREDS may hold the text of a NATS credentials file."""


class SubscriberSettings(msgspec.Struct, frozen=True):
    """Times in seconds. `endpoints` and `replay_endpoints` have one entry a rank, empty for no replay."""

    nats: NatsSettings
    log_format: str
    log_level: str
    replica: ReplicaId
    model: ModelId
    tenant: TenantId
    scheme: HashScheme
    pod_uid: str
    endpoints: tuple[str, ...]
    replay_endpoints: tuple[str, ...]
    replay_timeout_s: float
    topic: str
    rank_replicas: bool
    on_gap: OnGap
    mapping: MappingSettings
    producer: ProducerSettings
    metrics_url: str
    stats_interval_s: float
    stats: StatsSettings
    engine_model_name: str
    health_address: tuple[str, int] | None


class _Parser(SettingsParser):
    """An address that can be no NATS server's means that the process cannot be set up, hence 1 [SUB-185]."""

    def error(self, message: str) -> NoReturn:
        if message.startswith(("argument --nats-url", "environment variable INFERENCECACHE_NATS_URL")):
            self.exit(1, f"{self.prog}: error: {message}\n")
        super().error(message)


def read_settings(
    arguments: Sequence[str] | None = None, environment: Mapping[str, str] | None = None
) -> SubscriberSettings:
    """Settings from the command line and the environment; a wrong one ends the process with 2 [SUB-186]."""
    parser = _Parser("kvevent-subscriber", _DESCRIPTION, epilog=_EPILOG, environment=environment)
    _add_identity(parser)
    _add_engine(parser)
    _add_mapping(parser)
    _add_statistics(parser)
    _add_delivery(parser)
    add_nats_settings(parser, required=False, default_url=DEFAULT_NATS_URL)
    add_log_settings(parser)
    parser.check(_check_endpoints)
    args = parser.parse_args(arguments)
    return SubscriberSettings(
        nats=nats_settings(args),
        log_format=args.log_format,
        log_level=args.log_level,
        replica=ReplicaId(args.replica_id),
        model=ModelId(args.model_id),
        tenant=TenantId(args.tenant_id),
        scheme=HashScheme(args.hash_scheme),
        pod_uid=parser.environment.get("POD_UID", ""),
        endpoints=_endpoints(args),
        replay_endpoints=_replay_endpoints(args),
        replay_timeout_s=args.replay_timeout,
        topic=args.topic,
        rank_replicas=args.rank_replicas,
        on_gap=args.on_gap,
        mapping=MappingSettings(
            block_size=args.block_size,
            unknown_parent=args.unknown_parent,
            ignore_block_removed=args.ignore_block_removed,
            lora_adapter_names=args.lora_adapter_names,
            lora_names_from_engine=args.lora_names_from_engine,
            max_tracked_blocks=args.max_tracked_blocks,
            cpu_medium=args.cpu_medium,
        ),
        producer=ProducerSettings(args.window, args.outbox_max, args.alive_interval),
        metrics_url=args.engine_metrics_url,
        stats_interval_s=args.stats_interval,
        stats=StatsSettings(args.engine_cache_size_bytes, args.max_concurrency_ceiling, args.cache_tier),
        engine_model_name=args.engine_model_name,
        health_address=args.health_address,
    )


def _add_identity(parser: SettingsParser) -> None:
    with parser.section("identity", "Who the records are about; nothing of it is taken from the engine."):
        parser.setting(
            "--replica-id",
            default="",
            parse=_id,
            required=True,
            example="vllm-0",
            help="Id of this engine, as gateways know it: the pod's name in the managed wiring.",
        )
        parser.setting(
            "--model-id",
            default="",
            parse=_id,
            required=True,
            example="my-model",
            help="Model id that gateways ask with. Need not be the name in the engine's metrics.",
        )
        parser.setting(
            "--tenant-id",
            default="",
            parse=_id,
            help="Tenant that gateways ask with: the pod's namespace in the managed wiring; empty = shared.",
        )
        parser.setting(
            "--hash-scheme",
            default="vllm",
            parse=_not_empty,
            help="Tag of the records, which lookups must name, and the profile of the metrics page: sglang "
            "for SGLang, anything else for vLLM.",
        )


def _add_engine(parser: SettingsParser) -> None:
    with parser.section("engine events"):
        parser.setting(
            "--engine-endpoint",
            default="tcp://127.0.0.1:5557",
            parse=check_endpoint,
            help="The engine's PUB socket; with ranks the one of rank 0. Host * binds, for engines that "
            "connect.",
        )
        parser.setting(
            "--topic",
            default="kv-events",
            help="Topic prefix to subscribe to; empty for every message. Engines publish under an empty "
            "topic by default, which this default does not match.",
        )
        parser.setting(
            "--replay-endpoint",
            default="auto",
            parse=_replay_endpoint,
            help="The engine's replay socket (of rank 0); auto = the next port, with a single rank; "
            "empty = none.",
        )
        parser.setting(
            "--replay-timeout",
            default="2s",
            parse=_positive(2.0),
            help="How long to wait for each message of a replay.",
        )
        parser.setting(
            "--data-parallel-size",
            default=1,
            parse=at_least(1),
            help="Number of ranks; each has its own sockets on the following ports.",
        )
        parser.setting(
            "--rank-replicas",
            default=False,
            parse=bool,
            help="Report each rank as a replica of its own, REPLICA@dpN, for gateways that can address a "
            "rank.",
        )


def _add_mapping(parser: SettingsParser) -> None:
    with parser.section("from events to prefixes"):
        parser.setting(
            "--block-size",
            default=0,
            parse=at_least(0),
            help="Tokens a block, which must be the router's too; 0 = what the engine says.",
        )
        parser.setting(
            "--unknown-parent",
            default="hold",
            choices=get_args(UnknownParent),
            help="Stores whose parent was never announced: hold them until it is, drop them, or take them "
            "for the root of a sequence.",
        )
        parser.setting(
            "--on-gap",
            default="mark",
            choices=get_args(OnGap),
            help="When messages of the engine are lost: mark what was known as uncertain, keep it as it is, "
            "or clear it.",
        )
        parser.setting(
            "--ignore-block-removed",
            default=False,
            parse=bool,
            help="The engine has an offload tier: a block removed from the GPU is expected there.",
        )
        parser.setting(
            "--cpu-medium",
            default="local",
            choices=get_args(CpuMedium),
            help="Whether the medium 'cpu' is this pod's own memory or a pool of all pods, whose blocks are "
            "nobody's.",
        )
        parser.setting(
            "--lora-adapter-names",
            default="",
            parse=parse_adapter_names,
            help="Names of LoRA adapters by the engine's numbers, as in 1=sql-lora,2=chat-lora.",
        )
        parser.setting(
            "--lora-names-from-engine",
            default=True,
            parse=bool,
            help="Use the adapter names that the engine sends where no name is given for its number.",
        )
        parser.setting(
            "--max-tracked-blocks",
            default=100_000,
            parse=at_least(1),
            help="Most blocks to remember, 480 bytes each; beyond it the ends of the oldest chains go.",
        )


def _add_statistics(parser: SettingsParser) -> None:
    with parser.section("engine statistics"):
        parser.setting(
            "--engine-metrics-url",
            default="http://127.0.0.1:8000/metrics",
            parse=_http_url,
            help="The engine's metrics page (SGLang listens on 30000 by default).",
        )
        parser.setting(
            "--stats-interval",
            default="10s",
            parse=_positive(DEFAULT_STATS_INTERVAL_S),
            help="Time between reads of the page; 0 or less means the default.",
        )
        parser.setting(
            "--engine-cache-size-bytes",
            default=0,
            parse=int,
            help="Size of the KV cache, for the reported memory; 0 = not known.",
        )
        parser.setting(
            "--max-concurrency-ceiling",
            default=256,
            parse=int,
            help="Requests, running and waiting, at which the engine counts as full.",
        )
        parser.setting(
            "--cache-tier",
            default="auto",
            choices=get_args(CacheTier),
            help="Which usage gauge to read; auto = the unified one, else the larger of gpu and cpu.",
        )
        parser.setting(
            "--engine-model-name",
            default="",
            help="Read only samples with this model_name label; empty for all. Unrelated to --model-id.",
        )


def _add_delivery(parser: SettingsParser) -> None:
    with parser.section("delivery"):
        parser.setting(
            "--window",
            default="20ms",
            parse=_positive(DEFAULT_WINDOW_S),
            help="Longest time records are gathered under load; the first after a quiet moment never waits.",
        )
        parser.setting(
            "--outbox-max",
            default=1024,
            parse=at_least(1),
            help="Most records that wait while NATS is away; beyond it everything known is sent anew.",
        )
        parser.setting(
            "--alive-interval",
            default="20s",
            parse=_positive(DEFAULT_ALIVE_INTERVAL_S),
            help="How often to say that all that was reported is still there. A third of the TTL at most.",
        )
        parser.setting(
            "--health-address",
            default=":8082",
            parse=listen_address,
            help="Address of /healthz, /readyz and /metrics; empty for none.",
        )


def _check_endpoints(args: argparse.Namespace) -> None:
    _endpoints(args)
    _replay_endpoints(args)


def _endpoints(args: argparse.Namespace) -> tuple[str, ...]:
    return tuple(of_rank(args.engine_endpoint, rank) for rank in range(args.data_parallel_size))


def _replay_endpoints(args: argparse.Namespace) -> tuple[str, ...]:
    base: str = args.replay_endpoint
    if base == "auto":
        base = replay_beside(args.engine_endpoint) if args.data_parallel_size == 1 else ""
    return tuple(of_rank(base, rank) if base else "" for rank in range(args.data_parallel_size))


def _id(text: str) -> str:
    try:
        escape(text)
    except InvalidIdError as error:
        raise ValueError(str(error)) from None
    return text


def _not_empty(text: str) -> str:
    if not text:
        raise ValueError("must not be empty; the usual schemes are vllm and sglang")
    return text


def _replay_endpoint(text: str) -> str:
    return text if text in ("", "auto") else check_endpoint(text)


def _http_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{text!r} is no address of a page; write http://HOST:PORT/metrics")
    return text


def _positive(default: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        seconds = duration(text)
        return seconds if seconds > 0 else default

    return parse
