"""Small pieces of running things until they are done or somebody asks to stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from inferencecache.core.service import ended


def stop_on_signals() -> asyncio.Event:
    """An event that Ctrl-C, SIGTERM and a closed terminal set, for the running event loop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    return stop


async def finished_before(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Run `work`; false when `stop` came first, `work` is cancelled then. Its errors are raised."""
    working = asyncio.create_task(work)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            return False
        await working
        return True
    finally:
        await ended(working)
        await ended(stopping)


@asynccontextmanager
async def in_background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run `work` inside the block and cancel it at the end; an error of it is raised there."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        await ended(task)
        if not task.cancelled():
            task.result()
