"""The router as a process, around a follower that follows nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from inferencecache.core.service import ListenError
from inferencecache.router.serve import serve
from inferencecache.router.settings import RouterSettings, read_settings
from inferencecache.router.views import Explain
from inferencecache.v1alpha1.inferencecache_pb2 import (
    CacheStateUpdate,
    LookupRouteRequest,
    LookupRouteResponse,
)
from inferencecache.v1alpha1.inferencecache_pb2_grpc import InferenceCacheStub
from tests.support.models import make_model
from tests.support.router import FoldedLog
from tests.support.waiting import eventually

ARGUMENTS = ["--nats-url=nats://127.0.0.1:1", "--insecure-nats"]
SETTINGS = msgspec.structs.replace(
    read_settings(ARGUMENTS, {}), grpc_address=("127.0.0.1", 0), http_address=("127.0.0.1", 0)
)


class Process:
    """A serving router, started and stopped as the runtime does it."""

    def __init__(self, settings: RouterSettings, follower: FoldedLog) -> None:
        self.stop = asyncio.Event()
        self.follower = follower
        self.registry = CollectorRegistry()
        self.logs: list[Any] = []
        self._task = asyncio.ensure_future(self._run(settings))

    async def _run(self, settings: RouterSettings) -> int:
        with capture_logs() as self.logs:
            return await serve(settings, self.stop, self._follow)

    def _follow(self, _: RouterSettings, registry: CollectorRegistry) -> FoldedLog:
        self.registry = registry
        return self.follower

    def line(self, event: str) -> Any:
        return next((line for line in self.logs if line["event"] == event), None)

    async def started(self) -> Process:
        await eventually(lambda: self._task.done() or self.line("router_started"))
        if self._task.done():
            await self._task
        return self

    async def ended(self) -> int:
        async with asyncio.timeout(10):
            return await self._task

    async def get(self, path: str) -> tuple[int, str]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.line("router_started")["http_port"])
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        answer = (await reader.read()).decode()
        writer.close()
        return int(answer.split()[1]), answer.partition("\r\n\r\n")[2]

    async def look_up(self) -> LookupRouteResponse:
        async with grpc.aio.insecure_channel(self.line("router_started")["grpc_address"]) as channel:
            return await InferenceCacheStub(channel).LookupRoute(LookupRouteRequest(tenant_id="t"))


@pytest.mark.rule("WIRE-199", "WIRE-216", "WIRE-202", "OPS-07", "OPS-13", "OPS-20")
async def test_a_router_serves_until_it_is_asked_to_stop_and_ends_with_0() -> None:
    process = await Process(SETTINGS, FoldedLog()).started()
    assert process.line("router_started")["grpc_tls"] is False
    assert await process.get("/healthz") == (200, "ok\n")
    assert await process.get("/readyz") == (200, "ok\n")
    status, metrics = await process.get("/metrics")
    assert status == 200
    assert "inferencecache_server_up 1.0" in metrics
    assert "inferencecache_server_grpc_tls_enabled 0.0" in metrics
    assert (await process.look_up()).reason_code == "NO_HINT"
    process.stop.set()
    assert await process.ended() == 0
    assert process.registry.get_sample_value("inferencecache_server_up") == 0
    assert process.line("graceful_shutdown_done")


@pytest.mark.rule("WIRE-027", "WIRE-199", "WIRE-037", "IDX-192")
async def test_before_the_log_is_reached_lookups_get_no_hint_and_reports_are_refused() -> None:
    unreached: Any = FoldedLog()
    unreached.ready = unreached.complete = False
    unreached.layout = None
    process = await Process(SETTINGS, unreached).started()
    assert await process.get("/readyz") == (503, "not ready\n")
    assert (await process.look_up()).reason_code == "NO_HINT"
    async with grpc.aio.insecure_channel(process.line("router_started")["grpc_address"]) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await InferenceCacheStub(channel).ReportCacheState(iter([CacheStateUpdate()]))
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    process.stop.set()
    assert await process.ended() == 0


@pytest.mark.rule("WIRE-202")
async def test_an_open_stream_does_not_hold_up_the_stop() -> None:
    process = await Process(SETTINGS, FoldedLog()).started()
    async with grpc.aio.insecure_channel(process.line("router_started")["grpc_address"]) as channel:
        call = InferenceCacheStub(channel).ReportCacheState()
        await call.write(CacheStateUpdate(replica_id="r1"))
        await eventually(lambda: process.follower.message_ids)
        process.stop.set()
        async with asyncio.timeout(3):
            assert await process.ended() == 0
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await call
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.rule("WIRE-203")
async def test_a_taken_port_ends_the_process() -> None:
    first = await Process(SETTINGS, FoldedLog()).started()
    taken = ("127.0.0.1", int(first.line("router_started")["grpc_address"].rpartition(":")[2]))
    second = Process(msgspec.structs.replace(SETTINGS, grpc_address=taken), FoldedLog())
    with pytest.raises(ListenError, match="--grpc-bind-address"):
        await second.ended()
    first.stop.set()
    await first.ended()


@pytest.mark.rule("WIRE-C44", "WIRE-211")
async def test_tls_files_that_cannot_be_used_end_the_process_with_1(tmp_path: Path) -> None:
    files = (tmp_path / "missing.crt", tmp_path / "missing.key")
    process = Process(msgspec.structs.replace(SETTINGS, tls_files=files), FoldedLog())
    assert await process.ended() == 1
    assert process.line("grpc_tls_load")


async def test_a_follower_that_fails_ends_the_process() -> None:
    class Failing(FoldedLog):
        async def run(self, grpc_address: str, explain: Explain | None = None) -> None:
            raise ConnectionRefusedError("the layout is of a newer version")

    process = Process(SETTINGS, Failing())
    with pytest.raises(ConnectionRefusedError):
        await process.ended()


@pytest.mark.rule("WIRE-173", "WIRE-196", "WIRE-C20")
async def test_the_tokenizers_of_the_folder_are_there_from_the_first_lookup_on(tmp_path: Path) -> None:
    reference = make_model(tmp_path / "team" / "chat", template="{{ messages[0].content }}")
    process = await Process(msgspec.structs.replace(SETTINGS, models_dir=tmp_path), FoldedLog()).started()
    assert process.line("tokenizers_loaded")["models"] == ["team/chat"]
    request = LookupRouteRequest(tenant_id="t", model_id="team/chat", prompt_text="the lazy dog")
    async with grpc.aio.insecure_channel(process.line("router_started")["grpc_address"]) as channel:
        answer = await InferenceCacheStub(channel).LookupRoute(request)
    assert list(answer.token_ids) == reference.encode("the lazy dog", add_special_tokens=False).ids
    process.stop.set()
    assert await process.ended() == 0
    unset = await Process(SETTINGS, FoldedLog()).started()
    assert unset.line("tokenizers_loaded") is None
    unset.stop.set()
    await unset.ended()


@pytest.mark.rule("WIRE-175")
async def test_a_folder_that_is_not_there_keeps_no_router_from_starting(tmp_path: Path) -> None:
    missing = msgspec.structs.replace(SETTINGS, models_dir=tmp_path / "missing")
    process = await Process(missing, FoldedLog()).started()
    assert process.line("tokenizer_models_dir_unreadable")["log_level"] == "warning"
    process.stop.set()
    assert await process.ended() == 0
