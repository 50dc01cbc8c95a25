"""The gate's script against a server that reports this and that."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest

from inferencecache.controller.injection.scripts import script_text

EXPECTED: Final = {
    "EXPECTED_INSTANCE_ID": "team-a/cache@u-1#3",
    "EXPECTED_SHM_NAME": "lmcache_l1_pool_inferencecache_u-1",
    "EXPECTED_MP_PORT": "6555",
    "EXPECTED_CHUNK_SIZE": "256",
    "EXPECTED_MAX_GPU_WORKERS": "4",
    "EXPECTED_MAX_CPU_WORKERS": "5",
}


class NodeServer:
    """An LMCache server's HTTP side. `pages` may be changed while it runs; a page None gets no answer."""

    def __init__(self) -> None:
        self.pages: dict[str, Any] = {}
        self.asked: list[str] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.port = self._http.server_address[1]
        self.pages = {"/config": self.config(), "/healthcheck": {"status": "healthy"}}
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def config(self) -> dict[str, Any]:
        """What a server reports that runs as it should."""
        name = EXPECTED["EXPECTED_SHM_NAME"]
        return {
            "mp": {
                "instance_id": EXPECTED["EXPECTED_INSTANCE_ID"],
                "shm_name": name,
                "port": 6555,
                "chunk_size": 256,
                "max_gpu_workers": 4,
                "max_cpu_workers": 5,
                "more": "ignored",
            },
            "storage_manager": {"l1_manager_config": {"memory_config": {"shm_name": name}}},
            "http": {"http_port": self.port},
        }

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(self.path)
                page = server.pages.get(self.path)
                body = page if isinstance(page, bytes) else json.dumps(page).encode()
                self.send_response(200 if page is not None else 503)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        return Handler

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def node() -> Iterator[NodeServer]:
    server = NodeServer()
    yield server
    server.stop()


def start_gate(
    node: NodeServer, *, client: str = "", ip: str = "127.0.0.1", pause: str = "0.01"
) -> subprocess.Popen[str]:
    script = script_text("gate").replace("PAUSE_S = 2", f"PAUSE_S = {pause}")
    own = {"INFERENCECACHE_NODE_IP": ip, "EXPECTED_HTTP_PORT": str(node.port), "CLIENT_CONFIG_PATH": client}
    return subprocess.Popen(
        [sys.executable, "-S", "-c", script],
        env=EXPECTED | own,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def first_line(gate: subprocess.Popen[str]) -> str:
    """What it prints on its first failed try."""
    assert gate.stdout is not None
    return gate.stdout.readline()


@pytest.mark.rule("ADM-197")
def test_the_gate_opens_at_once_for_the_server_that_is_wanted(node: NodeServer, tmp_path: Path) -> None:
    client = tmp_path / "client.yaml"
    gate = start_gate(node, client=str(client))
    output, _ = gate.communicate(timeout=20)
    assert (gate.returncode, output) == (0, "")
    assert node.asked == ["/config", "/healthcheck"]
    assert client.read_text() == 'chunk_size: 256\nmp_host: "127.0.0.1"\nmp_port: 6555\n'
    assert list(tmp_path.iterdir()) == [client]


@pytest.mark.rule("ADM-197")
def test_without_a_path_no_file_is_written(node: NodeServer) -> None:
    gate = start_gate(node)
    gate.communicate(timeout=20)
    assert gate.returncode == 0


@pytest.mark.rule("ADM-197")
@pytest.mark.parametrize(
    "path",
    [
        "mp.instance_id",
        "mp.shm_name",
        "mp.port",
        "mp.chunk_size",
        "mp.max_gpu_workers",
        "mp.max_cpu_workers",
        "storage_manager.l1_manager_config.memory_config.shm_name",
        "http.http_port",
    ],
)
def test_the_gate_stays_shut_for_a_server_of_other_settings(node: NodeServer, path: str) -> None:
    *parents, last = path.split(".")
    part = node.pages["/config"]
    for key in parents:
        part = part[key]
    right = part.pop(last)
    gate = start_gate(node)
    try:
        assert path in first_line(gate)
        part[last] = f"not {right}"
        part[last] = right
        gate.communicate(timeout=20)
        assert gate.returncode == 0
    finally:
        gate.kill()


@pytest.mark.rule("ADM-197")
@pytest.mark.parametrize(
    ("page", "answer"),
    [
        ("/config", None),
        ("/config", b"no json"),
        ("/config", []),
        ("/config", {"mp": "odd"}),
        ("/healthcheck", None),
        ("/healthcheck", {"status": "unhealthy"}),
        ("/healthcheck", "healthy"),
    ],
    ids=str,
)
def test_each_failed_try_says_why_in_one_line_and_the_next_may_succeed(
    node: NodeServer, page: str, answer: object
) -> None:
    right, node.pages[page] = node.pages[page], answer
    gate = start_gate(node)
    try:
        assert first_line(gate).startswith("waiting for the node's LMCache server: ")
        node.pages[page] = right
        output, _ = gate.communicate(timeout=20)
        assert gate.returncode == 0
        assert all(line.startswith("waiting for") for line in output.splitlines())
    finally:
        gate.kill()


@pytest.mark.rule("ADM-197")
def test_a_server_that_is_not_there_is_waited_for(node: NodeServer) -> None:
    node.stop()
    gate = start_gate(node, ip="::1")
    try:
        assert f"http://[::1]:{node.port}" in first_line(gate)
        assert gate.poll() is None
    finally:
        gate.kill()
        gate.communicate()


@pytest.mark.rule("ADM-197")
def test_there_are_two_seconds_between_tries(node: NodeServer) -> None:
    node.pages["/config"] = None
    gate = start_gate(node, pause="2")
    try:
        first_line(gate)
        began = time.monotonic()
        first_line(gate)
        assert 1.9 < time.monotonic() - began < 15
    finally:
        gate.kill()
        gate.communicate()
    assert "timeout=TIMEOUT_S" in script_text("gate")
    assert "TIMEOUT_S = 2\n" in script_text("gate")
