"""Telling a partition's changes: the I/O for `core.protocol.owner`, as owner and as standby."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from inferencecache.core.index.fold import Fold
from inferencecache.core.log import (
    ApiError,
    Log,
    NoAnswerError,
    NotStoredError,
    PayloadTooLargeError,
    Reader,
    Start,
    StreamMessage,
    WrongLastSequenceError,
    finds_no_stream,
)
from inferencecache.core.log.jetstream import read_message, stream_info
from inferencecache.core.log.subjects import (
    control_subject,
    delta_subject,
    deltas_stream,
    events_stream,
    partition_key,
)
from inferencecache.core.partitions import Tasks
from inferencecache.core.protocol.owner import (
    Action,
    Owner,
    PublishDelta,
    PublishRecords,
    ReadLastDelta,
    TakeSnapshot,
)
from inferencecache.core.protocol.position import Lost
from inferencecache.core.protocol.snapshots import Snapshots, SnapshotSettings
from inferencecache.core.service import get_logger, tracing
from inferencecache.core.service.tracing import Carried
from inferencecache.indexer.snapshotting import Snapshotting
from inferencecache.schemas.deltas import Delta, UnreadableDeltaError, decode_delta
from inferencecache.schemas.ids import LogEpoch, OwnerId
from inferencecache.schemas.positions import Position
from inferencecache.schemas.records import Batch, encode_batch

logger = get_logger("indexer")

CONTROL_LIMIT_S: Final = 5.0


class _NotFoldedError(Exception):
    """The control subject has a message that the fold has not taken yet."""

    def __init__(self, sequence: int) -> None:
        super().__init__(f"message {sequence} of an owner is not folded")


class Telling:
    """Speaks for one fold. `on_progress` is called whenever something that was asked for has come out,
    `on_missing` when there is no stream or bucket for what is told or read.
    """

    def __init__(
        self,
        log: Log,
        generation: int,
        partition: int,
        fold: Fold,
        owner: Owner,
        me: OwnerId,
        snapshot_settings: SnapshotSettings,
        *,
        partitions: int,
        base: Position | None,
        base_epoch: LogEpoch | None,
        traces: Carried,
        tasks: Tasks,
        on_progress: Callable[[], None],
        on_missing: Callable[[], None],
    ) -> None:
        self.owner = owner
        self._log = log
        self._key = partition_key(generation, partition)
        self._control_subject = control_subject(generation, partition, "o")
        self._delta_subject = delta_subject(generation, partition)
        self._events = events_stream(generation, partition)
        self._deltas = deltas_stream(generation, partition)
        self._fold = fold
        self._base_epoch = base_epoch
        self._traces = traces
        self._tasks = tasks
        self._on_progress = on_progress
        self._on_missing = on_missing
        self._owned_epoch = 0
        self._standby_start: Position | Start = base if base is not None else Start.OLDEST
        self._standby: Reader | None = None
        self.knows_deltas = False
        """Has the end of the deltas stream been read?"""
        self.snapshots = Snapshots(snapshot_settings)
        self._snapshotting = Snapshotting(
            log,
            generation,
            partition,
            partitions,
            fold,
            owner,
            self.snapshots,
            me,
            tasks,
            on_progress,
            on_missing,
        )

    def poll(self, now: float) -> None:
        """Do what is to be done now."""
        owner = self.owner
        if owner.owning and self.snapshots.is_due(now, owner.reading_cost):
            owner.want_snapshot()
        for action in owner.poll(now, time.time_ns() // 1000):
            self._do(action)
        if owner.owning and self._fold.view.owner_epoch != self._owned_epoch:
            self._owned_epoch = self._fold.view.owner_epoch
            has_base = self._base_epoch == self._fold.view.log_epoch
            self.snapshots.owning(now, has_base, owner.reading_cost)
            logger.info("partition_owned", partition=self._key, owner_epoch=self._owned_epoch)
        self._keep_standby()

    def stop(self) -> None:
        """End the reader of a standby."""
        if self._standby is not None:
            self._standby.stop()
            self._standby = None

    def _do(self, action: Action) -> None:
        match action:
            case PublishRecords():
                self._tasks.start(self._publish_records(action))
            case PublishDelta():
                self._tasks.start(self._publish_delta(action))
            case ReadLastDelta():
                self._tasks.start(self._read_last(action))
            case TakeSnapshot():
                self._snapshotting.take(action.delta)

    async def _publish_records(self, action: PublishRecords) -> None:
        payload = encode_batch(Batch(records=action.records))
        try:
            after = None if action.folded is None else await self._last_control(action.folded)
            await self._log.publisher.publish(
                self._control_subject,
                payload,
                msg_id=action.message_id,
                expect_last_subject_sequence=after,
                timeout_s=CONTROL_LIMIT_S,
            )
        except (_NotFoldedError, WrongLastSequenceError) as error:
            logger.info("claim_withheld", partition=self._key, reason=str(error))
            self.owner.claim_withheld(time.monotonic())
        except (NotStoredError, ApiError, NoAnswerError) as error:
            logger.warning("control_not_stored", partition=self._key, error=str(error))
            self._failed(error)

    async def _last_control(self, folded: int) -> int:
        """Number of the control subject's last message. Raises _NotFoldedError if that is not folded."""
        last = await read_message(self._log, self._events, last_of=self._control_subject)
        if last is not None and last.sequence > folded:
            raise _NotFoldedError(last.sequence)
        return last.sequence if last is not None else 0

    async def _publish_delta(self, action: PublishDelta) -> None:
        owner, id_ = self.owner, action.message_id
        told = self._traces.take()
        try:
            with tracing.told("tell", told, {"inferencecache.partition": self._key}):
                ack = await self._log.publisher.publish(
                    self._delta_subject, action.payload, msg_id=id_, expect_last_sequence=action.after
                )
        except WrongLastSequenceError:
            owner.refused(id_)
        except PayloadTooLargeError as error:
            logger.warning("delta_too_large", partition=self._key, error=str(error))
            owner.failed(id_, time.monotonic(), too_large=True)
        except NotStoredError as error:
            logger.warning("delta_not_stored", partition=self._key, error=str(error))
            self._failed(error)
            owner.failed(id_, time.monotonic())
        else:
            owner.stored(id_, ack.sequence)
        self._on_progress()

    async def _read_last(self, action: ReadLastDelta) -> None:
        try:
            info = await stream_info(self._log, self._deltas)
            number = info.state.last_seq
            stored = await read_message(self._log, self._deltas, sequence=number) if number else None
        except (ApiError, NoAnswerError) as error:
            logger.warning("deltas_unreadable", partition=self._key, error=str(error))
            self._failed(error)
            self.owner.read_failed(action.number, time.monotonic())
        else:
            message_id = stored.headers.get("Nats-Msg-Id", "") if stored is not None else ""
            delta = _decode(stored.payload) if stored is not None else None
            self.owner.read_last(action.number, number, message_id, delta)
        self._on_progress()

    def _failed(self, error: Exception) -> None:
        if finds_no_stream(error):
            self._on_missing()

    # -- standby -----------------------------------------------------------------------------------

    def _keep_standby(self) -> None:
        """A standby reads what the owner tells; an owner knows what it told."""
        if self.owner.owning:
            self.stop()
        elif self._standby is None:
            if self._owned_epoch:
                self._standby_start = Position(self.owner.last_sequence)
            reader = Reader(
                self._log,
                self._deltas,
                self._standby_start,
                self._read_deltas,
                self._standby_lost,
                name="standby",
                on_open=self._standby_opened,
            )
            self._standby = reader
            self._tasks.start(reader.run())

    def _standby_opened(self, pending: int) -> None:
        if pending == 0:
            self.knows_deltas = True
            self._on_progress()

    def _read_deltas(self, messages: list[StreamMessage]) -> None:
        for message in messages:
            self.owner.delta_read(message.position.sequence, _decode(message.payload))
        self._traces.take()  # the owner has told about them
        if messages[-1].pending == 0:
            self.knows_deltas = True
        self._on_progress()

    def _standby_lost(self, lost: Lost) -> None:
        logger.info("standby_lost", partition=self._key, reason=lost.reason, detail=lost.detail)
        if lost.reason == "no_stream":
            self._on_missing()
        self._standby = None
        self._owned_epoch = 0
        self._standby_start = Start.OLDEST


def _decode(payload: bytes) -> Delta | None:
    try:
        return decode_delta(payload)
    except UnreadableDeltaError:
        return None
