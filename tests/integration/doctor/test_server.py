"""The doctor asks a router for its health, in plaintext and over TLS."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from typer.testing import CliRunner

from inferencecache.cli.app import app
from inferencecache.cli.doctor.collecting.kube import problem_of_dial
from inferencecache.cli.doctor.collecting.server import ask_health
from inferencecache.cli.doctor.facts import Health, Unreachable
from inferencecache.cli.router import RouterSettings, RouterTls
from tests.support.webhooks import TLS_DATA

CRT, KEY = (TLS_DATA / f"first.{ending}" for ending in ("crt", "key"))


@asynccontextmanager
async def serving(
    status: health_pb2.HealthCheckResponse.ServingStatus.ValueType, *, tls: bool = False
) -> AsyncIterator[str]:
    """The address of a server that says this of itself."""
    servicer = health.aio.HealthServicer()
    server = grpc.aio.server()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    credentials = grpc.ssl_server_credentials([(KEY.read_bytes(), CRT.read_bytes())])
    address = "127.0.0.1:0"
    port = server.add_secure_port(address, credentials) if tls else server.add_insecure_port(address)
    await servicer.set("", status)
    await server.start()
    yield f"localhost:{port}"
    await server.stop(None)


SERVING = health_pb2.HealthCheckResponse.SERVING


async def test_a_server_tells_its_status() -> None:
    async with serving(health_pb2.HealthCheckResponse.NOT_SERVING) as address:
        assert await ask_health(RouterSettings(address), 5) == Health("NOT_SERVING")


@pytest.mark.rule("OPS-77")
async def test_over_tls_the_authority_has_to_be_given() -> None:
    secured = RouterTls(True, CRT.read_bytes(), "localhost")
    async with serving(SERVING, tls=True) as address:
        assert await ask_health(RouterSettings(address, secured), 10) == Health("SERVING")
        assert isinstance(await ask_health(RouterSettings(address), 3), Unreachable)


@pytest.mark.rule("OPS-87")
async def test_a_dial_is_a_plain_connection() -> None:
    async with serving(SERVING) as address:
        assert await problem_of_dial(f"http://{address}") == ""
        assert await problem_of_dial(address) == ""
    assert "127.0.0.1" in await problem_of_dial("127.0.0.1:1")
    assert await problem_of_dial("nonsense") == "it is no host:port"


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """Runs it where there is no cluster."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("inferencecache.cli.commands.doctor.configure_logging", lambda *_: None)
    return lambda *arguments: CliRunner().invoke(app, ["doctor", *arguments])


@pytest.mark.rule("OPS-W34", "OPS-72", "OPS-73")
@pytest.mark.parametrize(
    "arguments",
    [
        ("extra",),
        ("-o", "yaml"),
        ("--kubeconfig", "/nonexistent"),
        ("--context", "nowhere"),
        ("--config-only",),
        ("--timeout", "soon"),
        ("--engine", "x"),
        ("--nats-url", "nats://elsewhere:4222"),
        ("--unknown",),
    ],
)
def test_a_run_that_cannot_start_says_error_and_reports_nothing(
    doctor: Callable[..., Any], arguments: tuple[str, ...]
) -> None:
    result = doctor(*arguments)
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")


@pytest.mark.rule("OPS-72", "OPS-73")
def test_without_a_cluster_what_needs_none_is_judged(doctor: Callable[..., Any]) -> None:
    nowhere = ("--nats-url", "nats://127.0.0.1:1", "--server-endpoint", "127.0.0.1:1")
    result = doctor(*nowhere, "--timeout", "1s", "-o", "table")
    assert result.exit_code == 2
    lines = result.stdout.splitlines()
    header = next(number for number, line in enumerate(lines) if line.startswith("STATUS"))
    found = [line.split()[1] for line in lines[header + 1 :]]
    assert found == ["SV001", "SN001", "PL001", "PB001"]
    assert "no cluster" in result.stderr
