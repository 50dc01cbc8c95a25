"""The live log as a source: snapshots from the object store, messages from the events streams.

Nothing is written, and nobody notices but for the reading.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from inferencecache.cli.connected import CommandError
from inferencecache.cli.replaying.source import Base, LogCutError, UnusableBaseError
from inferencecache.core.log import (
    Bucket,
    Log,
    ObjectDamagedError,
    ObjectMissingError,
    Objects,
    Reader,
    StreamMessage,
    read_layout,
)
from inferencecache.core.log.jetstream import StreamInfo, read_message, stream_info
from inferencecache.core.log.subjects import POLICY, POLICY_KEY, SNAPSHOTS, events_stream
from inferencecache.core.protocol.bases import log_sequence
from inferencecache.core.protocol.position import Lost
from inferencecache.core.replay import Point, RawMessage
from inferencecache.schemas.layout import Layout
from inferencecache.schemas.positions import Position

_SILENCE_S: Final = 30.0
"""A log that has more to read and says nothing for so long is not there."""


class LiveLog:
    """The log of one generation, over a connection."""

    def __init__(self, log: Log, layout: Layout) -> None:
        self._log = log
        self._layout = layout
        self._objects = Objects(log, SNAPSHOTS)

    @classmethod
    async def open(cls, log: Log, generation: int | None) -> LiveLog:
        """The generation of that number, by default the one in force. Raises `CommandError`."""
        current = await read_layout(log)
        if current is None:
            raise CommandError("there is no layout, so there is no log yet; start an indexer or a router")
        if generation is None:
            return cls(log, current.in_force)
        for layout in current.generations:
            if layout.generation == generation:
                return cls(log, layout)
        known = ", ".join(str(layout.generation) for layout in current.generations)
        raise CommandError(f"there is no generation {generation}; --generation is one of {known}")

    @property
    def layout(self) -> Layout:
        return self._layout

    @property
    def partitions(self) -> Sequence[int]:
        return range(self._layout.partitions)

    @property
    def now_ns(self) -> int:
        return time.time_ns()

    async def bases(self, partition: int) -> list[Base]:
        """A base has its last message still in the log: only that proves that the two belong together."""
        info = await self._info(partition)
        found = []
        if info.state.first_seq <= 1:
            found.append(Base("the start of the log", Position(), _nothing))
        for stored in await self._objects.stored(f"{self._layout.generation}/{partition}/"):
            sequence = log_sequence(stored.name)
            if info.state.first_seq <= sequence <= info.state.last_seq:
                message = await read_message(self._log, self._stream(partition), sequence=sequence)
                if message is not None:
                    at = Position(sequence, message.time_ns, info.created_ns)
                    found.append(Base(f"snapshot {stored.name}", at, self._loading(stored.name)))
        return sorted(found, key=lambda base: base.at.sequence)

    async def last(self, partition: int) -> int:
        return (await self._info(partition)).state.last_seq

    async def read(
        self, partition: int, after: Position, until: Point | None, take: Callable[[RawMessage], None]
    ) -> None:
        last = await self.last(partition)
        if after.sequence >= last:
            return
        losses: list[Lost] = []
        failures: list[OSError] = []
        loop = asyncio.get_running_loop()

        def deliver(messages: list[StreamMessage]) -> None:
            limit.reschedule(loop.time() + _SILENCE_S)
            for message in messages:
                if until is not None and until.offset(message.position) > 0:
                    reader.stop()
                    return
                try:
                    take(RawMessage(message.subject, message.payload, message.position))
                except OSError as error:  # of what the answer is written to; the reader would go on
                    failures.append(error)
                    reader.stop()
                    return
                if message.position.sequence >= last:
                    reader.stop()
                    return

        reader = Reader(self._log, self._stream(partition), after, deliver, losses.append, name="replay")
        try:
            async with asyncio.timeout(_SILENCE_S) as limit:
                await reader.run()
        except TimeoutError:
            raise CommandError(
                f"partition {partition}: no message for {_SILENCE_S:g} s; check --nats-url"
            ) from None
        if failures:
            raise failures[0]
        if losses:
            raise LogCutError(f"partition {partition}: {losses[0].detail}; try again from a later point")

    async def policy_set(self, revision: int) -> bytes | None:
        entry = await Bucket(self._log, POLICY).at(POLICY_KEY, revision)
        return entry.value if entry is not None else None

    def _stream(self, partition: int) -> str:
        return events_stream(self._layout.generation, partition)

    async def _info(self, partition: int) -> StreamInfo:
        return await stream_info(self._log, self._stream(partition))

    def _loading(self, name: str) -> Callable[[], Awaitable[Sequence[bytes]]]:
        async def load() -> Sequence[bytes]:
            try:
                return [chunk async for chunk in self._objects.read(name)]
            except (ObjectMissingError, ObjectDamagedError) as error:
                raise UnusableBaseError(str(error)) from None

        return load


async def _nothing() -> Sequence[bytes]:
    return ()
