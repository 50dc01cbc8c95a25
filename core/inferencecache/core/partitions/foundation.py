"""The ground a process stands on: layout and assets, made sure of at start and after every reconnect."""

from __future__ import annotations

import asyncio
from typing import Final

from inferencecache.core.log import ApiError, Log, NoAnswerError, ensure_assets, ensure_layout
from inferencecache.core.log.assets import (
    SNAPSHOT_PERIOD_S,
    LayoutUnusableError,
    StoreTooSmallError,
    UnsafeRetentionError,
)
from inferencecache.core.service import AssetSettings, get_logger
from inferencecache.schemas.layout import Layout

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

    async def lay(self) -> Layout:
        """The layout in force, with all its assets there; tried until it succeeds.

        Raises LayoutUnusableError, UnsafeRetentionError, StoreTooSmallError: what trying again cannot help.
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

    async def keep(self, layout: Layout) -> None:
        """Lay again after every reconnect, until cancelled: a server may have lost its store."""
        stop_listening = self._log.on_connected(self.again)
        try:
            while True:
                await self._again.wait()
                self._again.clear()
                try:
                    await self._lay(layout)
                except (ApiError, NoAnswerError) as error:
                    logger.warning("assets_not_ready", error=str(error))
                    self._again.set()
                    await asyncio.sleep(RETRY_S)
                except (LayoutUnusableError, UnsafeRetentionError, StoreTooSmallError) as error:
                    # What runs goes on; the next start is refused.
                    logger.error("assets_unsafe", error=str(error))  # noqa: TRY400 - the message says all
        finally:
            stop_listening()

    async def _lay(self, default: Layout) -> Layout:
        replicas = self._settings.replicas
        layout = await ensure_layout(self._log, default=default, replicas=replicas)
        await ensure_assets(self._log, layout, replicas=replicas, snapshot_period_s=self._snapshot_period_s)
        return layout
