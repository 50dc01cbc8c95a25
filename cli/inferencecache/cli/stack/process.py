"""One child process: started with its output in a file, watched, asked whether it is ready, stopped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import time
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import aiohttp

from inferencecache.cli.stack.plan import Program

STOP_LIMIT_S: Final = 9.0
"""One second more than every service allows itself to stop."""
POLL_S: Final = 0.1
LOG_TAIL_LINES: Final = 20


class NotReadyError(Exception):
    """A process ended or did not become ready in time; the text ends with the last lines of its log."""

    def __init__(self, program: Program, what: str, log: Path) -> None:
        tail = log_tail(log)
        said = f"the last lines of {log}:\n{tail}" if tail.strip() else f"it logged nothing to {log}"
        super().__init__(f"{program.name} {what}; {said}")
        self.program = program
        self.log = log


class Child:
    """One process of the plan, possibly started many times."""

    def __init__(self, program: Program, log: Path) -> None:
        self.program = program
        self.log = log
        self.started_at = 0.0
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Process id, 0 while it is not running."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else 0

    @property
    def command(self) -> str:
        """The command line as a shell takes it."""
        return shlex.join(self.program.command)

    async def start(self) -> None:
        """Start it in a session of its own, so that a terminal's Ctrl-C reaches only who stops it."""
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self.program.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.started_at = time.monotonic()

    async def wait(self) -> int:
        """Exit code, once it has ended."""
        return 0 if self._process is None else await self._process.wait()

    async def await_ready(self, http: aiohttp.ClientSession, limit_s: float) -> None:
        """Return once it answers. Raises `NotReadyError` when it ends first or takes longer.

        One that has ended is not ready, though somebody else may answer at the address that it did not get.
        """
        deadline = time.monotonic() + limit_s
        while True:
            is_answered = await answers(http, self.program.ready)
            if not self.pid:
                raise NotReadyError(self.program, f"ended with exit code {await self.wait()}", self.log)
            if is_answered:
                return
            if time.monotonic() > deadline:
                slow = f"was not ready within {limit_s:.0f} s; if the machine is busy, start it again later"
                raise NotReadyError(self.program, slow, self.log)
            await asyncio.sleep(POLL_S)

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL to what is left after `STOP_LIMIT_S`."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        _signal(process.pid, signal.SIGTERM, signal.SIGCONT)
        try:
            async with asyncio.timeout(STOP_LIMIT_S):
                await process.wait()
        except TimeoutError:
            _signal(process.pid, signal.SIGKILL)
            await process.wait()


def _signal(pid: int, *numbers: signal.Signals) -> None:
    """Signal a process without asking after it: `Process.send_signal` would take its exit code away."""
    with contextlib.suppress(ProcessLookupError):
        for number in numbers:
            os.kill(pid, number)


async def answers(http: aiohttp.ClientSession, ready: str) -> bool:
    """Whether the address of `Program.ready` answers now."""
    try:
        if ready.startswith("tcp://"):
            parts = urlsplit(ready)
            async with asyncio.timeout(1.0):
                _, writer = await asyncio.open_connection(parts.hostname, parts.port)
            writer.close()
            return True
        async with http.get(ready, timeout=aiohttp.ClientTimeout(total=1.0)) as response:
            return response.status == 200
    except (OSError, TimeoutError, aiohttp.ClientError):
        return False


def log_tail(log: Path, lines: int = LOG_TAIL_LINES) -> str:
    """Last lines of a log file; empty when there is none."""
    try:
        text = log.read_text(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])
