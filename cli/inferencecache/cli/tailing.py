"""Following the log as it grows: every partition of the generation in force, and of the next one after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from inferencecache.core.index.fold import Folded
from inferencecache.core.log import Log, Reader, Start, StreamMessage, read_layout
from inferencecache.core.log.subjects import events_stream
from inferencecache.core.partitions.messages import log_message
from inferencecache.core.protocol.position import Lost
from inferencecache.core.replay import Filter, Told, told
from inferencecache.schemas.layout import Layout

_LOOK_AGAIN_S: Final = 1.0
_UNJUDGED: Final = Folded()


class Wanted:
    """Which records are shown: those about what the filter takes, and of these kinds if any are named.

    What owners, controllers and routers say about whole partitions counts only where it was asked for.
    """

    def __init__(self, only: Filter, kinds: Iterable[str] = (), *, control: bool = False) -> None:
        self._only = only
        self._kinds = frozenset(kinds)
        self._control = control

    def records(self, partition: int, message: StreamMessage) -> list[Told]:
        """Those of one message; whether they count is the fold's to judge, which nobody asks here."""
        heard = log_message(message.subject, message.payload, message.position)
        if not self._only.takes_sender(heard.sender):
            return []
        records = told(partition, heard, _UNJUDGED)
        return [record for record in records if self._is_wanted(record)]

    def _is_wanted(self, record: Told) -> bool:
        if self._kinds:
            return record.record in self._kinds
        return bool(record.replica) or self._control


async def follow(log: Log, wanted: Wanted, show: Callable[[Told], bool]) -> None:
    """Show what comes from now on, until `show` is false, raises OSError or this is cancelled."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def deliver(partition: int, messages: list[StreamMessage]) -> None:
        for message in messages:
            for record in wanted.records(partition, message):
                if done.done():
                    return
                try:
                    if not show(record):
                        done.set_result(None)
                except OSError as error:  # raised to the reader it would be lost
                    done.set_exception(error)

    following = asyncio.ensure_future(_deliver_all(log, deliver))
    try:
        await asyncio.wait((following, done), return_when=asyncio.FIRST_COMPLETED)
        await (done if done.done() else following)
    finally:
        following.cancel()
        done.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def _deliver_all(log: Log, deliver: Callable[[int, list[StreamMessage]], None]) -> None:
    """One reader a partition, opened anew when the layout or a stream becomes another."""
    while True:
        layout = await read_layout(log)
        if layout is None:
            await asyncio.sleep(_LOOK_AGAIN_S)
            continue
        in_force = layout.in_force
        readers = [
            asyncio.ensure_future(_read(log, in_force, partition, deliver))
            for partition in range(in_force.partitions)
        ]
        try:
            await _until_another(log, in_force)
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)


async def _read(
    log: Log, layout: Layout, partition: int, deliver: Callable[[int, list[StreamMessage]], None]
) -> None:
    stream = events_stream(layout.generation, partition)

    def lost(_: Lost) -> None:
        """The next reader begins with what comes then."""

    while True:
        reader = Reader(
            log, stream, Start.NEW, lambda messages: deliver(partition, messages), lost, name="tail"
        )
        await reader.run()
        await asyncio.sleep(_LOOK_AGAIN_S)


async def _until_another(log: Log, layout: Layout) -> None:
    while True:
        await asyncio.sleep(_LOOK_AGAIN_S)
        now = await read_layout(log)
        if now is None or now.in_force != layout:
            return
