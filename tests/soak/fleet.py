"""The processes of a soak, each of which may be killed and started again at any time.

They are those of `inferencecache up`, with one router, and nothing starts them again but the soak.
"""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Self

import aiohttp

from inferencecache.cli.stack.plan import (
    EngineAddress,
    Program,
    StackSettings,
    nats_config,
    nats_config_path,
    plan_stack,
)
from inferencecache.cli.stack.ports import Ports
from inferencecache.cli.stack.process import Child

READY_LIMIT_S = 180.0
ENGINES = 10
BLOCK_SIZE = 16
BLOCKS = 64
FLAGS = {
    "engine": ("--buffer-steps=1000000",),  # it can replay all that it ever sent
    "sidecar": ("--outbox-max=32",),  # NATS is often away for longer
}


class Fleet:
    """One nats-server, indexer and router, and engines with a sidecar each, inside `async with`."""

    def __init__(self, folder: Path) -> None:
        self._settings = StackSettings(
            folder,
            engines=ENGINES,
            control_group=False,
            num_blocks=BLOCKS,
            block_size=BLOCK_SIZE,
            prefill_tokens_per_second=20_000.0,
            decode_tokens_per_second=400.0,
        )
        self._plan = plan_stack(self._settings, Ports(well_known=False))
        (folder / "logs").mkdir(parents=True)
        nats_config_path(folder).write_text(nats_config(self._plan, folder))
        self._stages = [
            [self._child(program) for program in stage if program.name != self._plan.routers[1].name]
            for stage in self._plan.stages
        ]
        self._children = {child.program.name: child for stage in self._stages for child in stage}
        self.engines: tuple[EngineAddress, ...] = self._plan.engines
        self.nats_url = self._plan.nats_url

    async def __aenter__(self) -> Self:
        self.http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30.0))
        try:
            for stage in self._stages:
                await asyncio.gather(*(child.start() for child in stage))
                await asyncio.gather(*(child.await_ready(self.http, READY_LIMIT_S) for child in stage))
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    def running(self, prefix: str) -> list[str]:
        """Names of the running processes of one kind: `engine`, `sidecar`, `nats`, …"""
        return [name for name, child in self._children.items() if name.startswith(prefix) and child.pid]

    async def kill(self, name: str) -> None:
        """SIGKILL."""
        child = self._children[name]
        os.kill(child.pid, signal.SIGKILL)
        await child.wait()

    async def start(self, name: str) -> None:
        """Start what was killed; it is not waited for."""
        await self._children[name].start()

    async def all_ready(self) -> None:
        """Return once every process answers. Raises `NotReadyError` when one has ended by itself."""
        await asyncio.gather(
            *(child.await_ready(self.http, READY_LIMIT_S) for child in self._children.values())
        )

    def _child(self, program: Program) -> Child:
        flags = FLAGS.get(program.name.partition("-")[0], ())
        program = replace(program, command=(*program.command, *flags))
        return Child(program, self._settings.state_dir / "logs" / f"{program.name}.log")

    async def _stop(self) -> None:
        for stage in reversed(self._stages):
            await asyncio.gather(*(child.stop() for child in stage))
        await self.http.close()
