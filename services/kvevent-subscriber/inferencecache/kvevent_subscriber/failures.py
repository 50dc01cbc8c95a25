"""Work that runs beside its owner: an error in it is the owner's error, and ends nothing silently."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class Failures:
    """Takes what tasks and timers of one owner fail with, and gives the first of it to `guard`."""

    def __init__(self) -> None:
        self._first: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task for `work`; cancelling it is no failure."""
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._ended)
        return task

    def note(self, error: BaseException) -> None:
        """Something failed with this."""
        if not self._first.done():
            self._first.set_exception(error)

    async def guard(self, work: Coroutine[Any, Any, None]) -> None:
        """Do `work`. Raises what it fails with, or what anything else failed with before its end."""
        working = asyncio.get_running_loop().create_task(work)
        try:
            await asyncio.wait((working, self._first), return_when=asyncio.FIRST_COMPLETED)
        finally:
            working.cancel()
            await asyncio.wait((working,))
        if self._first.done():
            self._first.result()
        working.result()

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.note(error)
