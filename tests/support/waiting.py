"""Waiting for a condition in a test: with a deadline, and without guessing how long it takes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


async def eventually(condition: Callable[[], object], *, within_s: float = 10.0, what: str = "") -> None:
    """Return as soon as `condition()` is true. Raises AssertionError after `within_s`."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what or 'the condition'} did not come true within {within_s} s")
        await asyncio.sleep(0.005)
