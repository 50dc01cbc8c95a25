"""A fleet: the processes of `inferencecache up`, each of which may be harmed, ended and started again.

Nothing starts them again but the test.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from inferencecache.cli.stack.plan import (
    EngineAddress,
    Program,
    RouterAddress,
    StackSettings,
    nats_config,
    nats_config_path,
    plan_stack,
)
from inferencecache.cli.stack.ports import Ports
from inferencecache.cli.stack.process import Child
from inferencecache.core.service import NatsSettings

READY_LIMIT_S: Final = 180.0
"""Covers the first start of all, which compiles kernels, on a busy machine."""
BLOCK_SIZE: Final = 16
NATS: Final = "nats"

ByProcess = Mapping[str, Sequence[str]]
"""Something for a process by its name, `engine-1`, or for all of a kind, `engine`."""


class Fleet:
    """One nats-server, indexers, two routers, and engines with a sidecar each, inside `async with`.

    `flags` are added to command lines, `environment` (`NAME=value`) to what processes inherit. Both may be
    changed for the next start of a process. Processes named in `without` are not started with the rest.
    """

    def __init__(
        self,
        folder: Path,
        *,
        engines: int = 2,
        indexers: int = 2,
        blocks: int = 64,
        flags: ByProcess | None = None,
        environment: ByProcess | None = None,
        without: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.flags = {name: tuple(given) for name, given in (flags or {}).items()}
        self.environment = {name: tuple(given) for name, given in (environment or {}).items()}
        self._without = frozenset(without)
        self._settings = StackSettings(
            folder,
            indexers=indexers,
            engines=engines,
            control_group=False,
            num_blocks=blocks,
            block_size=BLOCK_SIZE,
            prefill_tokens_per_second=20_000.0,
            decode_tokens_per_second=400.0,
        )
        self._ports = Ports(well_known=False)
        """Kept while the fleet lives, also for processes that are down: no other one takes them."""
        self._plan = plan_stack(self._settings, self._ports)
        (folder / "logs").mkdir(parents=True)
        nats_config_path(folder).write_text(nats_config(self._plan, folder))
        self._stages = [[program.name for program in stage] for stage in self._plan.stages]
        self._programs = {program.name: program for stage in self._plan.stages for program in stage}
        self._children = {name: self._child(program) for name, program in self._programs.items()}
        self.engines: tuple[EngineAddress, ...] = self._plan.engines
        self.routers: tuple[RouterAddress, ...] = self._plan.routers
        self.nats = NatsSettings(self._plan.nats_url, insecure=True)

    async def __aenter__(self) -> Self:
        self.http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30.0))
        try:
            for stage in self._stages:
                names = [name for name in stage if name not in self._without]
                await asyncio.gather(*map(self.start, names))
                await asyncio.gather(*map(self.ready, names))
            await self.all_ready([name for name in self.names if name not in self._without])
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    @property
    def store(self) -> Path:
        """Where the server keeps its streams."""
        return self.folder / "jetstream"

    @property
    def names(self) -> list[str]:
        """Every process, running or not, in the order of starting."""
        return [name for stage in self._stages for name in stage]

    def pid(self, name: str) -> int:
        """Process id, 0 while it is not running."""
        return self._children[name].pid

    def running(self, prefix: str = "") -> list[str]:
        """Names of the running processes of one kind: `engine`, `sidecar`, `nats`, …"""
        return [name for name in self.names if name.startswith(prefix) and self.pid(name)]

    async def kill(self, *names: str) -> None:
        """SIGKILL; returns once they have ended of it."""
        for name in names:
            self.signal(name, signal.SIGKILL)
        for name in names:
            code = await self._children[name].wait()
            assert code == -signal.SIGKILL, f"{name} had ended with exit code {code}"

    async def start(self, name: str) -> None:
        """Start what is not running; it is not waited for."""
        assert not self.pid(name), f"{name} is running"
        self._children[name] = self._child(self._programs[name])
        await self._children[name].start()

    async def ready(self, name: str) -> None:
        """Return once it answers. Raises `NotReadyError` when it has ended by itself."""
        await self._children[name].await_ready(self.http, READY_LIMIT_S)

    async def restart(self, *names: str) -> None:
        """SIGKILL, start again, and wait until ready."""
        await self.kill(*names)
        await asyncio.gather(*map(self.start, names))
        await asyncio.gather(*map(self.ready, names))

    async def all_ready(self, names: Iterable[str] = ()) -> None:
        """Return once these processes answer, or every running one. Raises `NotReadyError` when one of them
        has ended by itself.
        """
        await asyncio.gather(*map(self.ready, names or self.running()))

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a running process."""
        pid = self.pid(name)
        assert pid, f"{name} is not running"
        os.kill(pid, number)

    def said(self, name: str) -> str:
        """All that a process has logged, in all its lives."""
        return self._children[name].log.read_text(errors="replace")

    async def is_ready(self, name: str) -> bool:
        """Does it answer now that it is ready?"""
        async with self.http.get(self._programs[name].ready) as answer:
            return answer.status == 200

    async def metric(self, name: str, metric: str, **labels: str) -> float:
        """Sum of a process's samples of one name, of those with these labels; 0 where there are none."""
        async with self.http.get(self._programs[name].ready.rpartition("/")[0] + "/metrics") as answer:
            page = await answer.text()
        return sum(
            sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
            if sample.name == metric and labels.items() <= sample.labels.items()
        )

    def _child(self, program: Program) -> Child:
        kind = program.name.partition("-")[0]
        flags = (*self.flags.get(kind, ()), *self.flags.get(program.name, ()))
        variables = (*self.environment.get(kind, ()), *self.environment.get(program.name, ()))
        prefix = ("/usr/bin/env", *variables) if variables else ()
        program = replace(program, command=(*prefix, *program.command, *flags))
        return Child(program, self.folder / "logs" / f"{program.name}.log")

    async def _stop(self) -> None:
        for stage in reversed(self._stages):
            await asyncio.gather(*(self._children[name].stop() for name in stage))
        await self.http.close()
