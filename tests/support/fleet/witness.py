"""Somebody who reads along: every message of the log, every delta, and all that members say of themselves.

What was seen is kept when the server loses, cuts or purges it; a stream that turns out to be another one
is read again from its beginning, and then only that counts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, NamedTuple, Self

import msgspec

from inferencecache.core.index.fold import LogMessage
from inferencecache.core.log import Bucket, Entry, Gone, Log, Reader, Start, StreamMessage, wait_for_layout
from inferencecache.core.log.subjects import (
    LAYOUT,
    LAYOUT_KEY,
    MEMBERS,
    deltas_stream,
    events_stream,
    partition_key,
)
from inferencecache.core.partitions.messages import log_message
from inferencecache.core.protocol.position import Lost
from inferencecache.core.service import NatsSettings
from inferencecache.schemas.deltas import Delta, UnreadableDeltaError, decode_delta
from inferencecache.schemas.layout import CurrentLayout
from inferencecache.schemas.members import IndexerMember, Member, RouterMember
from inferencecache.schemas.records import Claim
from inferencecache.schemas.senders import ControlSender, ReplicaSender
from tests.oracle.model import NaiveFold
from tests.support.waiting import a_moment


class Told(NamedTuple):
    """A delta under its number."""

    number: int
    delta: Delta


class Said(NamedTuple):
    """What a member said, and when, by the monotonic clock."""

    at: float
    member: Member


class Claimed(NamedTuple):
    """A claim, its place in the log, and when it was read, by the monotonic clock."""

    at: float
    sequence: int
    claim: Claim


class PartitionCopy:
    """All that one partition's log and deltas have said."""

    def __init__(self, generation: int, number: int) -> None:
        self.generation = generation
        self.number = number
        self.key = partition_key(generation, number)
        self.events = events_stream(generation, number)
        self.told = deltas_stream(generation, number)
        self.claims: list[Claimed] = []
        self.losses: list[Lost] = []
        self._forget_log()
        self.deltas: list[Told] = []

    def _forget_log(self) -> None:
        self.messages: list[LogMessage] = []
        self.raw: list[StreamMessage] = []
        self._head = NaiveFold()
        self._folded = 0

    @property
    def head(self) -> NaiveFold:
        """The model's fold of all that is here."""
        for message in self.messages[self._folded :]:
            self._head.fold(message)
        self._folded = len(self.messages)
        return self._head

    def fold_before(self, sequence: int) -> tuple[NaiveFold, list[LogMessage]]:
        """The model's fold of the log before a message, and the messages from there on."""
        fold = NaiveFold()
        for number, message in enumerate(self.messages):
            if message.position.sequence >= sequence:
                return fold, self.messages[number:]
            fold.fold(message)
        return fold, []

    def heard_events(self, messages: list[StreamMessage]) -> None:
        for message in messages:
            read = log_message(message.subject, message.payload, message.position)
            self.raw.append(message)
            self.messages.append(read)
            if isinstance(read.sender, ControlSender) and read.batch is not None:
                self.claims += (
                    Claimed(time.monotonic(), read.position.sequence, record)
                    for record in read.batch.batch.records
                    if isinstance(record, Claim)
                )

    def heard_deltas(self, messages: list[StreamMessage]) -> None:
        for message in messages:
            try:
                self.deltas.append(Told(message.position.sequence, decode_delta(message.payload)))
            except UnreadableDeltaError:
                continue  # what a test put there

    def lost_events(self, lost: Lost) -> None:
        self.losses.append(lost)
        if lost.reason != "cut":
            self._forget_log()

    def lost_deltas(self, lost: Lost) -> None:
        if lost.reason != "cut":
            self.deltas = []

    def batches_of(self, replica: str) -> list[StreamMessage]:
        """What a replica's sidecar has sent, as it was stored."""
        return [
            raw
            for raw, read in zip(self.raw, self.messages, strict=True)
            if isinstance(read.sender, ReplicaSender)
            and (read.sender.replica, read.sender.channel) == (replica, "e")
        ]


class Witness:
    """Reads along inside `async with`, over a connection of its own, by the layout that is in force."""

    def __init__(self, nats: NatsSettings) -> None:
        self.partitions: list[PartitionCopy] = []
        self.said: list[Said] = []
        self._nats = nats
        self._reading: list[asyncio.Task[None]] = []
        self._following: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self.log = await Log.connect(self._nats, name="witness", timeout_s=30)
        self._follow(await wait_for_layout(self.log))
        layouts = Bucket(self.log, LAYOUT).watch(self._layout_changed, keys=LAYOUT_KEY)
        self._start(layouts.run())
        self._start(Bucket(self.log, MEMBERS).watch(self._member_changed).run())
        await layouts.ready.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._reading:
            task.cancel()
        results = await asyncio.gather(*self._reading, return_exceptions=True)
        await self.log.close()
        for result in results:
            if isinstance(result, Exception):
                raise result

    @property
    def folds(self) -> list[NaiveFold]:
        """The model's fold of every partition."""
        return [copy.head for copy in self.partitions]

    def routers(self, since: float = 0.0) -> list[RouterMember]:
        """All that routers have said of themselves."""
        return [
            said.member for said in self.said if said.at >= since and isinstance(said.member, RouterMember)
        ]

    def indexers(self, since: float) -> dict[str, IndexerMember]:
        """The latest row of every indexer that has spoken since."""
        return {
            said.member.id: said.member
            for said in self.said
            if said.at >= since and isinstance(said.member, IndexerMember)
        }

    def _follow(self, layout: CurrentLayout) -> None:
        """Read the partitions of this layout; those of an earlier one are of no interest any more."""
        self.layout = layout
        for task in self._following:
            task.cancel()
        self._following = []
        self.partitions = [PartitionCopy(layout.generation, number) for number in range(layout.partitions)]
        for copy in self.partitions:
            for stream, deliver, on_lost in (
                (copy.events, copy.heard_events, copy.lost_events),
                (copy.told, copy.heard_deltas, copy.lost_deltas),
            ):
                self._following.append(self._start(self._read(stream, deliver, on_lost)))

    def _layout_changed(self, change: Entry | Gone) -> None:
        if isinstance(change, Entry):
            layout = msgspec.json.decode(change.value, type=CurrentLayout)
            if layout != self.layout:
                self._follow(layout)

    def _start(self, reading: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(reading)
        self._reading.append(task)
        return task

    async def _read(self, stream: str, deliver: Any, on_lost: Any) -> None:
        """Read, and after a loss read what is there now."""
        reason = ""

        def lost(what: Lost) -> None:
            nonlocal reason
            if what.reason != "no_stream" or reason != "no_stream":
                on_lost(what)
            reason = what.reason

        while True:
            await Reader(self.log, stream, Start.OLDEST, deliver, lost, name="witness").run()
            await a_moment()

    def _member_changed(self, change: Entry | Gone) -> None:
        if isinstance(change, Entry):
            member: Member = msgspec.json.decode(change.value, type=Member)
            self.said.append(Said(time.monotonic(), member))
