"""The sidecar as a process: starts without anything, tells how it is, ends when asked, leaks no prompt."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from inferencecache.schemas.records import Stored
from tests.support.engine import Engine
from tests.support.nats import NatsServer
from tests.support.ports import free_port
from tests.support.sidecar import LogTail, keys
from tests.support.waiting import eventually

PROMPT = tuple(range(7_654_321, 7_654_329))
"""Token ids that appear nowhere else."""


class Process:
    """A running sidecar and the lines of its log."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []
        self.text = ""
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.text += line.decode()
            if line.startswith(b"{"):
                self.lines.append(json.loads(line))

    def events(self) -> list[str]:
        """Stable names of the lines so far."""
        return [line["event"] for line in self.lines if "event" in line]

    async def end(self, number: int = signal.SIGTERM) -> int:
        """Signal it and wait; its exit code."""
        if self.process.returncode is None:
            self.process.send_signal(number)
        async with asyncio.timeout(15):
            code = await self.process.wait()
        await self._reading
        return code


Start = Callable[..., Awaitable[Process]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """`await start("--flag=value", VARIABLE="value")` starts a sidecar."""
    started: list[Process] = []

    async def start(*arguments: str, **environment: str) -> Process:
        process = Process(
            await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "inferencecache.kvevent_subscriber", *arguments),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, **environment},
            )
        )
        started.append(process)
        return process

    yield start
    for process in started:
        await process.end(signal.SIGKILL)


def get(port: int, path: str) -> tuple[int, str]:
    """Status and body of a page; 0 when nobody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, ""
    except OSError:
        return 0, ""


@pytest.mark.rule("SUB-182", "SUB-184", "SUB-187", "SUB-180")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_stays_up_without_engine_page_and_log_and_ends_with_0(start: Start, number: int) -> None:
    port = free_port()
    process = await start(
        "--replica-id=r",
        "--model-id=m",
        f"--nats-url=nats://127.0.0.1:{free_port()}",
        f"--engine-endpoint=tcp://127.0.0.1:{free_port()}",
        f"--engine-metrics-url=http://127.0.0.1:{free_port()}/metrics",
        "--stats-interval=50ms",
        f"--health-address=127.0.0.1:{port}",
    )
    await eventually(lambda: "load_signal_stale" in process.events(), within_s=30)
    assert await asyncio.to_thread(get, port, "/healthz") == (200, "ok\n")
    assert (await asyncio.to_thread(get, port, "/readyz"))[0] == 503
    assert (await asyncio.to_thread(get, port, "/elsewhere"))[0] == 404
    status, page = await asyncio.to_thread(get, port, "/metrics")
    assert status == 200
    assert "inferencecache_subscriber_scrapes_failed_total" in page
    assert await process.end(number) == 0
    assert process.lines[0]["msg"] == "sidecar started"
    assert process.lines[0]["replica"] == "r"
    assert process.events().count("load_signal_stale") == 1
    assert process.events().count("nats_unauthenticated") == 1
    assert all({"time", "level", "msg"} <= line.keys() for line in process.lines)


@pytest.mark.rule("SUB-184", "SUB-186")
async def test_help_ends_with_0_and_a_wrong_flag_with_2(start: Start) -> None:
    assert await (await start("--help")).end(0) == 0
    assert await (await start("--replica-id=r", "--model-id=m", "--nonsense")).end(0) == 2
    assert await (await start("--replica-id=r")).end(0) == 2


@pytest.mark.rule("SUB-187")
async def test_an_address_that_is_taken_is_a_warning(start: Start) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        process = await start(
            "--replica-id=r",
            "--model-id=m",
            f"--health-address=127.0.0.1:{taken.getsockname()[1]}",
            f"--nats-url=nats://127.0.0.1:{free_port()}",
        )
        await eventually(lambda: "no_health_page" in process.events(), within_s=30)
        assert await process.end() == 0


@pytest.mark.rule("SUB-002", "SUB-181")
async def test_no_token_of_a_prompt_leaves_the_process(
    start: Start, nats_server: NatsServer, tail: LogTail, engine: Engine
) -> None:
    port = free_port()
    process = await start(
        "--replica-id=vllm-0",
        "--model-id=m",
        "--tenant-id=t",
        "--log-level=debug",
        "--insecure-nats",
        "--stats-interval=50ms",
        f"--nats-url={nats_server.url}",
        f"--engine-endpoint={engine.live_endpoint}",
        f"--replay-endpoint={engine.replay_endpoint}",
        f"--engine-metrics-url={engine.metrics_url}",
        f"--health-address=127.0.0.1:{port}",
    )
    await eventually(lambda: engine.replay_requests, within_s=30)
    await engine.store([1, 2], PROMPT)
    await engine.store([3, 4], PROMPT[:4])
    await engine.store([5], PROMPT[:4], parent=99)
    await engine.store([6], [*PROMPT[:3], -1])
    await engine.publish(burnt=True)
    await engine.publish({"type": "BlockStored", "token_ids": list(PROMPT)})
    await eventually(lambda: tail.held() == set(keys(*PROMPT)), within_s=20)
    await eventually(lambda: "sequence_gap" in process.events(), within_s=20)
    assert (await asyncio.to_thread(get, port, "/readyz")) == (200, "ok\n")
    _, page = await asyncio.to_thread(get, port, "/metrics")
    assert await process.end() == 0
    assert {"token_mismatch", "orphan_events", "malformed_events", "engine_subscribed"} <= set(
        process.events()
    )
    told = repr(tail.records(Stored))
    for token in PROMPT:
        assert str(token) not in process.text
        assert str(token) not in page
        assert str(token) not in told
