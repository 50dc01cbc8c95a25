"""The real system around the simulated engines: NATS, two indexers, three routers, a sidecar an engine."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.routing.trace import BLOCK_TOKENS
from inferencecache.cli.stack import Plan, Supervisor
from inferencecache.cli.stack.plan import HASH_SCHEME, HOST, Program, RouterAddress, nats_config_path
from inferencecache.cli.stack.ports import Ports
from tests.support.nats import nats_server_program

MODEL: Final = "trace-model"
PLAIN: Final = "plain"
BALANCED: Final = "balanced"
TENANTS: Final = (PLAIN, BALANCED)
INDEXERS: Final = 2
ROUTERS: Final = 3
DECAY_S: Final = 10.0
SHARING_S: Final = 0.1
STATISTICS_S: Final = 10.0
_POLICY: Final = """\
apiVersion: inferencecache.io/v1alpha1
kind: CachePolicy
metadata: {namespace: plain, name: plain}
spec: {strategy: {loadBalancing: Disabled}}
"""
POLICY_LIMIT_S: Final = 60.0


class EngineSockets(NamedTuple):
    """Where an engine publishes and where its sidecar is healthy; `tenant` is the policy that it serves."""

    name: str
    tenant: str
    events: str
    replay: str


class Stack(NamedTuple):
    """Addresses of everything; `metrics_port` is where the engines' metrics pages are expected."""

    plan: Plan
    engines: tuple[EngineSockets, ...]
    metrics_port: int


def plan_stack(engines: int, speed: float, folder: Path) -> Stack:
    """Every command line; what the processes keep is in `folder`.

    Settings that are times of the trace are divided by its `speed`.
    """
    ports = Ports(well_known=False)
    url = f"nats://{HOST}:{ports.take(0)}"
    metrics_port = ports.take(0)
    config = str(nats_config_path(folder))
    nats = Program("nats", (nats_server_program(), "-c", config), url.replace("nats://", "tcp://"))
    indexers = [_program(f"indexer-{number + 1}", "indexer", url, ports) for number in range(INDEXERS)]
    routers = tuple(
        RouterAddress(f"router-{number + 1}", f"{HOST}:{ports.take(0)}", f"{HOST}:{ports.take(0)}")
        for number in range(ROUTERS)
    )
    sockets = tuple(
        EngineSockets(f"{tenant}-{number + 1}", tenant, _zmq(ports), _zmq(ports))
        for tenant in TENANTS
        for number in range(engines)
    )
    readers = [
        *(_router(router, url, speed) for router in routers),
        *(_sidecar(engine, url, f"{HOST}:{ports.take(0)}", metrics_port, speed) for engine in sockets),
    ]
    plan = Plan(
        stages=((nats,), (indexers[0],), (*indexers[1:], *readers)),
        nats_url=url,
        indexers=(),
        routers=routers,
        engines=(),
        control=(),
        replaced_ports={},
    )
    return Stack(plan, sockets, metrics_port)


@asynccontextmanager
async def running(stack: Stack, folder: Path) -> AsyncIterator[None]:
    """The processes, ready and with the policy in force."""
    async with Supervisor(stack.plan, folder, _say, restart=False) as supervisor:
        await supervisor.start()
        policy = folder / "policy.yaml"
        policy.write_text(_POLICY)
        command = ("policy", "apply", "--file", str(policy), "--nats-url", stack.plan.nats_url)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "inferencecache.cli", *command, "--wait", "30s", stdout=sys.stderr
        )
        async with asyncio.timeout(POLICY_LIMIT_S):
            if await process.wait():
                raise RuntimeError("the policy was not applied; its command says why")
        yield


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _program(name: str, module: str, url: str, ports: Ports) -> Program:
    http = f"{HOST}:{ports.take(0)}"
    return Program(name, (*_module(module, url), "--http-bind-address", http), f"http://{http}/readyz")


def _router(router: RouterAddress, url: str, speed: float) -> Program:
    command = (
        *_module("router", url),
        *("--grpc-bind-address", router.grpc, "--http-bind-address", router.http),
        *("--load-decay", _scaled(DECAY_S, speed)),
    )
    return Program(router.name, command, f"http://{router.http}/readyz")


def _sidecar(engine: EngineSockets, url: str, health: str, metrics_port: int, speed: float) -> Program:
    command = (
        *_module("kvevent_subscriber", url),
        *("--engine-endpoint", engine.events, f"--replay-endpoint={engine.replay}"),
        *("--engine-metrics-url", f"http://{HOST}:{metrics_port}/{engine.name}/metrics"),
        *("--stats-interval", _scaled(STATISTICS_S, speed)),
        *("--replica-id", engine.name, "--model-id", MODEL, "--tenant-id", engine.tenant),
        *("--hash-scheme", HASH_SCHEME, "--block-size", str(BLOCK_TOKENS), "--health-address", health),
    )
    return Program(f"sidecar-{engine.name}", command, f"http://{health}/readyz")


def _module(name: str, url: str) -> Sequence[str]:
    return (sys.executable, "-m", f"inferencecache.{name}", "--nats-url", url, "--insecure-nats")


def _zmq(ports: Ports) -> str:
    return f"tcp://{HOST}:{ports.take(0)}"


def _scaled(seconds: float, speed: float) -> str:
    return f"{1000 * seconds / speed:.0f}ms"
