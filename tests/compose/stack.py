"""The stack of docker-compose.yaml as a test sees it: its services, what harms them, and clients of them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import grpc.aio
import pytest
from testcontainers.compose import DockerCompose

from inferencecache.v1alpha1.inferencecache_pb2_grpc import InferenceCacheStub
from tests.support.fleet.asking import ask, matched_by
from tests.support.ports import free_ports
from tests.support.waiting import eventually
from tools.images import ROOT

ROUTERS: Final = ("router-1", "router-2")
INDEXERS: Final = ("indexer-1", "indexer-2")
PROJECT: Final = "inference-cache-test"
PORTS: Final = (
    *(f"ROUTER_{number}_{kind}_PORT" for number in (1, 2) for kind in ("GRPC", "HTTP")),
    *(f"ENGINE_{number}_PORT" for number in (1, 2)),
)
LIMIT_S: Final = 120


class ComposedStack:
    """Up inside `with`. Names are those of services."""

    def __init__(self) -> None:
        self._patch = pytest.MonkeyPatch()
        self._compose = DockerCompose(ROOT, "docker-compose.yaml", wait=True)

    def __enter__(self) -> Self:
        self._patch.setenv("COMPOSE_PROJECT_NAME", PROJECT)
        for name, port in zip(PORTS, free_ports(len(PORTS)), strict=True):
            self._patch.setenv(name, str(port))
        try:
            self._compose.start()
        except BaseException as error:
            error.add_note(self.run("logs", "--tail=20").stdout)
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`docker compose` with these arguments, whatever comes of it."""
        return _run("docker", "compose", *arguments)

    def kill(self, *services: str) -> None:
        """SIGKILL; nothing starts them again but `start`."""
        assert self.run("kill", *services).returncode == 0

    def start(self, *services: str) -> None:
        """Start what does not run, and wait until it is healthy."""
        started = self.run("up", "--detach", "--no-build", "--no-recreate", "--wait", *services)
        assert started.returncode == 0, started.stderr

    def cut(self, service: str, network: str) -> None:
        """Take a container off a network."""
        assert (
            _run("docker", "network", "disconnect", f"{PROJECT}_{network}", self.id(service)).returncode == 0
        )

    def mend(self, service: str, network: str) -> None:
        """Put it back, under its name."""
        place = (f"{PROJECT}_{network}", self.id(service))
        assert _run("docker", "network", "connect", "--alias", service, *place).returncode == 0

    def id(self, service: str) -> str:
        """Of its container."""
        return self.run("ps", "--all", "--quiet", service).stdout.strip()

    def inspect(self, service: str) -> dict[str, Any]:
        """What the engine knows of its container."""
        described: list[dict[str, Any]] = json.loads(_run("docker", "inspect", self.id(service)).stdout)
        return described[0]

    def logs(self, *services: str) -> str:
        return self.run("logs", "--no-log-prefix", *services).stdout

    @property
    def services(self) -> list[str]:
        """All that are up."""
        return self.run("ps", "--services").stdout.split()

    async def complete(self, engine: str, prompt: Sequence[int]) -> None:
        """Have an engine serve a prompt, after which it holds it."""
        port = os.environ[f"ENGINE_{engine[-1]}_PORT"]
        limit = aiohttp.ClientTimeout(total=30)
        async with (
            aiohttp.ClientSession(timeout=limit) as session,
            session.post(
                f"http://127.0.0.1:{port}/v1/completions", json={"prompt": list(prompt), "max_tokens": 1}
            ) as answer,
        ):
            assert answer.status == 200

    async def holders(self, router: str, prompt: Sequence[int]) -> dict[str, int]:
        """Matched tokens by replica, as a router says; `AioRpcError` when it does not answer."""
        address = f"127.0.0.1:{os.environ[f'ROUTER_{router[-1]}_GRPC_PORT']}"
        async with grpc.aio.insecure_channel(address) as channel:
            return matched_by(await ask(InferenceCacheStub(channel), prompt))

    async def hinted(
        self, prompt: Sequence[int], engine: str, routers: Sequence[str] = ROUTERS, *, within_s: float = 30
    ) -> None:
        """Wait until these routers say that the engine holds all of the prompt.

        One may not answer at first: where a container's networks change, the engine lays its ports anew.
        """
        for router in routers:

            async def is_hinted(router: str = router) -> bool:
                with suppress(grpc.aio.AioRpcError):
                    return (await self.holders(router, prompt)).get(engine) == len(prompt)
                return False

            await eventually(is_hinted, within_s=within_s, what=f"a hint of {router}")

    def _end(self) -> None:
        self.run("down", "--volumes", "--timeout=10")
        self._patch.undo()


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
