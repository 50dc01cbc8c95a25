"""Routers tell one another what their hints assigned, so that three of them balance as one would.

A message every 100 ms, when there is something to tell, on plain NATS: what is lost is lost, and the
estimate decays anyway. Nothing of it is in the log.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

import msgspec

from inferencecache.core.index.work import Assigned, AssignedWork
from inferencecache.core.log import Log, Message
from inferencecache.core.log.subjects import WORK_SUBJECT
from inferencecache.schemas.requests import WorkAssigned, WorkItem

INTERVAL_S: Final = 0.1

_decoder = msgspec.json.Decoder(WorkAssigned)


class WorkSharing:
    """Shares `work` of the router `id_` over a connection that is started."""

    def __init__(self, log: Log, id_: str, work: AssignedWork) -> None:
        self._log = log
        self._id = id_
        self._work = work

    async def run(self) -> None:
        """Share until cancelled."""
        subscription = await self._log.subscribe(WORK_SUBJECT, self._heard)
        try:
            while True:
                await asyncio.sleep(INTERVAL_S)
                if items := self._work.take_unshared():
                    told = WorkAssigned(self._id, tuple(WorkItem(*item) for item in items))
                    await self._log.send(WORK_SUBJECT, msgspec.json.encode(told))
        finally:
            await subscription.cancel()

    def _heard(self, message: Message) -> None:
        try:
            told = _decoder.decode(message.data)
        except (msgspec.DecodeError, ValueError):
            return
        if told.router == self._id:
            return
        now_s = time.monotonic()
        for item in told.items:
            self._work.hear(Assigned(item.tenant, item.model, item.replica, item.tokens), now_s)
