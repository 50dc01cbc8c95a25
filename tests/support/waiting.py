"""Waiting in tests: for a condition, with a deadline, and without guessing how long it takes.

What can be awaited by itself is awaited. A condition that nobody announces is looked at again and
again, here and nowhere else.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Final

POLL_S: Final = 0.005


async def eventually(condition: Callable[[], object], *, within_s: float = 10.0, what: str = "") -> None:
    """Return as soon as `condition()`, or what it awaits, is true. Raises AssertionError after `within_s`."""
    deadline = time.monotonic() + within_s
    while not await _answer(condition):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what or 'the condition'} did not come true within {within_s} s")
        await a_moment()


async def a_moment() -> None:
    """Return when the world may have changed."""
    await set_within(asyncio.Event(), POLL_S)


async def a_turn() -> None:
    """Return when everything else that is ready to run has had its turn."""
    turn = asyncio.Event()
    asyncio.get_running_loop().call_soon(turn.set)
    await turn.wait()


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """Return when the event is set, or when it was not for so long: was it?"""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def _answer(condition: Callable[[], object]) -> object:
    answer = condition()
    return await answer if inspect.isawaitable(answer) else answer
