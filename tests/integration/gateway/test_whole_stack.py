"""Real Envoy in front of two routers, a real NATS and eight engines: as good as a client of its own, and
never the reason why a request fails.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import cycle
from pathlib import Path

import pytest

from inferencecache.cli.load.choice import Pool
from inferencecache.cli.load.conversations import Workload
from inferencecache.cli.load.engines import Completion, Engines
from inferencecache.cli.load.hints import Router
from inferencecache.cli.stack.plan import EngineAddress, RouterAddress
from tests.support.gateway_load import Complete, Outcome, hold_conversations, through
from tests.support.local_stack import MODEL, LocalStack
from tests.support.waiting import eventually

pytestmark = [pytest.mark.envoy, pytest.mark.timeout(400)]

ENGINES = [f"engine-{number + 1}" for number in range(8)]
TURNS = 480
POINTS = 0.02


@asynccontextmanager
async def by_hints(stack: LocalStack, engines: Engines) -> AsyncIterator[Complete]:
    """A client of its own: it asks the routers in turn and follows their hints."""
    addresses = [
        EngineAddress(name, f"http://{stack.option(name, '--http-bind-address')}", name) for name in ENGINES
    ]
    pool = Pool(addresses)
    routers = [
        Router(RouterAddress(name, stack.option(name, "--grpc-bind-address"), ""), MODEL)
        for name in ("router-1", "router-2")
    ]
    turn = cycle(routers)

    async def complete(prompt: Sequence[int], answer_tokens: int) -> Completion:
        engine = pool.choose(await next(turn).lookup(prompt))
        with pool.in_flight(engine):
            return await engines.complete(engine, prompt, answer_tokens)

    yield complete
    for router in routers:
        await router.close()


async def forget(stack: LocalStack) -> None:
    """Let all engines begin with empty caches."""
    for name in ENGINES:
        url = f"http://{stack.option(name, '--http-bind-address')}/reset_prefix_cache"
        async with stack.http.post(url) as response:
            assert response.status == 200


@asynccontextmanager
async def load(complete: Complete, seed: int) -> AsyncIterator[Outcome]:
    """Conversations without end, while inside."""
    outcome = Outcome()
    workload = Workload(seed=seed, users=16)
    running = asyncio.ensure_future(hold_conversations(workload, complete, outcome))
    try:
        await answered_more(outcome, 50)
        yield outcome
        assert not running.done(), "the load ended by itself"
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def answered_more(outcome: Outcome, count: int) -> None:
    aim = outcome.answered + count
    await eventually(lambda: outcome.answered >= aim, within_s=60, what=f"{count} more answers")


async def kill(stack: LocalStack, name: str) -> float:
    """Answers when the process was gone for sure."""
    os.kill(stack.processes[name]["pid"], signal.SIGKILL)
    await eventually(lambda: name not in stack.processes)
    return time.monotonic()


async def test_a_first_request_says_where_it_went_and_why_and_a_second_one_finds_its_prefix(
    tmp_path: Path,
) -> None:
    async with LocalStack(tmp_path, "--engines=2") as stack:
        body = {
            "model": MODEL,
            "prompt": "Say where this prompt goes, and why: it is long enough to be kept.",
        }

        async def ask() -> tuple[str, str]:
            async with stack.http.post(f"{stack.gateway}/v1/completions", json=body) as response:
                assert response.status == 200
                headers = response.headers
                return headers["x-inferencecache-reason"], headers["x-inferencecache-replica"]

        _, first = await ask()
        assert first in ("engine-1", "engine-2")

        async def is_followed() -> bool:
            return await ask() == ("PREFIX_MATCH", first)

        await eventually(is_followed, within_s=10)
    assert stack.exit_code == 0


async def test_the_gateway_is_as_good_as_a_client_of_its_own_and_outlives_routers_and_engines(
    tmp_path: Path,
) -> None:
    async with LocalStack(tmp_path, "--engines=8", "--no-restart") as stack, Engines(MODEL) as engines:
        gateway = through(engines, stack.gateway)
        workload = Workload(users=16)
        async with by_hints(stack, engines) as direct:
            own = await hold_conversations(workload, direct, Outcome(), TURNS)
        await forget(stack)
        proxied = await hold_conversations(workload, gateway, Outcome(), TURNS)
        assert not own.failed
        assert not proxied.failed
        assert own.cached_share > 0.5, "the client of its own found nothing to follow"
        assert proxied.cached_share > own.cached_share - POINTS

        async with load(gateway, seed=2) as outcome:
            killed_s = await kill(stack, "engine-3")
            await answered_more(outcome, 100)
            late = [failure for failure in outcome.failed if failure[0] > killed_s]
            assert not late, "a request that began after the engine's end failed"
            assert len(outcome.failed) <= workload.users

        async with load(gateway, seed=3) as outcome:
            frozen = stack.processes["router-1"]["pid"]
            os.kill(frozen, signal.SIGSTOP)
            await answered_more(outcome, 100)
            await kill(stack, "router-1")
            await answered_more(outcome, 100)
            await kill(stack, "router-2")
            await answered_more(outcome, 100)
            assert not outcome.failed
