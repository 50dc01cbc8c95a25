"""Tasks are taken while their owner runs, left out while it ends, and refused before it began."""

from __future__ import annotations

import asyncio
import gc

import pytest

from inferencecache.core.partitions import Tasks
from tests.support.waiting import a_turn


async def note(done: list[str], what: str) -> None:
    done.append(what)


async def until_cancelled(tasks: Tasks, done: list[str]) -> None:
    """Ask for another task on the way out, as a reader does that hands over what it has read."""
    try:
        await asyncio.Event().wait()
    finally:
        tasks.start(note(done, "late"))


async def running(tasks: Tasks, done: list[str]) -> None:
    async with tasks.running():
        tasks.start(until_cancelled(tasks, done))
        tasks.start(note(done, "in time"))
        await asyncio.Event().wait()


async def test_a_task_that_is_asked_for_while_its_owner_ends_is_left_out() -> None:
    done: list[str] = []
    owner = asyncio.create_task(running(Tasks(), done))
    await a_turn()
    await a_turn()
    owner.cancel()
    with pytest.raises(asyncio.CancelledError):
        await owner
    gc.collect()  # a coroutine that was never awaited says so when it goes
    assert done == ["in time"]


async def test_what_a_task_fails_with_is_its_owners_failure() -> None:
    async def fail() -> None:
        raise LookupError

    async def own() -> None:
        tasks = Tasks()
        async with tasks.running():
            tasks.start(fail())
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as caught:
        await own()
    assert caught.group_contains(LookupError)


async def test_a_task_before_its_owner_runs_is_a_mistake() -> None:
    with pytest.raises(RuntimeError, match="while their owner runs"):
        Tasks().start(note([], "early"))
