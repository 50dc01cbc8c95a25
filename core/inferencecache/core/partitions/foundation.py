"""The ground a process stands on: layout and assets, made sure of at start, after every reconnect and
whenever the layout changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from inferencecache.core.log import (
    ApiError,
    Bucket,
    Entry,
    Gone,
    Log,
    NoAnswerError,
    ensure_assets,
    ensure_layout,
)
from inferencecache.core.log.assets import SNAPSHOT_PERIOD_S
from inferencecache.core.log.subjects import LAYOUT, LAYOUT_KEY
from inferencecache.core.service import AssetSettings, RefusedError, get_logger
from inferencecache.schemas.layout import CurrentLayout, Layout

RETRY_S: Final = 1.0

logger = get_logger("partitions")


class Foundation:
    """Layout and assets of one installation."""

    def __init__(
        self, log: Log, settings: AssetSettings, *, snapshot_period_s: float = SNAPSHOT_PERIOD_S
    ) -> None:
        self._log = log
        self._settings = settings
        self._snapshot_period_s = snapshot_period_s
        self._again = asyncio.Event()

    async def lay(self) -> CurrentLayout:
        """The layout in force, with all its assets there; tried until it succeeds.

        Raises RefusedError: what trying again cannot help.
        """
        while True:
            try:
                return await self._lay(Layout(partitions=self._settings.partitions))
            except (ApiError, NoAnswerError) as error:
                logger.warning("assets_not_ready", error=str(error))
                await asyncio.sleep(RETRY_S)

    def again(self) -> None:
        """Make sure of everything once more: something of it was found missing."""
        self._again.set()

    async def keep(self, layout: CurrentLayout, changed: Callable[[CurrentLayout], None]) -> None:
        """Lay again after every reconnect and change of the layout, until cancelled.

        `changed` is called with every new layout, once all its assets are there. A layout that cannot be
        used, or has no room, is told and left alone: what runs goes on.
        """
        stop_listening = self._log.on_connected(self.again)
        try:
            async with asyncio.TaskGroup() as group:
                watch = Bucket(self._log, LAYOUT).watch(self._layout_seen, keys=LAYOUT_KEY)
                group.create_task(watch.run())
                while True:
                    await self._again.wait()
                    self._again.clear()
                    try:
                        laid = await self._lay(layout)
                    except (ApiError, NoAnswerError) as error:
                        logger.warning("assets_not_ready", error=str(error))
                        self._again.set()
                        await asyncio.sleep(RETRY_S)
                    except RefusedError as error:
                        logger.error("assets_unsafe", error=str(error))  # noqa: TRY400 - it says all
                    else:
                        if laid != layout:
                            layout = laid
                            changed(layout)
        finally:
            stop_listening()

    def _layout_seen(self, change: Entry | Gone) -> None:
        """Only a sign: what counts is read together with making sure of its assets."""
        self._again.set()

    async def _lay(self, default: Layout) -> CurrentLayout:
        replicas = self._settings.replicas
        layout = await ensure_layout(self._log, default=default, replicas=replicas)
        await ensure_assets(self._log, layout, replicas=replicas, snapshot_period_s=self._snapshot_period_s)
        return layout
