"""Telling the log what hints made use of: a `Credit` record a partition and second, best effort."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from inferencecache.core.index.credits import Credits, summed
from inferencecache.core.log import NotStoredError
from inferencecache.core.log.subjects import control_subject, partition_of
from inferencecache.core.service import get_logger
from inferencecache.router.views import EventLog
from inferencecache.schemas.layout import Layout
from inferencecache.schemas.records import Batch, Credit, CreditedHolds, encode_batch

INTERVAL_S: Final = 1.0
STORE_TIMEOUT_S: Final = 1.0
MOST_KEYS: Final = 1 << 14
"""Keys of one item; with their counts 192 KiB."""
_TEXT_BYTES: Final = 2048
"""More than the ids of an item take."""

logger = get_logger("router")


class Crediting:
    """Publishes what `credited` has collected; `id_` tells this router's messages from others'."""

    def __init__(self, event_log: EventLog, id_: str, credited: Credits) -> None:
        self._log = event_log
        self._id = id_
        self._credited = credited
        self._sent = 0

    async def run(self, served: Callable[[], Layout | None]) -> None:
        """Publish each second, by the layout that is served then, until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            layout = served()
            if layout is not None:
                await self.publish(layout)

    async def publish(self, layout: Layout) -> None:
        """Publish what there is; what the log does not store is given up [IDX-147]."""
        pending = self._credited.take()
        if not pending:
            return
        items = await asyncio.to_thread(list, summed(pending, MOST_KEYS))
        by_partition: defaultdict[int, list[CreditedHolds]] = defaultdict(list)
        for item in items:
            by_partition[partition_of(item.tenant, item.model, item.replica, layout)].append(item)
        for partition, of_partition in by_partition.items():
            subject = control_subject(layout.generation, partition, "r")
            for holds in _fitting(of_partition, self._log.payload_limit):
                self._sent += 1
                payload = encode_batch(Batch(records=(Credit(holds),)))
                try:
                    await self._log.publish(
                        subject,
                        payload,
                        msg_id=f"{self._id}.credit.{self._sent}",
                        timeout_s=STORE_TIMEOUT_S,
                    )
                except NotStoredError as error:
                    logger.info("credit_not_stored", partition=partition, error=str(error))
                    return


def _fitting(items: Iterable[CreditedHolds], limit: int) -> Iterator[tuple[CreditedHolds, ...]]:
    """Items in groups that fit one message."""
    group: list[CreditedHolds] = []
    size = _TEXT_BYTES
    for item in items:
        item_size = _TEXT_BYTES + len(item.keys) + len(item.counts)
        if group and size + item_size > limit:
            yield tuple(group)
            group, size = [], _TEXT_BYTES
        group.append(item)
        size += item_size
    if group:
        yield tuple(group)
