"""Processes are started in order, started again when they die, and stopped in bounded time."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from inferencecache.cli.stack.plan import Plan, Program
from inferencecache.cli.stack.ports import Ports
from inferencecache.cli.stack.process import NotReadyError
from inferencecache.cli.stack.supervisor import Supervisor

SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *arguments):
        pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def server(name: str) -> Program:
    port = Ports(well_known=False).take(0)
    return Program(name, (sys.executable, "-c", SERVER, str(port)), f"http://127.0.0.1:{port}/")


def plan_of(*programs: Program) -> Plan:
    return Plan((programs,), "nats://127.0.0.1:1", "", (), (), (), {})


async def eventually(condition: Callable[[], bool], limit_s: float = 20.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.02)


async def test_a_process_that_is_killed_is_started_again(tmp_path: Path) -> None:
    said: list[str] = []
    async with Supervisor(plan_of(server("one")), tmp_path, said.append) as supervisor:
        await supervisor.start()
        [child] = supervisor.children
        first = child.pid
        os.kill(first, signal.SIGKILL)
        await eventually(lambda: child.pid not in (0, first))
        assert any("one was ended by signal 9" in line for line in said)
    assert child.pid == 0


async def test_without_restart_the_command_to_start_it_by_hand_is_said(tmp_path: Path) -> None:
    said: list[str] = []
    async with Supervisor(plan_of(server("one")), tmp_path, said.append, restart=False) as supervisor:
        await supervisor.start()
        [child] = supervisor.children
        os.kill(child.pid, signal.SIGKILL)
        await eventually(lambda: any("start it again with: " in line for line in said))
        assert child.command in said[-1]
        assert child.pid == 0


async def test_a_process_that_ends_while_starting_shows_the_end_of_its_log(tmp_path: Path) -> None:
    broken = Program(
        "broken", (sys.executable, "-c", "import sys; sys.exit('no such model')"), "http://127.0.0.1:1/"
    )
    async with Supervisor(plan_of(server("one"), broken), tmp_path, lambda _: None) as supervisor:
        with pytest.raises(NotReadyError, match=r"broken ended with exit code 1[\s\S]*no such model"):
            await supervisor.start()
    assert [child.pid for child in supervisor.children] == [0, 0]


async def test_a_process_that_ignores_the_signal_to_stop_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inferencecache.cli.stack.process.STOP_LIMIT_S", 0.5)
    stubborn = server("stubborn")
    command = (
        *stubborn.command[:2],
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SERVER,
        *stubborn.command[3:],
    )
    stubborn = Program("stubborn", command, stubborn.ready)
    async with Supervisor(plan_of(stubborn), tmp_path, lambda _: None) as supervisor:
        await supervisor.start()
    assert supervisor.children[0].pid == 0
