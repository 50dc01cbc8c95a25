"""Tasks that a running owner starts when something calls it back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


class Tasks:
    """A task group that may be asked for tasks at any time while its owner is in `running`.

    A reader hands over what it has read also while the group ends, and a group that ends takes no tasks.
    """

    def __init__(self) -> None:
        self._group: asyncio.TaskGroup | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """End all tasks at the end of the block; what one of them fails with ends the block."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            yield

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        """A task for `work`; None if the group ends, and with it whatever the work would be for."""
        if self._group is None:
            work.close()
            raise RuntimeError("tasks are started only while their owner runs")
        try:
            return self._group.create_task(work)
        except RuntimeError:
            work.close()
            return None
