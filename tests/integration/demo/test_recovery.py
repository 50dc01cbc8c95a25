"""Any one process of the local system may be killed: it comes back, and hints are right again."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.support.local_stack import LocalStack
from tests.support.waiting import eventually

LIMIT_S = 300
ROUTERS = ("router-1", "router-2")
KILLED = ("router-1", "sidecar-1", "indexer-1", "indexer-2", "nats", "engine-1")


async def hinted_by_both(stack: LocalStack, prompt: list[int], engine: str) -> None:
    """Return once both routers say that the engine holds the prompt."""
    for router in ROUTERS:
        await eventually(partial(stack.is_hinted, router, prompt, engine), within_s=30)


@pytest.mark.timeout(LIMIT_S)
async def test_killing_any_one_process_leaves_the_system_running_and_right(tmp_path: Path) -> None:
    async with LocalStack(tmp_path, "--engines=2") as stack:
        kept = list(range(5_000, 5_097))
        await stack.complete("engine-2", kept)
        lost = list(range(6_000, 6_097))
        await stack.complete("engine-1", lost)
        await hinted_by_both(stack, lost, "engine-1")
        for number, name in enumerate(KILLED):
            await stack.kill(name)
            served = list(range(10_000 + 1_000 * number, 10_097 + 1_000 * number))
            await stack.complete("engine-1", served)
            await hinted_by_both(stack, served, "engine-1")
            await hinted_by_both(stack, kept, "engine-2")
        for router in ROUTERS:
            assert not await stack.is_hinted(router, lost, "engine-1"), "a dead engine's blocks are hinted"
    assert stack.exit_code == 0
