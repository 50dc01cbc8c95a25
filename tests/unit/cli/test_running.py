"""What runs in the background ends with its block, also when it misses being cancelled once."""

from __future__ import annotations

import asyncio

import pytest

from inferencecache.cli.running import finished_before, in_background
from tests.support.waiting import a_turn


class Deaf:
    """Work that keeps the first cancellation to itself, as `asyncio.wait_for` may."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.heard = 0

    async def run(self) -> None:
        while True:
            try:
                self.began.set()
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.heard += 1
                if self.heard > 1:
                    raise


async def test_a_block_ends_although_its_work_misses_a_cancellation() -> None:
    work = Deaf()
    async with asyncio.timeout(10), in_background(work.run()):
        await work.began.wait()
    assert work.heard == 2


async def test_stopping_ends_work_that_misses_a_cancellation() -> None:
    work, stop = Deaf(), asyncio.Event()
    async with asyncio.timeout(10):
        running = asyncio.create_task(finished_before(stop, work.run()))
        await work.began.wait()
        stop.set()
        assert not await running
    assert work.heard == 2


async def test_an_error_of_the_work_is_raised_at_the_end_of_the_block() -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        async with in_background(fail()):
            await a_turn()
