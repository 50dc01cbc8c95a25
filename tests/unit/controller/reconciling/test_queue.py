"""When work is done, how often, and what becomes of failures."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from inferencecache.controller.reconciling.queue import LONGEST_RETRY_S, RetryError, WorkQueue
from tests.support.waiting import a_turn, eventually

Work = Callable[[str], Awaitable[float | None]]


@asynccontextmanager
async def running(work: Work, at_once: int = 16) -> AsyncIterator[WorkQueue[str]]:
    queue = WorkQueue("test", work, at_once=at_once)
    task = asyncio.ensure_future(queue.run())
    try:
        yield queue
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.mark.rule("CTL-13")
async def test_marks_coalesce_and_an_object_is_worked_on_once_at_a_time() -> None:
    at_work, most, done = 0, 0, 0
    gate = asyncio.Event()

    async def work(_: str) -> None:
        nonlocal at_work, most, done
        at_work += 1
        most = max(most, at_work)
        await gate.wait()
        at_work -= 1
        done += 1

    async with running(work) as queue:
        for _ in range(10):
            queue.mark("k")
        await eventually(lambda: at_work == 1)
        for _ in range(10):
            queue.mark("k")
        await a_turn()
        gate.set()
        await eventually(lambda: done == 2 and queue.is_idle)
    assert (done, most) == (2, 1)


@pytest.mark.rule("CTL-13")
async def test_different_objects_are_worked_on_side_by_side_within_bounds() -> None:
    at_work: set[str] = set()
    gate = asyncio.Event()

    async def work(key: str) -> None:
        at_work.add(key)
        await gate.wait()
        at_work.discard(key)

    async with running(work, at_once=3) as queue:
        for key in "abcdefg":
            queue.mark(key)
        await eventually(lambda: len(at_work) == 3)
        await a_turn()
        assert len(at_work) == 3
        gate.set()
        await eventually(lambda: queue.waiting == 0)


@pytest.mark.rule("CTL-15")
async def test_failures_are_tried_again_ever_later_until_success_resets_that() -> None:
    waits: list[float] = []
    outcomes = [RetryError("no"), ValueError("a bug"), RetryError("no"), None, RetryError("no"), None]

    class Watched(WorkQueue[str]):
        def mark(self, key: str, after_s: float = 0.0) -> None:
            if after_s:
                waits.append(after_s)
            super().mark(key, 0.0)

    async def work(_: str) -> None:
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome

    queue = Watched("test", work)
    task = asyncio.ensure_future(queue.run())
    queue.mark("k")
    await eventually(lambda: len(outcomes) == 2)
    queue.mark("k")
    await eventually(lambda: not outcomes)
    task.cancel()
    assert waits == [0.005, 0.01, 0.02, 0.005]


@pytest.mark.rule("CTL-15")
def test_the_longest_wait_is_bounded() -> None:
    async def work(_: str) -> None:
        raise RetryError("no")

    queue = WorkQueue("test", work)
    waits = [queue._failed("k", LONGEST_RETRY_S) for _ in range(100)]
    assert waits[:3] == [0.005, 0.01, 0.02]
    assert waits[-1] == LONGEST_RETRY_S == max(waits)


async def test_a_failure_that_says_so_is_tried_again_sooner() -> None:
    attempts = 0

    async def work(_: str) -> None:
        nonlocal attempts
        attempts += 1
        raise RetryError("no", within_s=0.001)

    async with running(work) as queue:
        queue.mark("k")
        await eventually(lambda: attempts > 20)


@pytest.mark.rule("CTL-17")
async def test_each_pass_says_anew_when_it_wants_to_be_woken() -> None:
    now = 0.0
    wishes: list[float | None] = [30.0, 5.0, None]
    passes: list[float] = []

    async def work(_: str) -> float | None:
        passes.append(now)
        return wishes.pop(0)

    queue = WorkQueue("test", work, clock=lambda: now)
    task = asyncio.ensure_future(queue.run())
    queue.mark("k")
    await eventually(lambda: len(passes) == 1)
    now = 10.0
    queue.mark("k")  # by a change: what was wished for at 30 is void
    await eventually(lambda: len(passes) == 2)
    assert queue._due == {"k": 15.0}
    now = 15.0
    queue.mark("other", 1000.0)
    await eventually(lambda: len(passes) == 3)
    await a_turn()
    assert "k" not in queue._due
    task.cancel()


async def test_one_object_that_fails_keeps_no_other_waiting() -> None:
    done: list[str] = []

    async def work(key: str) -> None:
        if key == "broken":
            raise KeyError(key)
        done.append(key)

    async with running(work, at_once=1) as queue:
        queue.mark("broken")
        queue.mark("fine")
        await eventually(lambda: done == ["fine"])
