"""What the index holds, as its owners count it: the aggregate that everything in Kubernetes is told from.

It is complete when every partition of the layout has a value that is younger than 15 s. Ages are judged
by when a new revision arrived here, so an aggregate that nobody writes any more grows old by itself
[CTL-170].
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from inferencecache.core.index.aggregate import merge
from inferencecache.core.log import Bucket, Entry, Gone, Log
from inferencecache.core.log.subjects import AGGREGATE, partition_key
from inferencecache.core.service import get_logger
from inferencecache.schemas.aggregate import Aggregate, PartitionAggregate
from inferencecache.schemas.layout import CurrentLayout
from inferencecache.schemas.unreadable import UNREADABLE

MOST_AGE_S: Final = 15.0

logger = get_logger("aggregate")
_decoder = msgspec.json.Decoder(PartitionAggregate)


class IncompleteAggregateError(Exception):
    """There is no complete aggregate now; the message says what is missing."""


class Source(NamedTuple):
    """A complete aggregate and where it is from; the text changes only with the layout."""

    aggregate: Aggregate
    observed_server: str


class _Part(NamedTuple):
    revision: int
    arrived_at: float
    part: PartitionAggregate


class AggregateReader:
    """Follows `IC_AGGREGATE`; `layout` is told by whoever knows it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.layout: CurrentLayout | None = None
        self._clock = clock
        self._parts: dict[str, _Part] = {}
        self._arrived = asyncio.Event()

    async def run(self, log: Log) -> None:
        """Follow until cancelled."""
        await Bucket(log, AGGREGATE).watch(self.changed).run()

    def changed(self, change: Entry | Gone) -> None:
        """One value of the bucket."""
        if isinstance(change, Gone):
            self._parts.pop(change.key, None)
            return
        known = self._parts.get(change.key)
        if (known is not None and known.revision == change.revision) or change.key.endswith(".budget"):
            return
        try:
            part = _decoder.decode(change.value)
        except UNREADABLE as error:
            logger.warning("aggregate_unreadable", key=change.key, error=str(error))
            return
        self._parts[change.key] = _Part(change.revision, self._clock(), part)
        self._arrived.set()

    async def completed(self) -> None:
        """Return once there is a complete aggregate."""
        while True:
            with contextlib.suppress(IncompleteAggregateError):
                self.read()
                return
            self._arrived.clear()
            await self._arrived.wait()

    def read(self) -> Source:
        """The complete aggregate of the generation in force. Raises `IncompleteAggregateError`."""
        layout = self.layout
        if layout is None:
            raise IncompleteAggregateError("the event log was not reached yet; see --nats-url")
        parts: list[PartitionAggregate] = []
        for number in range(layout.partitions):
            key = partition_key(layout.generation, number)
            found = self._parts.get(key)
            if found is None:
                raise IncompleteAggregateError(f"no indexer has counted partition {key} yet")
            if self._clock() - found.arrived_at >= MOST_AGE_S:
                # Without the age: this is written to an object, and only when it changes.
                raise IncompleteAggregateError(f"no indexer has counted partition {key} for {MOST_AGE_S:g} s")
            parts.append(found.part)
        return Source(merge(parts), f"jetstream://IC_EVENTS/{layout.generation}")
