"""The controller as a process beside a real API server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.backends import pod_local
from tests.support.controller import Controller
from tests.support.kube import ApiServer, KubeClient, service_account_token

pytestmark = pytest.mark.kube

Start = Callable[[Path], Any]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    started: list[Controller] = []

    async def start(kubeconfig: Path) -> Controller:
        started.append(await Controller.start(kubeconfig))
        return started[-1]

    yield start
    for controller in started:
        await controller.stop()


def as_user(server: ApiServer, folder: Path, token: str) -> Path:
    """A kubeconfig for another token."""
    config = yaml.safe_load(server.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


async def test_every_replica_answers_from_what_is_stored_now(
    start: Start, api_server: ApiServer, kube: KubeClient, namespace: str
) -> None:
    replicas = [await start(api_server.kubeconfig) for _ in range(2)]
    second = pod_local(name="second", namespace=namespace, domain="d")
    for replica in replicas:
        assert replica.started["event"] == "controller_started"
        assert await replica.judge(second) == {"uid": "u", "allowed": True}
    await kube.create(pod_local(name="first", namespace=namespace, domain="d"))
    for replica in replicas:
        response = await replica.judge(second)
        assert not response["allowed"]
        (cause,) = response["status"]["details"]["causes"]
        assert "first" in cause["message"]
        assert await replica.page("health_port", "/healthz") == (200, "ok\n")
        assert await replica.page("health_port", "/readyz") == (200, "ok\n")
        _, metrics = await replica.page("metrics_port", "/metrics")
        labels = '{outcome="denied",webhook="vcachebackend.inferencecache.io"}'
        assert f"inferencecache_admission_reviews_total{labels} 1.0" in metrics
        assert await replica.stop() == 0


@pytest.mark.rule("ADM-12")
async def test_what_may_not_be_listed_is_denied_with_the_reason(
    start: Start, api_server: ApiServer, kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    token = await service_account_token(kube, namespace, "powerless")
    controller = await start(as_user(api_server, tmp_path, token))
    response = await controller.judge(pod_local(namespace=namespace))
    message = f"cannot list cachebackends in namespace {namespace}: the API answers 403"
    assert response == {
        "uid": "u",
        "allowed": False,
        "status": {"status": "Failure", "code": 403, "reason": "Forbidden", "message": message},
    }


@pytest.mark.rule("ADM-12")
async def test_an_api_that_is_gone_is_denied_with_the_reason(start: Start, tmp_path: Path) -> None:
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    controller = await start(tmp_path / "kubeconfig")
    response = await controller.judge(pod_local())
    assert response["status"]["code"] == 403
    assert "cannot list cachebackends in namespace team-a" in response["status"]["message"]


async def test_settings_that_cannot_work_end_it_with_1(start: Start, tmp_path: Path) -> None:
    controller = await start(tmp_path / "absent")
    assert controller.started["event"] == "cluster_access"
    assert "--kubeconfig=" in controller.started["msg"]
    assert await controller.ended() == 1
