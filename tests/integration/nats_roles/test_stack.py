"""Every process of an installation under its own NATS user: nothing that it does is refused."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import grpc.aio
import pytest

from inferencecache.cli.stack.plan import nats_config_path
from inferencecache.v1alpha1.inferencecache_pb2 import LookupRouteResponse
from inferencecache.v1alpha1.inferencecache_pb2_grpc import InferenceCacheStub
from tests.support.fleet.asking import ask, matched_by
from tests.support.fleet.processes import BLOCK_SIZE, Fleet
from tests.support.nats_roles import authorization, password
from tests.support.waiting import eventually

pytestmark = pytest.mark.rule("OPS-30")

COMMAND_LIMIT_S: Final = 60.0
PROMPT: Final = Random(11).choices(range(1, 30_000), k=8 * BLOCK_SIZE)
POLICY: Final = f"""\
apiVersion: inferencecache.io/v1alpha1
kind: CachePolicy
metadata: {{ name: lookup, namespace: demo }}
spec: {{ minimumMatchedTokens: {BLOCK_SIZE} }}
"""


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    """Indexers and routers with their users, sidecars without any, at a server that insists."""
    users = {
        kind: (f"INFERENCECACHE_NATS_USER={kind}", f"INFERENCECACHE_NATS_PASSWORD={password(kind)}")
        for kind in ("indexer", "router")
    }
    fleet = Fleet(tmp_path, engines=1, environment=users, flags={"indexer": ("--snapshot-interval=2s",)})
    with nats_config_path(tmp_path).open("a") as configuration:
        configuration.write(authorization())
    async with fleet:
        yield fleet


async def command(fleet: Fleet, user: str, *arguments: str) -> tuple[int, str]:
    """Exit code and output of the command `inferencecache` as one of its two users."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "inferencecache.cli", *arguments),
        *("--nats-url", fleet.nats.url, "--nats-user", user, "--nats-password", password(user)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    told, _ = await asyncio.wait_for(process.communicate(), COMMAND_LIMIT_S)
    assert process.returncode is not None
    return process.returncode, told.decode()


async def hinted(fleet: Fleet) -> None:
    """Wait until every router says who holds the prompt."""
    for router in fleet.routers:
        async with grpc.aio.insecure_channel(router.grpc) as channel:
            asking = partial(ask, InferenceCacheStub(channel), PROMPT)

            async def is_hinted(asking: Callable[[], Awaitable[LookupRouteResponse]] = asking) -> bool:
                return fleet.engines[0].replica in matched_by(await asking())

            await eventually(is_hinted, within_s=30, what=f"a hint of {router.name}")


@pytest.mark.timeout(240)
async def test_nothing_that_a_process_does_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    async with fleet.http.post(
        f"{fleet.engines[0].url}/v1/completions", json={"prompt": PROMPT, "max_tokens": 1}
    ) as answer:
        assert answer.status == 200
    await hinted(fleet)

    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    for change in (("layout", "set", "--partitions=3"), ("policy", "apply", "-f", str(policy))):
        code, told = await command(fleet, "observer", *change)
        assert code != 0, told
        code, told = await command(fleet, "admin", *change)
        assert code == 0, told
    for look in (("layout", "show"), ("policy", "get"), ("replay",), ("replay", "--events")):
        code, told = await command(fleet, "observer", *look)
        assert code == 0, told

    await fleet.restart(fleet.routers[0].name, "indexer-1")
    await hinted(fleet)
    said = fleet.said("nats").splitlines()
    assert [line for line in said if "Violation" in line and "user:observer" not in line] == []
