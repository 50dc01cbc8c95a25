"""The way to the Kubernetes API, and lists read there."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from inferencecache.controller.admission import lookups
from inferencecache.controller.admission.lookups import lookup_in
from inferencecache.controller.admission.reviews import LookupFailedError
from inferencecache.core.kube import access as access_module
from inferencecache.core.kube.access import ClusterAccess, ClusterAccessError, access_to_cluster
from inferencecache.core.kube.cluster import Cluster
from tests.support.webhooks import TLS_DATA

CRT, KEY = TLS_DATA / "first.crt", TLS_DATA / "first.key"


def kubeconfig(folder: Path, cluster: dict[str, Any], user: dict[str, Any]) -> Path:
    path = folder / "config"
    document = {
        "clusters": [{"name": "other", "cluster": {}}, {"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(document))
    return path


def encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


@pytest.mark.parametrize(
    ("cluster", "user"),
    [
        ({"certificate-authority": str(CRT)}, {"client-certificate": str(CRT), "client-key": str(KEY)}),
        (
            {"certificate-authority-data": encoded(CRT)},
            {"client-certificate-data": encoded(CRT), "client-key-data": encoded(KEY)},
        ),
    ],
)
def test_authority_and_certificates_come_from_files_or_stand_in_the_config(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any]
) -> None:
    access = access_to_cluster(kubeconfig(tmp_path, cluster | {"server": "https://a:6443/"}, user))
    assert access.server == "https://a:6443"
    assert access.tls is not None
    assert access.tls.verify_mode is ssl.CERT_REQUIRED
    (authority,) = access.tls.get_ca_certs()
    assert authority["subject"] == ((("commonName", "first"),),)
    assert access.headers == {}


def test_only_the_config_itself_switches_verification_off(tmp_path: Path) -> None:
    cluster = {"server": "https://a", "insecure-skip-tls-verify": True}
    access = access_to_cluster(kubeconfig(tmp_path, cluster, {"token": "t"}))
    assert access.tls is not None
    assert access.tls.verify_mode is ssl.CERT_NONE


def test_a_token_file_is_read_again_for_each_request(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one\n")
    access = access_to_cluster(kubeconfig(tmp_path, {"server": "http://a"}, {"tokenFile": "token"}))
    assert access.headers == {"Authorization": "Bearer one"}
    (tmp_path / "token").write_text("two\n")
    assert access.headers == {"Authorization": "Bearer two"}


def test_credentials_are_not_shown() -> None:
    assert "secret" not in repr(ClusterAccess("http://a", None, token="secret"))


def test_in_a_pod_its_service_account_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ca.crt").write_text(CRT.read_text())
    (tmp_path / "token").write_text("t")
    monkeypatch.setattr(access_module, "_ACCOUNT", tmp_path)
    for host, shown in (("10.0.0.1", "10.0.0.1"), ("fd00::1", "[fd00::1]")):
        environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"}
        access = access_to_cluster(None, environment)
        assert access.server == f"https://{shown}:443"
        assert access.headers == {"Authorization": "Bearer t"}


@pytest.mark.parametrize(
    ("user", "cluster", "told"),
    [
        ({"exec": {}}, {"server": "https://a"}, "exec"),
        ({"token": "t", "as": "somebody"}, {"server": "https://a"}, "as"),
        ({}, {}, "server"),
        ({}, {"server": "10.0.0.1:6443"}, "https://10.0.0.1:6443"),
        ({}, {"server": "https://a", "tls-server-name": "b"}, "tls-server-name"),
        ({}, {"server": "https://a", "proxy-url": "http://b"}, "proxy-url"),
        ({}, {"server": "https://a", "certificate-authority": "absent"}, "absent"),
        ({}, {"server": "https://a", "certificate-authority-data": "no base64!"}, "kubeconfig"),
    ],
)
def test_what_cannot_be_used_names_the_file(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], told: str
) -> None:
    with pytest.raises(ClusterAccessError, match=r"--kubeconfig=.*config") as raised:
        access_to_cluster(kubeconfig(tmp_path, cluster, user))
    assert told in str(raised.value)


@pytest.mark.parametrize("content", ["", "[]", "a: [", "current-context: x", "contexts: 5"])
def test_a_file_that_is_no_kubeconfig_is_told_so(tmp_path: Path, content: str) -> None:
    (tmp_path / "config").write_text(content)
    with pytest.raises(ClusterAccessError, match="--kubeconfig="):
        access_to_cluster(tmp_path / "config")


def test_a_config_without_a_context_is_told_how_to_choose_one(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("contexts: []")
    with pytest.raises(ClusterAccessError, match="current-context; choose one"):
        access_to_cluster(tmp_path / "config")


def test_a_token_may_end_with_its_line(tmp_path: Path) -> None:
    access = access_to_cluster(kubeconfig(tmp_path, {"server": "http://a"}, {"token": "t\n"}))
    assert access.headers == {"Authorization": "Bearer t"}


@pytest.mark.parametrize("missing", ["ca.crt", "token"])
def test_a_pod_without_its_service_account_is_told_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    (tmp_path / "ca.crt").write_text(CRT.read_text())
    (tmp_path / "token").write_text("t")
    (tmp_path / missing).unlink()
    monkeypatch.setattr(access_module, "_ACCOUNT", tmp_path)
    with pytest.raises(ClusterAccessError, match=f"{missing}.*automountServiceAccountToken"):
        access_to_cluster(None, {"KUBERNETES_SERVICE_HOST": "a", "KUBERNETES_SERVICE_PORT": "443"})


def test_outside_of_a_pod_the_flag_is_named() -> None:
    with pytest.raises(ClusterAccessError, match="--kubeconfig=FILE"):
        access_to_cluster(None, {})


class Api:
    """Answers every request alike."""

    def __init__(self) -> None:
        self.status, self.body = 200, b'{"items":[]}'
        self.asked: list[tuple[str, str | None]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append((request.raw_path, request.headers.get("Authorization")))
        await self.gate.wait()
        return web.Response(status=self.status, body=self.body)

    async def start(self) -> web.AppRunner:
        application = web.Application()
        application.router.add_get("/{path:.*}", self.answer)
        runner = web.AppRunner(application)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runner


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    api = Api()
    runner = await api.start()
    yield api
    api.gate.set()
    await runner.cleanup()


async def test_a_list_is_read_with_our_token_and_no_cache_in_between(api: Api) -> None:
    api.body = b'{"kind":"CacheBackendList","items":[{"metadata":{"name":"a"},"spec":null}]}'
    async with Cluster(ClusterAccess(api.url, None, token="t")) as cluster:
        listed = await lookup_in(cluster)("cachebackends", "team-a")
    assert listed == [{"metadata": {"name": "a"}, "spec": None}]
    path = "/apis/inferencecache.io/v1alpha1/namespaces/team-a/cachebackends"
    assert api.asked == [(path, "Bearer t")], "and without a resourceVersion, which a cache might serve"


@pytest.mark.rule("ADM-12")
@pytest.mark.parametrize(
    ("status", "body", "told"),
    [(403, b"{}", "403"), (500, b"", "500"), (200, b"no JSON", "malformed"), (200, b"{}", "items")],
)
async def test_a_list_that_cannot_be_had_is_told_with_its_reason(
    api: Api, status: int, body: bytes, told: str
) -> None:
    api.status, api.body = status, body
    async with Cluster(ClusterAccess(api.url, None)) as cluster:
        with pytest.raises(LookupFailedError, match=f"cannot list cachebackends in namespace n: .*{told}"):
            await lookup_in(cluster)("cachebackends", "n")


@pytest.mark.rule("ADM-12")
async def test_a_list_is_not_waited_for_for_ever(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "LIST_LIMIT_S", 0.05)
    api.gate.clear()
    async with Cluster(ClusterAccess(api.url, None)) as cluster:
        with pytest.raises(LookupFailedError, match=r"no answer within 0\.05 s"):
            await lookup_in(cluster)("cachebackends", "n")


async def test_a_token_that_is_gone_or_no_text_fails_the_list_only(api: Api, tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"one\ntwo")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for name, told in (("absent", "absent"), ("lines", "headers"), ("bytes", "utf-8")):
        async with Cluster(ClusterAccess(api.url, None, token_file=tmp_path / name)) as cluster:
            with pytest.raises(LookupFailedError, match=told):
                await lookup_in(cluster)("cachebackends", "n")
