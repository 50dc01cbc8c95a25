"""The ends of all events streams at once, for whoever wants to see what is appended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from inferencecache.core.log import Log, Reader, Start
from inferencecache.core.log.subjects import events_stream
from inferencecache.core.protocol.position import Lost
from inferencecache.core.service import get_logger
from inferencecache.router.views import Deliver, TailError
from inferencecache.schemas.layout import Layout

OPEN_LIMIT_S: Final = 5.0

logger = get_logger("router")


@asynccontextmanager
async def tail_of_events(
    log: Log, layout: Layout, deliver: Deliver, on_lost: Callable[[], None]
) -> AsyncIterator[None]:
    """While entered, `deliver` gets what is appended to any partition of any generation; a reconnect leaves
    no hole.

    `on_lost` is called when a stream was cut below its reader, or is another one. Raises `TailError`.
    """

    async def follow(stream: str, opened: asyncio.Event) -> None:
        reader = Reader(
            log, stream, Start.NEW, deliver, _lost, name="observe", on_open=lambda _: opened.set()
        )
        try:
            await reader.run()
        except Exception:
            logger.exception("event_tail_failed", stream=stream)
        on_lost()

    opened = {
        events_stream(each.generation, partition): asyncio.Event()
        for each in layout.generations
        for partition in range(each.partitions)
    }
    tasks = [asyncio.create_task(follow(stream, event)) for stream, event in opened.items()]
    try:
        try:
            async with asyncio.timeout(OPEN_LIMIT_S):
                for event in opened.values():
                    await event.wait()
        except TimeoutError:
            raise TailError("the event log cannot be read at the moment") from None
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _lost(lost: Lost) -> None:
    logger.warning("event_tail_lost", reason=lost.reason, detail=lost.detail)
