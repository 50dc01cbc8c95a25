"""The router as a process: beside a real server and indexer, alone, and with settings that cannot work."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from inferencecache.core.log import Bucket, Log
from inferencecache.core.log.subjects import (
    AGGREGATE,
    LAYOUT,
    LAYOUT_KEY,
    MEMBERS,
    POLICY,
    POLICY_KEY,
    REFS,
    WORK_SUBJECT,
    budget_key,
    member_key,
    partition_key,
    template_key,
    topology_key,
)
from inferencecache.core.service import NatsSettings
from inferencecache.v1alpha1.inferencecache_pb2 import (
    Ack,
    CacheEvent,
    CacheStateUpdate,
    GetCacheStateRequest,
    LookupRouteRequest,
    LookupRouteResponse,
    PrefixEntry,
    ReplicaStats,
    StreamEventsRequest,
)
from inferencecache.v1alpha1.inferencecache_pb2_grpc import InferenceCacheStub
from tests.support.nats import NatsServer
from tests.support.waiting import a_moment, eventually

if TYPE_CHECKING:
    from inferencecache.v1alpha1.inferencecache_pb2_grpc import InferenceCacheAsyncStub

SCOPE: dict[str, Any] = {"tenant_id": "t", "model_id": "m", "hash_scheme": "vllm"}
HASHES = [number.to_bytes(8, "big") for number in range(1, 65)]
LISTEN = ("--grpc-bind-address=127.0.0.1:0", "--http-bind-address=127.0.0.1:0")
UNREACHABLE = "nats://127.0.0.1:9"
READ_KEYS = [
    (POLICY, POLICY_KEY),
    (POLICY, template_key("a", "b")),
    (POLICY, topology_key("a", "b")),
    (REFS, partition_key(1, 0)),
    (AGGREGATE, partition_key(1, 0)),
    (AGGREGATE, budget_key(1)),
    (MEMBERS, member_key("router", "x")),
    (MEMBERS, member_key("indexer", "x")),
    (LAYOUT, LAYOUT_KEY),
]
ALONE = (f"--nats-url={UNREACHABLE}", "--insecure-nats")


class Process:
    """A running program and the lines of its log."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.text = ""
        self._lines: list[dict[str, Any]] = []
        self._more = asyncio.Condition()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            async with self._more:
                self.text += line.decode()
                if line.startswith(b"{"):
                    self._lines.append(json.loads(line))
                self._more.notify_all()

    async def line(self, event: str) -> dict[str, Any]:
        """The first line of that stable name, as soon as there is one."""
        async with asyncio.timeout(30), self._more:
            await self._more.wait_for(lambda: any(line.get("event") == event for line in self._lines))
            return next(line for line in self._lines if line.get("event") == event)

    async def stub(self) -> InferenceCacheAsyncStub:
        """A client of a router."""
        started = await self.line("router_started")
        return InferenceCacheStub(grpc.aio.insecure_channel(started["grpc_address"]))

    async def get(self, path: str) -> tuple[int, str]:
        port = (await self.line("router_started"))["http_port"]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        answer = (await reader.read()).decode()
        writer.close()
        return int(answer.split()[1]), answer.partition("\r\n\r\n")[2]

    async def ready(self) -> None:
        async def is_ready() -> bool:
            return (await self.get("/readyz"))[0] == 200

        await eventually(is_ready, within_s=30)

    async def end(self, number: int = signal.SIGTERM) -> int:
        """Signal it, unless it has ended by itself, and wait; its exit code."""
        if self.process.returncode is None:
            self.process.send_signal(number)
        return await self.code()

    async def code(self) -> int:
        async with asyncio.timeout(20):
            code = await self.process.wait()
        await self._reading
        return code


Start = Callable[..., Awaitable[Process]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """`await start("router", "--flag=value")` starts a program."""
    started: list[Process] = []

    async def start(program: str, *arguments: str) -> Process:
        environment = {name: value for name, value in os.environ.items() if "INFERENCECACHE" not in name}
        process = Process(
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", f"inferencecache.{program}", *arguments),
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                env=environment,
            )
        )
        started.append(process)
        return process

    yield start
    for process in started:
        await process.end(signal.SIGKILL)


async def answered(
    stub: InferenceCacheAsyncStub, request: LookupRouteRequest, reason: str
) -> LookupRouteResponse:
    """The first answer with that reason."""
    async with asyncio.timeout(10):
        while True:
            answer = await stub.LookupRoute(request)
            if answer.reason_code == reason:
                return answer
            await a_moment()


@pytest.mark.rule("WIRE-098", "WIRE-099", "WIRE-202", "WIRE-023", "IDX-02")
async def test_what_one_router_accepts_all_routers_answer(nats_server: NatsServer, start: Start) -> None:
    nats = (f"--nats-url={nats_server.url}", "--insecure-nats")
    indexer = await start("indexer", *nats, "--http-bind-address=127.0.0.1:0")
    routers = [await start("router", *nats, *LISTEN) for _ in range(2)]
    for router in routers:
        await router.ready()
    stubs = [await router.stub() for router in routers]

    request = LookupRouteRequest(**SCOPE, block_hashes=HASHES, block_token_counts=[16] * 64)
    assert (await stubs[0].LookupRoute(request)).reason_code == "NO_HINT"
    entry = PrefixEntry(block_hashes=HASHES, block_token_counts=[16] * 64)
    update = CacheStateUpdate(
        **SCOPE, replica_id="r1", prefixes=[entry], stats=ReplicaStats(hit_rate=0.5, pressure=0.25)
    )
    assert await stubs[0].ReportCacheState(iter([update])) == Ack(accepted=True)
    accepted_at = time.monotonic()
    for stub in stubs:
        answer = await answered(stub, request, "PREFIX_MATCH")
        (score,) = answer.replica_scores
        assert (score.replica_id, score.matched_tokens) == ("r1", 1024)
        # 1024 x (1 - 0.25), less what it has aged meanwhile, of a time to live of half an hour.
        assert score.score == pytest.approx(768.0 * score.estimated_cache_hit_prob)
        assert score.estimated_cache_hit_prob == pytest.approx(1.0, abs=2 / 1800)
    # The bound is 50 ms at the 99th percentile on a quiet machine; this one may be busy.
    assert time.monotonic() - accepted_at < 2.0
    state = await stubs[1].GetCacheState(GetCacheStateRequest(tenant_id="t", model_id="m"))
    assert state.summary.total_prefixes == 64

    text = LookupRouteRequest(**SCOPE, prompt_text="marker-7654321", token_ids=[7654321] * 32)
    await stubs[1].LookupRoute(text)
    cleared = CacheEvent(type=CacheEvent.ALL_CLEARED, tenant_id="t", model_id="m", replica_id="r1")
    assert await stubs[1].PublishEvent(cleared) == Ack(accepted=True)
    for stub in stubs:
        await answered(stub, request, "NO_HINT")

    for process in (*routers, indexer):
        assert await process.end() == 0
        assert "7654321" not in process.text


@pytest.mark.parametrize(
    "value",
    [b'{"x":' + b"[" * 100_000, b'{"name":"\xff","generation":"\xff"}', b"\xff"],
    ids=["deep", "not UTF-8", "no JSON"],
)
async def test_no_process_ends_by_a_value_that_it_cannot_read(
    nats_server: NatsServer, start: Start, value: bytes
) -> None:
    nats = (f"--nats-url={nats_server.url}", "--insecure-nats")
    indexer = await start("indexer", *nats, "--http-bind-address=127.0.0.1:0")
    router = await start("router", *nats, *LISTEN)
    await indexer.line("indexer_started")
    await router.ready()
    log = await Log.connect(NatsSettings(nats_server.url, insecure=True), name="test", timeout_s=10)
    for bucket, key in READ_KEYS:
        await Bucket(log, bucket).put(key, value)
    await log.send(WORK_SUBJECT, value)
    await log.close()
    for process in (indexer, router):
        await process.line("assets_unsafe")  # the last key was read
        await process.line("member_unreadable")
    assert (await (await router.stub()).LookupRoute(LookupRouteRequest(**SCOPE))).reason_code == "NO_HINT"
    for process in (router, indexer):
        assert await process.end() == 0
        assert "Traceback" not in process.text


@pytest.mark.rule("WIRE-027", "WIRE-037", "IDX-194", "WIRE-199")
async def test_without_nats_a_router_answers_refuses_reports_and_turns_ready_after_its_patience(
    start: Start,
) -> None:
    router = await start("router", *ALONE, "--ready-timeout=3s", *LISTEN)
    stub = await router.stub()
    assert (await router.get("/readyz"))[0] == 503
    assert (await stub.LookupRoute(LookupRouteRequest(**SCOPE))).reason_code == "NO_HINT"
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.ReportCacheState(iter([CacheStateUpdate(**SCOPE)]))
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.StreamCacheEvents(StreamEventsRequest()).read()
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    await router.ready()
    assert "inferencecache_router_view_complete 0.0" in (await router.get("/metrics"))[1]
    assert await router.end() == 0


@pytest.mark.rule("OPS-13")
async def test_without_the_address_of_nats_it_ends_with_2_and_says_what_to_set(start: Start) -> None:
    router = await start("router")
    assert await router.code() == 2
    assert "pass --nats-url=nats://" in router.text
    assert "INFERENCECACHE_NATS_URL" in router.text
    assert "Traceback" not in router.text


@pytest.mark.rule("WIRE-C44", "WIRE-211", "OPS-13", "OPS-16", "OPS-W4")
async def test_tls_files_that_are_missing_end_it_with_1(start: Start, tmp_path: Path) -> None:
    files = (f"--tls-cert-file={tmp_path}/tls.crt", f"--tls-key-file={tmp_path}/tls.key")
    router = await start("router", *ALONE, *LISTEN, *files)
    assert await router.code() == 1
    assert (await router.line("grpc_tls_load"))["level"] == "error"


@pytest.mark.rule("WIRE-203", "OPS-13")
async def test_a_taken_port_ends_it_with_1(start: Start) -> None:
    common = (*ALONE, "--http-bind-address=")
    first = await start("router", *common, LISTEN[0])
    taken = (await first.line("router_started"))["grpc_address"]
    second = await start("router", *common, f"--grpc-bind-address={taken}")
    assert await second.code() == 1
    assert "--grpc-bind-address" in (await second.line("serve_error"))["msg"]
