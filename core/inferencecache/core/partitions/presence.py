"""Saying that one is there, and seeing who else is: a row in `IC_MEMBERS` each second.

The bucket lives in the server's memory and is gone when the server restarts: whoever finds it missing
creates it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Final

import msgspec

from inferencecache.core.log import (
    ApiError,
    Bucket,
    Entry,
    Gone,
    Log,
    NoAnswerError,
    NotStoredError,
    finds_no_stream,
)
from inferencecache.core.log.assets import ensure_members
from inferencecache.core.log.subjects import MEMBERS
from inferencecache.core.protocol.membership import Membership
from inferencecache.core.service import get_logger
from inferencecache.schemas.members import Member
from inferencecache.schemas.unreadable import UNREADABLE

INTERVAL_S: Final = 1.0
HEARTBEAT_S: Final = 0.5
_PUT_LIMIT_S: Final = 0.9
_GOODBYE_LIMIT_S: Final = 1.0

logger = get_logger("partitions")


class Presence:
    """One process's presence. `row` is asked for each second; `key` is its key in the bucket."""

    def __init__(self, log: Log, key: str, row: Callable[[], Member], *, replicas: int = 1) -> None:
        self.membership = Membership()
        self._log = log
        self._key = key
        self._row = row
        self._replicas = replicas
        self._bucket = Bucket(log, MEMBERS)
        self._soon = asyncio.Event()

    async def run(self) -> None:
        """Put and watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._bucket.watch(self._changed, heartbeat_s=HEARTBEAT_S).run())
            group.create_task(self._put())

    def put_soon(self) -> None:
        """Something in the row has changed that others wait for."""
        self._soon.set()

    async def say_goodbye(self) -> None:
        """Leave at once instead of being missed after 3 s."""
        with contextlib.suppress(NotStoredError):
            await self._bucket.delete(self._key, timeout_s=_GOODBYE_LIMIT_S)

    async def _put(self) -> None:
        while True:
            try:
                row = msgspec.json.encode(self._row())
                await self._bucket.put(self._key, row, timeout_s=_PUT_LIMIT_S)
            except NotStoredError as error:
                if finds_no_stream(error):
                    await self._create_bucket()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(INTERVAL_S):
                    await self._soon.wait()
            self._soon.clear()

    async def _create_bucket(self) -> None:
        try:
            await ensure_members(self._log, replicas=self._replicas)
        except (ApiError, NoAnswerError) as error:
            logger.warning("members_bucket_missing", error=str(error))

    def _changed(self, change: Entry | Gone) -> None:
        if isinstance(change, Gone):
            self.membership.gone(change.key)
            if change.revision == 0:
                self.membership.rows_lost(time.monotonic())
            return
        try:
            member: Member = msgspec.json.decode(change.value, type=Member)
        except UNREADABLE as error:
            logger.warning("member_unreadable", key=change.key, error=str(error))
            return
        self.membership.seen(time.monotonic(), change.key, change.revision, member)
