"""Processes are started in order, started again when they die, and stopped in bounded time."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from inferencecache.cli.stack.plan import Plan, Program
from inferencecache.cli.stack.ports import Ports
from inferencecache.cli.stack.process import Child, NotReadyError
from inferencecache.cli.stack.supervisor import Supervisor
from tests.support.waiting import eventually

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
    return Plan((programs,), "nats://127.0.0.1:1", (), (), (), (), {})


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


async def test_a_process_that_is_late_and_silent_is_said_to_be_both(tmp_path: Path) -> None:
    silent = Program("silent", (sys.executable, "-c", "import signal; signal.pause()"), "http://127.0.0.1:1/")
    child = Child(silent, tmp_path / "silent.log")
    await child.start()
    try:
        async with aiohttp.ClientSession() as http:
            with pytest.raises(NotReadyError, match=r"silent was not ready .* busy.*; it logged nothing to"):
                await child.await_ready(http, 0.0)
    finally:
        await child.stop()


async def test_a_process_that_did_not_get_its_port_is_not_ready_because_somebody_else_answers(
    tmp_path: Path,
) -> None:
    one = server("one")
    late = replace(one, name="late")
    async with Supervisor(plan_of(one), tmp_path, lambda _: None) as others:
        await others.start()
        child = Child(late, tmp_path / "late.log")
        await child.start()
        assert await child.wait() == 1
        async with aiohttp.ClientSession() as http:
            with pytest.raises(NotReadyError, match=r"late ended with exit code 1[\s\S]*in use"):
                await child.await_ready(http, 10.0)


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


SUPERVISED = """
import asyncio, sys
from pathlib import Path
from inferencecache.cli.stack.supervisor import Supervisor
from tests.unit.cli.test_supervisor import plan_of, server

async def main():
    async with Supervisor(plan_of(server("one"), server("two")), Path(sys.argv[1]), print) as supervisor:
        await supervisor.start()
        await asyncio.Event().wait()

asyncio.run(main())
"""


def listed(state_dir: Path) -> dict[str, int]:
    """Names of the processes in the file, and the ports that they listen on."""
    file = state_dir / "processes.json"
    if not file.exists():
        return {}
    processes = json.loads(file.read_text()).items()
    return {name: urlsplit(process["ready"]).port for name, process in processes}


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


async def test_processes_end_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    supervising = await asyncio.create_subprocess_exec(sys.executable, "-c", SUPERVISED, str(tmp_path))
    await eventually(lambda: len(listed(tmp_path)) == 2, within_s=20)
    ports = listed(tmp_path).values()
    await eventually(lambda: all(listens(port) for port in ports))
    supervising.kill()
    await supervising.wait()
    await eventually(lambda: not any(listens(port) for port in ports))


async def test_what_an_earlier_supervisor_left_in_the_file_is_not_this_ones_to_end(tmp_path: Path) -> None:
    (tmp_path / "processes.json").write_text(json.dumps({"old": {"pid": os.getpid()}}))
    async with Supervisor(plan_of(server("one")), tmp_path, lambda _: None):
        assert listed(tmp_path) == {}
