"""What `inferencecache policy` writes, as routers and indexers act on it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from inferencecache.core.log import Bucket
from inferencecache.core.log.subjects import POLICY, template_key, topology_key
from inferencecache.core.policy import resolve_topology
from inferencecache.core.templates import resolve_template
from inferencecache.v1alpha1.inferencecache_pb2 import (
    CacheStateUpdate,
    GetCacheStateRequest,
    LookupPDRouteRequest,
    LookupRouteRequest,
    PrefixEntry,
    RenderTemplateRequest,
)
from tests.support.dataplane import DataPlane
from tests.support.live_router import LiveRouter
from tests.support.nats import NatsServer
from tests.support.resources import template, topology
from tests.support.waiting import eventually

SCOPE: dict[str, Any] = {"tenant_id": "team-a", "model_id": "m", "hash_scheme": "vllm"}
LOOKUP = LookupRouteRequest(**SCOPE, prefix_hash=b"p")
GATES = """
apiVersion: inferencecache.io/v1alpha1
kind: CachePolicy
metadata: {namespace: team-a, name: lookup}
spec: {minimumMatchedTokens: 200, affinityRouting: Disabled}
"""
AGE_AND_ROOM = """
apiVersion: inferencecache.io/v1alpha1
kind: CachePolicy
metadata: {namespace: team-a, name: lookup}
spec: {evictionTTL: 2s}
---
apiVersion: inferencecache.io/v1alpha1
kind: CacheTenant
metadata: {namespace: anywhere, name: b}
spec: {tenantID: team-b, quota: {maxIndexEntries: 6}}
"""


async def policy(server: NatsServer, *arguments: str, stdin: str = "") -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "inferencecache.cli", "policy", *arguments, "--nats-url", server.url),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate(stdin.encode())
    assert process.returncode == 0, out.decode()


async def report(router: LiveRouter, keys: int = 1, **more: Any) -> None:
    entries = [PrefixEntry(prefix_hash=b"p" * (number + 1), token_count=128) for number in range(keys)]
    update = CacheStateUpdate(**SCOPE | {"replica_id": "r1", "prefixes": entries} | more)
    assert (await router.stub.ReportCacheState(iter([update]))).accepted


async def total(router: LiveRouter, tenant: str) -> int:
    request = GetCacheStateRequest(tenant_id=tenant, model_id="m")
    return (await router.stub.GetCacheState(request)).summary.total_prefixes


@pytest.mark.rule("IDX-117", "IDX-118", "IDX-119", "IDX-54", "IDX-148", "IDX-157")
async def test_an_applied_policy_changes_gates_ages_and_room(
    plane: DataPlane, nats_server: NatsServer, live: Callable[[], Awaitable[LiveRouter]]
) -> None:
    await plane.owner(sweep_interval_s=1)
    router = await live()

    async def has_reason(reason: str) -> bool:
        return (await router.stub.LookupRoute(LOOKUP)).reason_code == reason

    await report(router)
    await eventually(lambda: has_reason("PREFIX_MATCH"))
    await policy(nats_server, "apply", "-f", "-", "--wait", "20s", stdin=GATES)
    assert await has_reason("NO_HINT")
    await policy(nats_server, "apply", "-f", "-", "--wait", "20s", stdin=AGE_AND_ROOM)
    await report(router)
    await eventually(lambda: has_reason("PREFIX_MATCH"))

    async def is_swept() -> bool:
        return await total(router, "team-a") == 0

    await eventually(is_swept)
    await report(router, 20, tenant_id="team-b")
    await report(router, 20, tenant_id="team-c")

    async def have_arrived() -> bool:
        return await total(router, "team-c") == 20 and await total(router, "team-b") > 0

    await eventually(have_arrived)
    assert await total(router, "team-b") <= 6
    await policy(nats_server, "delete", "cachepolicy", "team-a/lookup", "--wait", "20s")
    assert router.following.policy("team-a") is None  # type: ignore[arg-type]


@pytest.mark.rule("RPC-T7", "WIRE-120", "WIRE-121")
async def test_templates_and_topologies_come_and_go(
    plane: DataPlane, live: Callable[[], Awaitable[LiveRouter]]
) -> None:
    await plane.owner()
    router = await live()
    bucket = Bucket(await plane.log(), POLICY)

    async def rendered() -> tuple[str, bytes]:
        answer = await router.stub.RenderTemplate(
            RenderTemplateRequest(template_ref="a.b/x_y", variables={"name": "you"})
        )
        return answer.reason_code, answer.rendered_prompt

    async def pair() -> str:
        request = LookupPDRouteRequest(**SCOPE, pd_topology_ref="a.b/x_y")
        return (await router.stub.LookupPDRoute(request)).reason_code

    assert (await rendered(), await pair()) == (("TEMPLATE_NOT_FOUND", b""), "UNKNOWN_TOPOLOGY")
    keys = (template_key("a.b", "x_y"), topology_key("a.b", "x_y"))
    for body in ("Hello {{name}}", "Bye {{name}}"):
        made = resolve_template(template(body, {"name": "name", "type": "Stable"}, ref="a.b/x_y"))
        await bucket.put(keys[0], msgspec.json.encode(made))
        expected = ("OK", body.replace("{{name}}", "you").encode())

        async def is_rendered(expected: tuple[str, bytes] = expected) -> bool:
            return await rendered() == expected

        await eventually(is_rendered)
    await bucket.put(keys[1], msgspec.json.encode(resolve_topology(topology("a.b/x_y"))))
    await eventually(lambda: router.following.topology("a.b/x_y"))
    assert await pair() == "EMPTY_POOL"

    # What cannot be read changes nothing, and neither does a key that means nothing.
    await bucket.put(keys[0], b"{")
    await bucket.put("template.a", b"{}")
    await bucket.delete(keys[1])
    await eventually(lambda: router.following.topology("a.b/x_y") is None)
    assert await rendered() == ("OK", b"Bye you")
    await bucket.delete(keys[0])
    await eventually(lambda: router.following.template("a.b/x_y") is None)
    assert await rendered() == ("TEMPLATE_NOT_FOUND", b"")


async def test_what_was_in_force_survives_the_loss_of_the_bucket(plane: DataPlane) -> None:
    await plane.owner()
    router = await plane.follower()
    log = await plane.log()
    bucket = Bucket(log, POLICY)
    made = resolve_template(template("Hello", ref="a/b"))
    await bucket.put(template_key("a", "b"), msgspec.json.encode(made))
    await eventually(lambda: router.template("a/b"))
    await log.request(f"$JS.API.STREAM.DELETE.KV_{POLICY}", timeout_s=5)
    await eventually(lambda: not router._policy._known)
    assert router.template("a/b") is not None
