"""A router's replica of one partition: the I/O for `core.protocol.follower`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from inferencecache.core.index.snapshot import UnreadableSnapshotError
from inferencecache.core.index.view import View
from inferencecache.core.log import (
    ApiError,
    Log,
    NoAnswerError,
    ObjectDamagedError,
    ObjectMissingError,
    Objects,
    Reader,
    StreamMessage,
    finds_no_stream,
)
from inferencecache.core.log.subjects import (
    SNAPSHOTS,
    deltas_stream,
    partition_key,
    snapshot_request_subject,
)
from inferencecache.core.partitions import References, Tasks
from inferencecache.core.partitions.loading import load_snapshot
from inferencecache.core.protocol.bases import AskSnapshot, Load, ReadRefs
from inferencecache.core.protocol.follower import Action, Follower, Read, StopReading
from inferencecache.core.protocol.position import Lost
from inferencecache.core.service import get_logger, tracing
from inferencecache.schemas.deltas import Delta, UnreadableDeltaError, decode_delta
from inferencecache.schemas.digests import digest_text
from inferencecache.schemas.members import ViewedPartition
from inferencecache.schemas.positions import Position, SnapshotRef

POLL_S: Final = 0.25

logger = get_logger("router")


class PartitionReplica:
    """Follows one partition until cancelled. `on_change` is called when completeness has changed."""

    def __init__(
        self,
        log: Log,
        generation: int,
        partition: int,
        *,
        on_change: Callable[[], None],
        on_missing: Callable[[], None],
    ) -> None:
        self.key = partition_key(generation, partition)
        self.follower = Follower(View)
        self._log = log
        self._deltas = deltas_stream(generation, partition)
        self._ask_subject = snapshot_request_subject(generation, partition)
        self._on_change = on_change
        self._on_missing = on_missing
        self._references = References(log, self.key)
        self._objects = Objects(log, SNAPSHOTS)
        self._reader: Reader | None = None
        self._tasks = Tasks()
        self._was_complete = False
        self._started_at = time.monotonic()

    @property
    def view(self) -> View:
        """What answers lookups now."""
        return self.follower.view

    @property
    def loaded(self) -> bool:
        """Has the view reached the delta that was last when it was first opened? Then for good."""
        return self.follower.complete

    @property
    def complete(self) -> bool:
        """Is the view loaded, and the one that the deltas prove?"""
        return self.loaded and self.view.proven

    def now_us(self) -> int:
        """Log time now."""
        return self.follower.now_us(time.monotonic())

    def age_s(self) -> float:
        """Time since the last delta arrived, or since the start before the first: one is due each second."""
        heard_at = self.follower.heard_at
        return time.monotonic() - (heard_at if heard_at is not None else self._started_at)

    def row(self) -> ViewedPartition:
        """What the other members read."""
        view = self.view
        return ViewedPartition(
            view.log_epoch,
            view.delta.sequence,
            view.time_us,
            digest_text(view.digest) if view.proven else None,
            round(self.age_s(), 3),
            self.complete,
        )

    async def run(self) -> None:
        """Follow until cancelled."""
        async with self._tasks.running():
            self._do(self.follower.start())
            while True:
                await asyncio.sleep(POLL_S)
                self._do(self.follower.poll(time.monotonic()))

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case ReadRefs():
                    self._tasks.start(self._read_refs())
                case Load():
                    self._tasks.start(self._load(action.ref))
                case Read():
                    self._read(action.position)
                case StopReading():
                    self._stop_reading()
                case AskSnapshot():
                    logger.warning("snapshot_asked_for", partition=self.key)
                    self._tasks.start(self._ask())
        if self.complete != self._was_complete:
            self._was_complete = self.complete
            self._on_change()

    async def _read_refs(self) -> None:
        try:
            refs, _ = await self._references.read()
        except (ApiError, NoAnswerError) as error:
            logger.info("refs_not_read", partition=self.key, error=str(error))
            if finds_no_stream(error):
                self._on_missing()
            self._do(self.follower.refs_failed(time.monotonic()))
        else:
            self._do(self.follower.refs_read(time.monotonic(), refs))

    async def _load(self, ref: SnapshotRef) -> None:
        try:
            view = await load_snapshot(self._objects, ref, self.key, View())
        except (ObjectMissingError, ObjectDamagedError, UnreadableSnapshotError) as error:
            logger.warning("snapshot_not_loaded", partition=self.key, object=ref.object, error=str(error))
            self._do(self.follower.load_failed())
        except (ApiError, NoAnswerError) as error:
            logger.warning("snapshot_unreachable", partition=self.key, object=ref.object, error=str(error))
            if finds_no_stream(error):
                self._on_missing()
            self._do(self.follower.load_unreachable(time.monotonic(), ref))
        else:
            self._do(self.follower.loaded(time.monotonic(), ref, view))

    async def _ask(self) -> None:
        await self._log.send(self._ask_subject, b"")

    def _read(self, position: Position) -> None:
        self._stop_reading()
        reader = Reader(
            self._log,
            self._deltas,
            position,
            lambda messages: self._received(reader, messages),
            lambda lost: self._lost(reader, lost),
            name="follow",
            on_open=lambda pending: self._opened(reader, pending),
        )
        self._reader = reader
        self._tasks.start(reader.run())

    def _stop_reading(self) -> None:
        if self._reader is not None:
            self._reader.stop()
            self._reader = None

    def _opened(self, reader: Reader, pending: int) -> None:
        if reader is self._reader:
            self.follower.opened(time.monotonic(), reader.position.sequence + pending)
            self._do([])

    def _received(self, reader: Reader, messages: list[StreamMessage]) -> None:
        for message in messages:
            if reader is not self._reader:
                return  # what came before this message has made the follower begin anew
            with tracing.received("apply delta", message.headers, {"inferencecache.partition": self.key}):
                actions = self.follower.received(
                    time.monotonic(), message.position, _decode(message.payload), message.pending
                )
            if actions:
                logger.warning("view_repaired", partition=self.key, delta=message.position.sequence)
            self._do(actions)

    def _lost(self, reader: Reader, lost: Lost) -> None:
        if reader is not self._reader:
            return
        logger.warning("deltas_lost", partition=self.key, reason=lost.reason, detail=lost.detail)
        self._reader = None
        if lost.reason == "no_stream":
            self._on_missing()
        self._do(self.follower.lost(time.monotonic(), lost))


def _decode(payload: bytes) -> Delta | None:
    try:
        return decode_delta(payload)
    except UnreadableDeltaError:
        return None
