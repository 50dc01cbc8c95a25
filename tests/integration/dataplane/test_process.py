"""The indexer as a process: what it says before it starts, when it is ready, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from inferencecache.core.log import Bucket, ensure_assets
from inferencecache.core.log.subjects import LAYOUT, LAYOUT_KEY
from inferencecache.schemas.layout import CurrentLayout, Layout
from tests.support.dataplane import DataPlane, has_all
from tests.support.nats import NatsServer
from tests.support.ports import free_port
from tests.support.waiting import eventually


class Process:
    """An indexer process, or another one; its HTTP port is read from its log."""

    def __init__(self, folder: Path, *arguments: str, module: str = "inferencecache.indexer") -> None:
        self._log = folder / f"indexer-{len(list(folder.glob('indexer-*')))}.log"
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith("INFERENCECACHE")
        }
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdout=log,
                stderr=log,
                env=environment,
            )

    @property
    def output(self) -> str:
        return self._log.read_text()

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(10)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[list[Process]]:
    started: list[Process] = []
    yield started
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()


def page(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def test_without_an_address_of_nats_it_says_what_to_set(tmp_path: Path) -> None:
    process = Process(tmp_path)
    assert process.process.wait(30) == 2
    assert "--nats-url" in process.output
    assert "INFERENCECACHE_NATS_URL" in process.output


def test_its_help_teaches_every_flag(tmp_path: Path) -> None:
    process = Process(tmp_path, "--help")
    assert process.process.wait(30) == 0
    for flag in (
        "--max-entries",
        "--snapshot-interval",
        "--sweep-interval",
        "--delta-interval",
        "--partitions",
    ):
        assert flag in process.output
    assert "INFERENCECACHE_MAX_ENTRIES" in process.output


async def test_a_process_gets_ready_is_killed_restarted_and_stopped(
    nats_server: NatsServer, plane: DataPlane, tmp_path: Path, processes: list[Process]
) -> None:
    port = free_port()
    flags = ("--nats-url", nats_server.url, "--insecure-nats", "--http-bind-address", f"127.0.0.1:{port}")
    first = Process(tmp_path, *flags)
    processes.append(first)
    await eventually(lambda: page(port, "/healthz") == (200, "ok\n"), within_s=40)
    await eventually(lambda: page(port, "/readyz") == (200, "ok\n"), within_s=40)
    router = await plane.follower()
    producer = await plane.producer("r1")
    await producer.begin()
    await producer.store(1)
    await eventually(has_all(router, producer))
    assert 'inferencecache_index_entries{model="m"} 8.0' in page(port, "/metrics")[1]
    assert 'inferencecache_replica_last_event_at{replica="r1",tenant="t"}' in page(port, "/metrics")[1]
    await asyncio.to_thread(first.end, signal.SIGKILL)
    await producer.store(100)
    second = Process(tmp_path, *flags)
    processes.append(second)
    await eventually(lambda: page(port, "/readyz") == (200, "ok\n"), within_s=40)
    await producer.store(200)
    await eventually(has_all(router, producer))
    assert all(replica.follower.repairs == 0 for replica in router.replicas)
    assert await asyncio.to_thread(second.end, signal.SIGTERM) == 0
    assert "graceful_shutdown_done" in second.output


@pytest.mark.parametrize(
    ("module", "more"),
    [("inferencecache.indexer", ()), ("inferencecache.router", ("--grpc-bind-address=127.0.0.1:0",))],
)
async def test_a_layout_of_a_newer_schema_is_refused_at_start_in_one_line(
    nats_server: NatsServer, plane: DataPlane, tmp_path: Path, module: str, more: tuple[str, ...]
) -> None:
    log = await plane.log()
    await ensure_assets(log, Layout())
    await Bucket(log, LAYOUT).put(LAYOUT_KEY, msgspec.json.encode(CurrentLayout(2, 4, schema=99)))
    process = Process(
        tmp_path,
        *("--nats-url", nats_server.url, "--insecure-nats", "--http-bind-address=127.0.0.1:0", *more),
        module=module,
    )
    assert await asyncio.to_thread(process.process.wait, 40) == 1
    (refusal,) = [line for line in map(json.loads, process.output.splitlines()) if line["level"] == "error"]
    assert refusal["event"] == "start_refused"
    assert "schema 99" in refusal["msg"]
    assert "upgrade" in refusal["msg"]


async def test_without_a_server_it_waits_and_is_not_ready(tmp_path: Path, processes: list[Process]) -> None:
    port = free_port()
    process = Process(
        tmp_path, "--nats-url=nats://127.0.0.1:1", "--insecure-nats", f"--http-bind-address=127.0.0.1:{port}"
    )
    processes.append(process)
    await eventually(lambda: page(port, "/readyz") == (503, "not ready\n"), within_s=40)
    assert await asyncio.to_thread(process.end, signal.SIGTERM) == 0
