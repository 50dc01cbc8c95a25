"""The plaintext endpoints over real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
from prometheus_client import CollectorRegistry, Counter

from inferencecache.core.service import HttpEndpoints, ListenError, http


class Served:
    def __init__(self) -> None:
        self.ready = False
        self.registry = CollectorRegistry()
        self.endpoints = HttpEndpoints(("127.0.0.1", 0), lambda: self.ready, self.registry)

    async def ask(self, request: bytes) -> tuple[int, dict[str, str], bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.endpoints.port)
        writer.write(request)
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        headers = {key.lower(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
        return int(status.split()[1]), headers, body

    async def get(self, target: str, headers: str = "") -> tuple[int, dict[str, str], bytes]:
        return await self.ask(f"GET {target} HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode())


async def whatever_comes(reader: asyncio.StreamReader) -> bytes:
    try:
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionResetError:
        return b""


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    it = Served()
    await it.endpoints.start()
    yield it
    await it.endpoints.stop()


@pytest.mark.rule("WIRE-199", "OPS-01", "OPS-02")
async def test_a_living_process_is_healthy_and_ready_once_it_says_so(served: Served) -> None:
    assert (await served.get("/healthz"))[::2] == (200, b"ok\n")
    assert (await served.get("/readyz"))[::2] == (503, b"not ready\n")
    served.ready = True
    assert (await served.get("/readyz?verbose"))[::2] == (200, b"ok\n")


@pytest.mark.rule("OPS-03")
async def test_metrics_are_the_registry_in_the_format_asked_for(served: Served) -> None:
    Counter("inferencecache_seen", "Seen.", registry=served.registry).inc(2)
    status, headers, body = await served.get("/metrics")
    assert status == 200
    assert headers["content-type"].startswith("text/plain")
    assert b"inferencecache_seen_total 2.0" in body
    _, headers, body = await served.get("/metrics", "Accept: application/openmetrics-text; version=1.0.0\r\n")
    assert headers["content-type"].startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


@pytest.mark.rule("OPS-04")
async def test_other_paths_are_not_found_and_other_methods_not_allowed(served: Served) -> None:
    assert (await served.get("/metrics/other"))[0] == 404
    assert (await served.ask(b"POST /healthz HTTP/1.1\r\n\r\n"))[0] == 405
    status, headers, body = await served.ask(b"HEAD /healthz HTTP/1.1\r\n\r\n")
    assert (status, headers["content-length"], body) == (200, "3", b"")


async def test_a_peer_that_is_no_http_client_is_dropped(served: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.endpoints.port)
    writer.write(b"x" * (http.MAX_HEADER_BYTES * 3))
    assert await whatever_comes(reader) == b""
    writer.close()


@pytest.mark.rule("OPS-05")
async def test_a_peer_that_sends_nothing_is_dropped(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REQUEST_LIMIT_S", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", served.endpoints.port)
    assert await whatever_comes(reader) == b""
    writer.close()


async def test_a_stop_does_not_wait_for_a_silent_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "STOP_LIMIT_S", 0.05)
    served = Served()
    await served.endpoints.start()
    _, writer = await asyncio.open_connection("127.0.0.1", served.endpoints.port)
    await served.get("/healthz")
    async with asyncio.timeout(2):
        await served.endpoints.stop()
    writer.close()


@pytest.mark.rule("WIRE-203")
async def test_a_taken_port_names_the_setting_to_change() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        endpoints = HttpEndpoints(("127.0.0.1", port), lambda: True, CollectorRegistry())
        with pytest.raises(ListenError, match="--http-bind-address") as failure:
            await endpoints.start()
    assert failure.value.port == port


async def test_no_address_is_no_listener() -> None:
    endpoints = HttpEndpoints(None, lambda: True, CollectorRegistry())
    await endpoints.start()
    assert endpoints.port == 0
    await endpoints.stop()
