"""The controller's flags, and how it starts and stops."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import yaml
from structlog.testing import capture_logs

from inferencecache.controller.injection import SidecarSettings
from inferencecache.controller.serve import serve
from inferencecache.controller.settings import ControllerSettings, read_settings
from inferencecache.core.service import AssetSettings, ListenError, NatsSettings
from tests.support.waiting import eventually
from tests.support.webhooks import TLS_DATA

NATS = ("--nats-url=nats://127.0.0.1:1", "--insecure-nats")


@pytest.mark.rule("CTL-01", "OPS-10")
def test_the_defaults_are_those_of_the_contract() -> None:
    folder = Path("/tmp/k8s-webhook-server/serving-certs")
    assert read_settings(NATS, {}) == ControllerSettings(
        kubeconfig=None,
        webhook_address=("0.0.0.0", 9443),
        certificate=folder / "tls.crt",
        key=folder / "tls.key",
        metrics_address=("0.0.0.0", 8080),
        health_address=("0.0.0.0", 8081),
        sidecar=SidecarSettings(),
        nats=NatsSettings("nats://127.0.0.1:1", insecure=True),
        log_format="json",
        log_level="info",
        assets=AssetSettings(),
        leader_elect=False,
        namespace="inference-cache-system",
        functional_probe=True,
        refresh_interval_s=30.0,
        push_interval_s=30.0,
        metrics_secure=False,
    )


@pytest.mark.rule("CTL-01")
@pytest.mark.parametrize("written", ["0", "-5s", "0s"])
def test_an_interval_of_nothing_is_the_default(written: str) -> None:
    flags = [f"--{name}={written}" for name in ("cacheindex-refresh-interval", "cachepolicy-push-interval")]
    settings = read_settings([*NATS, *flags], {})
    assert (settings.refresh_interval_s, settings.push_interval_s) == (30.0, 30.0)


def test_flags_win_over_the_environment() -> None:
    environment = {"INFERENCECACHE_KVEVENT_SUBSCRIBER_IMAGE": "a:1", "INFERENCECACHE_KUBECONFIG": "here"}
    settings = read_settings([*NATS, "--kvevent-subscriber-image=b:2"], environment)
    assert settings.sidecar.image == "b:2"
    assert settings.kubeconfig == Path("here")


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--webhook-bind-address="], "without webhooks"),
        (["--webhook-bind-address=9443"], "HOST:PORT"),
        (["positional"], "positional"),
        (["--enable-http2=true"], "HTTP/2 is not offered"),
        (["--nats-url="], "--nats-url is required"),
    ],
)
def test_wrong_flags_end_the_process_with_2(
    flags: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        read_settings([*NATS, *flags], {})
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


@pytest.fixture
def settings(tmp_path: Path) -> ControllerSettings:
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    return msgspec.structs.replace(
        read_settings(NATS, {}),
        kubeconfig=tmp_path / "config",
        webhook_address=("127.0.0.1", 0),
        certificate=TLS_DATA / "first.crt",
        key=TLS_DATA / "first.key",
        metrics_address=("127.0.0.1", 0),
        health_address=("127.0.0.1", 0),
    )


@pytest.mark.rule("CTL-06")
async def test_it_is_ready_as_soon_as_webhooks_answer_whatever_the_api_does(
    settings: ControllerSettings,
) -> None:
    """Neither the API server nor NATS is there, and nobody leads."""
    settings = msgspec.structs.replace(settings, leader_elect=True)
    stop = asyncio.Event()
    with capture_logs() as logs:
        running = asyncio.ensure_future(serve(settings, stop))
        await eventually(lambda: running.done() or logs)
        started: Any = logs[0]
        assert started["event"] == "controller_started"
        async with aiohttp.ClientSession() as session:
            for port, path in (
                ("health_port", "/healthz"),
                ("health_port", "/readyz"),
                ("metrics_port", "/metrics"),
            ):
                async with session.get(f"http://127.0.0.1:{started[port]}{path}") as answer:
                    assert answer.status == 200
        stop.set()
        assert await running == 0
    assert [line["event"] for line in logs[-2:]] == ["graceful_shutdown_started", "graceful_shutdown_done"]


async def test_metrics_are_served_by_https_when_that_is_asked_for(settings: ControllerSettings) -> None:
    stop = asyncio.Event()
    trust = ssl.create_default_context(cafile=TLS_DATA / "first.crt")
    with capture_logs() as logs:
        running = asyncio.ensure_future(serve(msgspec.structs.replace(settings, metrics_secure=True), stop))
        await eventually(lambda: running.done() or logs)
        started: Any = logs[0]
        async with aiohttp.ClientSession() as session:
            async with session.get(
                f"https://127.0.0.1:{started['metrics_port']}/metrics", ssl=trust
            ) as answer:
                assert "process_resident_memory_bytes" in await answer.text()
            async with session.get(f"http://127.0.0.1:{started['health_port']}/healthz") as answer:
                assert answer.status == 200
        stop.set()
        assert await running == 0


async def test_a_certificate_that_cannot_be_used_ends_it_with_1(
    settings: ControllerSettings, tmp_path: Path
) -> None:
    wrong = msgspec.structs.replace(settings, certificate=tmp_path / "absent")
    with capture_logs() as logs:
        assert await serve(wrong, asyncio.Event()) == 1
    (line,) = logs
    assert line["event"] == "webhook_tls_load"
    assert "--webhook-cert-file=" in line["msg"]
    assert "--webhook-key-file=" in line["msg"]


async def test_a_taken_port_names_its_flag(settings: ControllerSettings) -> None:
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    address = taken.sockets[0].getsockname()[:2]
    try:
        for field, flag in (
            ("webhook_address", "--webhook-bind-address"),
            ("metrics_address", "--metrics-bind-address"),
            ("health_address", "--health-probe-bind-address"),
        ):
            with pytest.raises(ListenError, match=flag):
                await serve(msgspec.structs.replace(settings, **{field: address}), asyncio.Event())
    finally:
        taken.close()
        await taken.wait_closed()
