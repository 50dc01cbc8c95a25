"""Making one snapshot of a partition at a time: the I/O for the steps of `core.protocol.snapshots`."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from typing import Final

from inferencecache.core.index.fold import Fold
from inferencecache.core.index.snapshot import encode_snapshot
from inferencecache.core.log import (
    ApiError,
    Log,
    NoAnswerError,
    NotStoredError,
    ObjectDamagedError,
    ObjectMissingError,
    Objects,
    finds_no_stream,
)
from inferencecache.core.log.jetstream import purge_stream, read_message, stream_info
from inferencecache.core.log.subjects import SNAPSHOTS, deltas_stream, events_stream, partition_key
from inferencecache.core.partitions import References, Tasks
from inferencecache.core.protocol import snapshots
from inferencecache.core.protocol.bases import (
    UPLOAD_LIMIT_S,
    ReadRefs,
    SnapshotObject,
    object_name,
    superfluous,
)
from inferencecache.core.protocol.owner import Owner
from inferencecache.core.protocol.snapshots import Snapshots
from inferencecache.core.service import get_logger
from inferencecache.schemas.digests import digest_text
from inferencecache.schemas.ids import OwnerId
from inferencecache.schemas.positions import Position, Refs, SnapshotRef

logger = get_logger("indexer")

_NO_LIMIT: Final = 1 << 62
_FAILURES = (ApiError, NoAnswerError, NotStoredError, ObjectDamagedError, ObjectMissingError)


class Snapshotting:
    """Carries out snapshots of `fold`, and tells `owner` how those it asked for went."""

    def __init__(
        self,
        log: Log,
        generation: int,
        partition: int,
        partitions: int,
        fold: Fold,
        owner: Owner,
        machine: Snapshots,
        me: OwnerId,
        tasks: Tasks,
        on_progress: Callable[[], None],
        on_missing: Callable[[], None],
    ) -> None:
        self.machine = machine
        self._log = log
        self._generation = generation
        self._partition = partition
        self._partitions = partitions
        self._key = partition_key(generation, partition)
        self._events = events_stream(generation, partition)
        self._deltas = deltas_stream(generation, partition)
        self._fold = fold
        self._owner = owner
        self._me = me
        self._tasks = tasks
        self._on_progress = on_progress
        self._on_missing = on_missing
        self._objects = Objects(log, SNAPSHOTS)
        self._references = References(log, self._key)

    def take(self, delta: int | None) -> None:
        """The owner holds still; `delta` as in `owner.TakeSnapshot`."""
        now = time.monotonic()
        if self.machine.busy:
            self._owner.taken()
            self._owner.bridge_failed(now)
            return
        self.do(self.machine.take(now, delta, self._owner.reading_cost))

    def do(self, actions: list[snapshots.Action]) -> None:
        """Start what the machine asks for."""
        for action in actions:
            match action:
                case snapshots.Referenced():
                    logger.info("snapshot_referenced", partition=self._key, object=action.ref.object)
                    if action.bridging:
                        self._owner.bridged(action.ref.log, action.ref.delta.sequence)
                case snapshots.Dropped():
                    logger.warning("snapshot_dropped", partition=self._key, reason=action.reason)
                    self._owner.taken()
                    if action.bridging:
                        self._owner.bridge_failed(time.monotonic())
                case _:
                    self._tasks.start(self._step(action))

    async def _step(self, action: snapshots.Action) -> None:
        try:
            following = await self._carry_out(action)
        except _FAILURES as error:
            following = self.machine.failed(str(error))
            if finds_no_stream(error):
                self._on_missing()
            if isinstance(action, snapshots.Store) and isinstance(error, NotStoredError) and error.refused:
                await self._make_room()
        self.do(following)
        self._on_progress()

    async def _carry_out(self, action: snapshots.Action) -> list[snapshots.Action]:
        match action:
            case snapshots.FindDelta():
                return self.machine.found(await self._find(action.sequence))
            case snapshots.Store():
                return self.machine.stored(await self._store(action.delta))
            case ReadRefs():
                return self.machine.refs_read(*await self._references.read())
            case snapshots.WriteRefs():
                if await self._references.write(action.refs, action.revision):
                    return self.machine.referenced()
                return self.machine.failed("the references have changed")
            case snapshots.Purge():
                await self._purge(action.deltas_below, action.refs)
        return []

    async def _find(self, sequence: int | None) -> Position | None:
        info = await stream_info(self._log, self._deltas)
        number = info.state.last_seq if sequence is None else sequence
        stored = await read_message(self._log, self._deltas, sequence=number) if number else None
        if stored is not None:
            return Position(number, stored.time_ns, info.created_ns)
        return Position(number, 0, info.created_ns) if sequence is None else None

    async def _store(self, delta: Position) -> SnapshotRef:
        """Copy the state while the owner holds still, then upload the copy and read it back.

        The copy is what a snapshot takes, less than the table itself; holding still for a whole upload
        instead would stop the partition's deltas for as long.
        """
        view = self._fold.view
        digest, log_epoch, log = digest_text(view.digest), view.log_epoch, view.log
        try:
            chunks = await asyncio.to_thread(list, encode_snapshot(self._fold, delta, self._key))
        finally:
            self._owner.taken()
            self._on_progress()
        name = object_name(self._generation, self._partition, log, self._me, secrets.token_hex(4))
        stored = await self._objects.put(name, chunks)
        del chunks
        async for _ in self._objects.read(name):  # checks size and digest at its end
            pass
        return SnapshotRef(name, digest, log, delta, log_epoch, stored.size)

    async def _make_room(self) -> None:
        """A snapshot was refused: if the store is full, bases for replay are what it can do without."""
        try:
            refs, _ = await self._references.read()
            await self._purge_objects(refs, room=0)
        except _FAILURES as error:
            logger.warning("purge_failed", partition=self._key, error=str(error))

    async def _purge(self, deltas_below: int, refs: Refs) -> None:
        """Best effort: what stays now goes with a later snapshot."""
        try:
            if deltas_below and await self._has(deltas_below, refs):
                await purge_stream(self._log, self._deltas, below=deltas_below)
            most = await self._objects.room()
            await self._purge_objects(refs, room=most // 2 // self._partitions if most > 0 else _NO_LIMIT)
        except _FAILURES as error:
            logger.warning("purge_failed", partition=self._key, error=str(error))

    async def _has(self, delta: int, refs: Refs) -> bool:
        """Is the deltas stream still the one that the references are about, and does it reach that delta?"""
        info = await stream_info(self._log, self._deltas)
        is_same = refs.current is not None and refs.current.delta.created_ns == info.created_ns
        return is_same and delta <= info.state.last_seq

    async def _purge_objects(self, refs: Refs | None, room: int) -> None:
        """Uploads are as old as the server says, which dates them: this process's clock may be wrong."""
        info = await stream_info(self._log, self._events)
        prefix = f"{self._generation}/{self._partition}/"
        stored = await self._objects.stored(prefix)
        objects = [SnapshotObject(each.name, each.written_s, each.size) for each in stored]
        names = superfluous(objects, refs, info.state.first_seq, room)
        unfinished = await self._objects.unfinished(prefix)
        now_s = info.asked_ns / 1e9
        names += [each.name for each in unfinished if now_s - each.written_s > UPLOAD_LIMIT_S]
        for name in names:
            await self._objects.purge(name)
