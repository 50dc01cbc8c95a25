"""Keeps the processes of a plan running: starts them by stage, starts again what dies, stops them all.

`processes.json` in the state folder says at any time which process has which id, for people who kill
one, for scripts, and for the guard, which ends them all when the supervisor itself is killed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Final, Self

import aiohttp

from inferencecache.cli.stack import guard
from inferencecache.cli.stack.plan import Plan, nats_config, nats_config_path
from inferencecache.cli.stack.process import STOP_LIMIT_S, Child

READY_LIMIT_S: Final = 180.0
"""Covers a first start that compiles kernels on a slow machine."""
SLOW_START_S: Final = 4.0
RESTART_DELAY_S: Final = 0.5
MAX_RESTART_DELAY_S: Final = 8.0
HEALTHY_AFTER_S: Final = 15.0
PROCESSES_FILE: Final = "processes.json"

Say = Callable[[str], None]


class Supervisor:
    """Runs a plan inside `async with`. `say` gets one line for each thing a person should know."""

    def __init__(self, plan: Plan, state_dir: Path, say: Say, *, restart: bool = True) -> None:
        self.plan = plan
        self._state_dir = state_dir
        self._processes = state_dir / PROCESSES_FILE
        self._say = say
        self._restart = restart
        self._stages = [
            [Child(program, state_dir / "logs" / f"{program.name}.log") for program in stage]
            for stage in plan.stages
        ]
        self._watchers: list[asyncio.Task[None]] = []

    @property
    def children(self) -> list[Child]:
        """Every process, in the order of starting."""
        return [child for stage in self._stages for child in stage]

    async def __aenter__(self) -> Self:
        (self._state_dir / "logs").mkdir(parents=True, exist_ok=True)
        nats_config_path(self._state_dir).write_text(nats_config(self.plan, self._state_dir))
        for path, text in self.plan.files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self._write_processes()
        self._guard = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", guard.__file__, str(self._processes), str(STOP_LIMIT_S)),
            stdin=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        self._http = aiohttp.ClientSession()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        self._write_processes()
        await self._guard.communicate(b"")
        await self._http.close()

    async def start(self) -> None:
        """Start everything and return once it is ready. Raises `NotReadyError`."""
        for stage in filter(None, self._stages):
            self._say(f"starting {_listing([child.program.name for child in stage])}")
            await _finished(_start_all(stage))
            self._write_processes()
            waiting = [asyncio.create_task(self._await_ready(child)) for child in stage]
            try:
                await asyncio.gather(*waiting)
            finally:
                for task in waiting:
                    task.cancel()
            self._watchers += [asyncio.create_task(self._watch(child)) for child in stage]

    async def stop(self) -> None:
        """Stop everything, the last stage first; takes at most a stop limit for each stage."""
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        self._watchers.clear()
        for stage in reversed(self._stages):
            await asyncio.gather(*(child.stop() for child in stage))

    async def _await_ready(self, child: Child) -> None:
        waiting = asyncio.create_task(child.await_ready(self._http, READY_LIMIT_S))
        try:
            done, _ = await asyncio.wait([waiting], timeout=SLOW_START_S)
            if not done:
                hint = child.program.first_start
                self._say(f"waiting for {child.program.name}{f' ({hint})' if hint else ''}")
            await waiting
        finally:
            waiting.cancel()

    async def _watch(self, child: Child) -> None:
        """Start the process again whenever it ends, later each time it ends soon after its start."""
        name = child.program.name
        delay = RESTART_DELAY_S
        while True:
            code = await child.wait()
            self._write_processes()
            ended = (
                f"{name} was ended by signal {-code}" if code < 0 else f"{name} ended with exit code {code}"
            )
            if not self._restart:
                self._say(f"{ended}; start it again with: {child.command}")
                return
            if time.monotonic() - child.started_at > HEALTHY_AFTER_S:
                delay = RESTART_DELAY_S
            self._say(f"{ended}; starting it again in {delay:.1f} s (log: {child.log})")
            await asyncio.sleep(delay)
            delay = min(delay * 2, MAX_RESTART_DELAY_S)
            await _finished(child.start())
            self._write_processes()

    def _write_processes(self) -> None:
        """Replace the file as a whole, so that a reader never sees half of it."""
        document = {
            child.program.name: {
                "pid": child.pid,
                "ready": child.program.ready,
                "command": child.program.command,
                "log": str(child.log),
            }
            for child in self.children
            if child.pid
        }
        draft = self._processes.with_suffix(".new")
        draft.write_text(json.dumps(document, indent=2) + "\n")
        draft.replace(self._processes)


async def _start_all(children: list[Child]) -> None:
    await asyncio.gather(*(child.start() for child in children))


async def _finished(work: Coroutine[None, None, None]) -> None:
    """Run to the end also when cancelled, so that no process is started that nobody stops."""
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


def _listing(names: list[str]) -> str:
    return ", ".join(names[:-1]) + f" and {names[-1]}" if len(names) > 1 else names[0]
