"""Asking a router over NATS why it would answer a lookup as it does."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from prometheus_client import generate_latest

from inferencecache.cli.running import in_background
from inferencecache.core.index.work import Assigned, AssignedWork
from inferencecache.core.log import Message
from inferencecache.core.log.subjects import EXPLAIN_SUBJECT, WORK_SUBJECT, explain_subject
from inferencecache.router.explaining import Explaining
from inferencecache.router.work_sharing import WorkSharing
from inferencecache.schemas.explanations import Explanation
from inferencecache.schemas.ids import ModelId, ReplicaId, TenantId
from inferencecache.v1alpha1.inferencecache_pb2 import CacheStateUpdate, LookupRouteRequest, PrefixEntry
from tests.support.dataplane import DataPlane
from tests.support.live_router import LiveRouter
from tests.support.waiting import eventually

SCOPE: dict[str, Any] = {"tenant_id": "t", "model_id": "m", "hash_scheme": "vllm"}
T, M, R1 = TenantId("t"), ModelId("m"), ReplicaId("r1")
Live = Callable[[], Awaitable[LiveRouter]]
QUESTION = LookupRouteRequest(**SCOPE, prefix_hash=b"p", prefix_token_count=128)


async def report(router: LiveRouter, replica: str, hash_: bytes) -> None:
    entry = PrefixEntry(prefix_hash=hash_, token_count=128)
    update = CacheStateUpdate(**SCOPE, replica_id=replica, prefixes=[entry])
    assert (await router.stub.ReportCacheState(iter([update]))).accepted


async def ask(plane: DataPlane, payload: bytes, subject: str = EXPLAIN_SUBJECT) -> Explanation:
    log = await plane.log()
    return msgspec.json.decode((await log.request(subject, payload, timeout_s=5)).data, type=Explanation)


async def test_a_router_explains_without_assigning_or_counting_anything(plane: DataPlane, live: Live) -> None:
    await plane.owner()
    router = await live()
    work = router.following.work = router.servicer.lookup._work = AssignedWork()
    await report(router, "r1", b"p")
    await report(router, "r2", b"other")
    explaining = Explaining(router.following.id, router.servicer.lookup.explain)
    log = await plane.log()
    async with in_background(explaining.serve_any(log)), in_background(explaining.serve_own(log)):
        payload = QUESTION.SerializeToString()

        async def are_both_known() -> bool:
            why = await ask(plane, payload)
            return why.reason == "PREFIX_MATCH" and len(why.replicas) == 2

        await eventually(are_both_known)
        assert work.take_unshared() == []
        work.hear(Assigned(T, M, R1, 40.0), asyncio.get_running_loop().time())
        why = await ask(plane, payload, explain_subject(router.following.id))
        assert why.router == router.following.id
        first, second = why.replicas
        assert (first.replica, first.rank, first.matched_tokens) == ("r1", 1, 128)
        assert 0 < first.penalty == first.work_tokens / 2 <= 20
        assert (second.replica, second.rank, second.penalty) == ("r2", 0, 0)
        assert (await ask(plane, b"\xff")).error

        command = (sys.executable, "-m", "inferencecache.cli", "lookup", "--prefix-hash", b"p".hex())
        scope = ("--tenant", "t", "--model", "m", "--nats-url", plane.server.url)
        for form in ((), ("--json",)):
            process = await asyncio.create_subprocess_exec(
                *(*command, *scope, "--explain", *form), stdout=asyncio.subprocess.PIPE
            )
            out, _ = await process.communicate()
            assert process.returncode == 0
            if form:
                assert json.loads(out)["replicas"][0]["matchedTokens"] == 128
            else:
                assert "PREFIX_MATCH" in out.decode()
                assert router.following.id in out.decode()
    assert b"lookup_route_calls_total{" not in generate_latest(router.registry)


async def test_without_a_router_the_command_names_the_setting(plane: DataPlane) -> None:
    arguments = (
        "lookup",
        "--tokens",
        "1..80",
        "--explain",
        "--timeout",
        "0.5",
        "--nats-url",
        plane.server.url,
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "inferencecache.cli", *arguments), stderr=asyncio.subprocess.PIPE
    )
    _, err = await process.communicate()
    assert process.returncode == 1
    assert "--nats-url" in err.decode()


async def test_routers_hear_at_once_what_is_assigned_after_a_quiet_moment(plane: DataPlane) -> None:
    # With this decay the next message would come after ten seconds.
    first, second = AssignedWork(1000.0), AssignedWork(1000.0)
    log, other = await plane.log(), await plane.log()
    now_s = asyncio.get_running_loop().time()

    def heard(work: AssignedWork) -> float:
        return work.of(T, M, now_s).get(R1, 0.0)

    messages: list[Message] = []
    sharing = in_background(WorkSharing(log, "a", first).run())
    async with sharing, in_background(WorkSharing(other, "b", second).run()):
        await other.subscribe(WORK_SUBJECT, messages.append)
        await asyncio.gather(*(each.request("$JS.API.INFO", timeout_s=5) for each in (log, other)))
        first.assign(Assigned(T, M, R1, 100.0), now_s)
        await eventually(lambda: heard(second) == pytest.approx(100.0, rel=0.01), within_s=5)
        second.assign(Assigned(T, M, R1, 50.0), now_s)
        await eventually(lambda: heard(first) == pytest.approx(150.0, rel=0.01), within_s=5)
    assert len(messages) == 2
