"""The layout over one connection: read with everything that says how far a change is, changed, pruned."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec

from inferencecache.cli.connected import CommandError
from inferencecache.core.log import Bucket, Log, Objects, WrongLastSequenceError, jetstream, read_members
from inferencecache.core.log.assets import LayoutEntry, read_layout_entry
from inferencecache.core.log.jetstream import NoStreamError
from inferencecache.core.log.subjects import (
    AGGREGATE,
    LAYOUT,
    LAYOUT_KEY,
    REFS,
    SNAPSHOTS,
    generation_of_stream,
)
from inferencecache.core.protocol.layouts import (
    TooManyGenerationsError,
    TooManyLanesError,
    prune,
    routers_behind,
    succeed,
)
from inferencecache.schemas.aggregate import PartitionAggregate
from inferencecache.schemas.layout import CurrentLayout, Lanes
from inferencecache.schemas.members import IndexerMember, RouterMember
from inferencecache.schemas.unreadable import UNREADABLE

_POLL_S: Final = 0.2
_LEAVE_S: Final = 10.0
"""Indexers that have not left pruned generations by then are not waited for."""


class LayoutError(CommandError):
    """The command cannot be carried out; the message says why and what to do."""


class State(NamedTuple):
    """The layout, who is there, and the counts of partitions by their `<generation>.<partition>`."""

    entry: LayoutEntry
    routers: list[RouterMember]
    indexers: list[IndexerMember]
    counts: dict[str, PartitionAggregate]

    @property
    def layout(self) -> CurrentLayout:
        """The layout in force."""
        return self.entry.layout

    @property
    def behind(self) -> list[RouterMember]:
        """Routers that do not answer by the generation in force."""
        return routers_behind(self.layout, self.routers)

    @property
    def is_followed(self) -> bool:
        """Are there routers, and does each answer by the generation in force?"""
        return bool(self.routers) and not self.behind


class Pruned(NamedTuple):
    """What was removed."""

    generations: list[int]
    streams: int
    objects: int


class LayoutStore:
    """Reads and changes the layout of an installation."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._bucket = Bucket(log, LAYOUT)

    async def read(self) -> State:
        """Everything. Raises LayoutError where there is no installation, LayoutUnusableError."""
        entry = await read_layout_entry(self._log)
        if entry is None:
            raise LayoutError(
                f"the server has no layout in {LAYOUT}: nothing has run there yet; start an indexer (or "
                "'inferencecache up'), or set --nats-url"
            )
        return State(
            entry,
            await read_members(self._log, RouterMember),
            await read_members(self._log, IndexerMember),
            await self._counts(),
        )

    async def put_in_force(
        self, partitions: int | None, lanes: Iterable[Lanes], *, dry_run: bool = False
    ) -> CurrentLayout:
        """Put a new generation in force. Raises LayoutError when that cannot be, or when somebody else does
        at the same time, and UnchangedLayoutError.
        """
        layout, revision = (await self.read()).entry
        try:
            new = succeed(layout, partitions=partitions, lanes=lanes)
        except (TooManyGenerationsError, TooManyLanesError) as error:
            raise LayoutError(str(error)) from None
        if not dry_run:
            await self._write(new, revision)
        return new

    async def wait_for_routers(self, limit_s: float, show: Callable[[State], None]) -> State:
        """Until the generation in force `is_followed`, or until `limit_s` has passed."""
        deadline = time.monotonic() + limit_s
        while True:
            state = await self.read()
            show(state)
            if state.is_followed or time.monotonic() >= deadline:
                return state
            await asyncio.sleep(_POLL_S)

    async def prune(self, *, force: bool = False) -> Pruned:
        """Remove the older generations, and what an interrupted prune has left of earlier ones.

        First the layout forgets them, then indexers leave them, then their streams, references, counts and
        snapshots go. Raises LayoutError while a router may need them, unless `force`.
        """
        state = await self.read()
        if state.layout.older:
            if not force:
                _refuse_while_needed(state)
            await self._write(prune(state.layout), state.entry.revision)
        streams = await self._streams_below(state.layout.generation)
        removed = {each.generation for each in state.layout.older} | {number for _, number in streams}
        await self._wait_until_left(removed)
        for stream, _ in streams:
            await jetstream.delete_stream(self._log, stream)
        objects = 0
        for generation in sorted(removed):
            for bucket in (REFS, AGGREGATE):
                subject = f"$KV.{bucket}.{generation}.*"
                await jetstream.purge_stream(self._log, f"KV_{bucket}", subject=subject)
            objects += await self._purge_objects(f"{generation}/")
        return Pruned(sorted(removed), len(streams), objects)

    async def _write(self, layout: CurrentLayout, revision: int) -> None:
        value = msgspec.json.encode(layout)
        try:
            await self._bucket.update(LAYOUT_KEY, value, revision)
        except WrongLastSequenceError:
            entry = await self._bucket.get(LAYOUT_KEY)  # ours, if only its acknowledgement was lost
            if entry is None or entry.value != value:
                raise LayoutError(
                    "somebody else has changed the layout at the same time; look again"
                ) from None

    async def _streams_below(self, generation: int) -> list[tuple[str, int]]:
        """Streams of partitions of earlier generations, with their generation."""
        found = [(name, generation_of_stream(name)) for name in await jetstream.stream_names(self._log)]
        return [(name, number) for name, number in found if number is not None and number < generation]

    async def _wait_until_left(self, generations: set[int]) -> None:
        """Indexers end with a generation as they hear of it; then nobody writes to its streams."""
        deadline = time.monotonic() + _LEAVE_S
        while time.monotonic() < deadline:
            state = await self.read()
            kept = {key.partition(".")[0] for indexer in state.indexers for key in indexer.partitions}
            if not generations & set(map(int, kept)):
                return
            await asyncio.sleep(_POLL_S)

    async def _purge_objects(self, prefix: str) -> int:
        objects = Objects(self._log, SNAPSHOTS)
        found = [*await objects.stored(prefix), *await objects.unfinished(prefix)]
        for each in found:
            await objects.purge(each.name)
        return len(found)

    async def _counts(self) -> dict[str, PartitionAggregate]:
        """What owners have counted, by the key of the partition; nothing where it cannot be read."""
        try:
            entries = await Bucket(self._log, AGGREGATE).entries(keys="*.*")
        except NoStreamError:
            return {}
        counts: dict[str, PartitionAggregate] = {}
        for entry in entries:
            with contextlib.suppress(*UNREADABLE):
                counts[entry.key] = msgspec.json.decode(entry.value, type=PartitionAggregate)
        return counts


def _refuse_while_needed(state: State) -> None:
    if not state.routers:
        raise LayoutError(
            "no router is running that could say whether it still needs the older generations; start one, or "
            "remove them anyway with --force"
        )
    if state.behind:
        names = ", ".join(f"{router.id} (generation {router.generation})" for router in state.behind)
        raise LayoutError(
            f"routers do not answer by generation {state.layout.generation} yet: {names}; wait, or remove "
            "what they answer by with --force"
        )
