"""Answering requests on NATS: side by side, a bearable number at once, and only those somebody waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from inferencecache.core.log import Log, Message
from inferencecache.core.service import get_logger

QUEUE: Final = "router"
"""Routers share it, so that one of all answers."""
MOST_AT_ONCE: Final = 64
"""Requests that are answered or wait for an equal one; whoever asks for more hears nothing."""

logger = get_logger("requests")


async def answer_requests(
    log: Log, subject: str, answer: Callable[[Message], Awaitable[None]], *, queue: str = QUEUE
) -> None:
    """Let `answer` send the answer to each request on the subject, until cancelled.

    Whoever asked for what fails hears nothing, which counts as a failure as well.
    """
    running: set[asyncio.Task[None]] = set()

    async def answered(message: Message) -> None:
        try:
            await answer(message)
        except Exception:
            logger.exception("request_not_answered", subject=subject)

    async with asyncio.TaskGroup() as group:

        def asked(message: Message) -> None:
            if not message.reply or len(running) >= MOST_AT_ONCE:
                return
            task = group.create_task(answered(message))
            running.add(task)
            task.add_done_callback(running.discard)

        subscription = await log.subscribe(subject, asked, queue=queue)
        try:
            await asyncio.Event().wait()
        finally:
            await subscription.cancel()
