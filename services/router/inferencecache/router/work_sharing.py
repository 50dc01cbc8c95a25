"""Routers tell one another what their hints assigned, so that three of them balance as one would.

On plain NATS: what is lost is lost, and the estimate decays anyway. Nothing of it is in the log. What is
assigned after a quiet moment is told at once, so that a burst which meets several routers does not find
the same replica idle in each; after a message the next waits for a hundredth of the time that work lasts.
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
from inferencecache.schemas.unreadable import UNREADABLE

INTERVAL_OF_DECAY: Final = 0.01
"""Time between messages as a share of the decay time: 100 ms by default."""
LEAST_INTERVAL_S: Final = 0.005

_decoder = msgspec.json.Decoder(WorkAssigned)


class WorkSharing:
    """Shares `work` of the router `id_` over a connection that is started."""

    def __init__(self, log: Log, id_: str, work: AssignedWork) -> None:
        self._log = log
        self._id = id_
        self._work = work

    async def run(self) -> None:
        """Share until cancelled."""
        assigned = asyncio.Event()
        assigned.set()
        self._work.on_assigned = assigned.set
        interval_s = max(LEAST_INTERVAL_S, INTERVAL_OF_DECAY * self._work.decay_s)
        subscription = await self._log.subscribe(WORK_SUBJECT, self._heard)
        try:
            while True:
                await assigned.wait()
                assigned.clear()
                if items := tuple(WorkItem(*item) for item in self._work.take_unshared()):
                    await self._log.send(WORK_SUBJECT, msgspec.json.encode(WorkAssigned(self._id, items)))
                    await asyncio.sleep(interval_s)
        finally:
            await subscription.cancel()

    def _heard(self, message: Message) -> None:
        try:
            told = _decoder.decode(message.data)
        except UNREADABLE:
            return
        if told.router == self._id:
            return
        now_s = time.monotonic()
        for item in told.items:
            self._work.hear(Assigned(item.tenant, item.model, item.replica, item.tokens), now_s)
