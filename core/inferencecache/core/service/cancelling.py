"""Ending tasks for certain."""

from __future__ import annotations

import asyncio
from typing import Any, Final

CANCEL_AGAIN_S: Final = 0.2


async def ended(task: asyncio.Task[Any]) -> None:
    """Cancel until it is over, whatever came of it.

    Once may not do: before Python 3.12 a library's `asyncio.wait_for` keeps a cancellation to itself that
    comes together with its result, and the task goes on.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=CANCEL_AGAIN_S)
    if not task.cancelled():
        task.exception()  # asked for, or the event loop complains that nobody did
