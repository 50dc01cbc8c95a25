"""One partition in memory: streams with compare-and-set, and the machines run over them step by step."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import numpy as np

from inferencecache.core.index.changes import MAX_BYTES
from inferencecache.core.index.fold import Fold, LogMessage
from inferencecache.core.index.snapshot import encode_snapshot, load_fold, load_view
from inferencecache.core.index.view import View
from inferencecache.core.protocol import follower, owner, snapshots
from inferencecache.core.protocol.bases import AskSnapshot, Load, ReadRefs
from inferencecache.core.protocol.follower import Follower, Read, StopReading
from inferencecache.core.protocol.owner import (
    Owner,
    OwnerSettings,
    PublishDelta,
    PublishRecords,
    ReadLastDelta,
    TakeSnapshot,
)
from inferencecache.core.protocol.position import Lost, PositionCheck, StreamEnds
from inferencecache.core.protocol.snapshots import Snapshots, SnapshotSettings
from inferencecache.schemas.deltas import Delta, decode_delta
from inferencecache.schemas.digests import digest_text
from inferencecache.schemas.ids import (
    AdapterId,
    HashScheme,
    Incarnation,
    LogEpoch,
    ModelId,
    OwnerId,
    ReplicaId,
    TenantId,
)
from inferencecache.schemas.positions import Position, Refs, SnapshotRef
from inferencecache.schemas.records import (
    AnyRecord,
    Batch,
    Begin,
    Stored,
    decode_batch,
    encode_batch,
)
from inferencecache.schemas.senders import ControlSender, ReplicaSender, Sender

MILLISECOND_NS = 1_000_000
OWNER = ControlSender("o")


class RefusedError(Exception):
    def __init__(self, last: int) -> None:
        super().__init__(last)
        self.last = last


class Message(NamedTuple):
    payload: bytes
    message_id: str
    time_ns: int
    sender: Sender


class Stream:
    """Messages from sequence `first` on; those below were purged."""

    def __init__(self, created_ns: int = 1) -> None:
        self.created_ns = created_ns
        self.later_ns = 0
        """Time that has passed beyond what the messages tell."""
        self.first = 1
        self.messages: list[Message] = []

    @property
    def last(self) -> int:
        return self.first + len(self.messages) - 1

    def append(
        self,
        payload: bytes,
        *,
        message_id: str = "",
        after: int | None = None,
        sender: Sender = OWNER,
    ) -> int:
        if after is not None and after != self.last:
            raise RefusedError(self.last)
        time_ns = (self.last + 1) * MILLISECOND_NS + self.created_ns + self.later_ns
        self.messages.append(Message(payload, message_id, time_ns, sender))
        return self.last

    def at(self, sequence: int) -> Message:
        return self.messages[sequence - self.first]

    def position(self, sequence: int) -> Position:
        if not self.first <= sequence <= self.last:
            return Position(sequence, 0, self.created_ns)
        return Position(sequence, self.at(sequence).time_ns, self.created_ns)

    def purge_below(self, sequence: int) -> None:
        del self.messages[: sequence - self.first]
        self.first = max(self.first, sequence)


class Partition:
    """The log, the deltas, the references and the snapshots of one partition."""

    def __init__(self) -> None:
        self.log = Stream()
        self.deltas = Stream()
        self.refs: Refs | None = None
        self.refs_revision = 0
        self.objects: dict[str, list[bytes]] = {}
        self.asked = 0
        self._sequences: dict[str, int] = {}

    def report(self, replica: str, *records: AnyRecord, incarnation: str = "i") -> None:
        """A sidecar's next batch."""
        key = f"{replica}/{incarnation}"
        self._sequences[key] = self._sequences.get(key, 0) + 1
        batch = Batch(Incarnation(incarnation), self._sequences[key], 0, records)
        sender = ReplicaSender(TenantId("t"), ModelId("m"), ReplicaId(replica))
        self.log.append(encode_batch(batch), sender=sender)

    def begin(self, replica: str, incarnation: str = "i") -> None:
        self.report(replica, Begin(pod_uid=f"uid-{replica}"), incarnation=incarnation)

    def store(self, replica: str, first: int, count: int = 4, incarnation: str = "i") -> None:
        keys = np.arange(first, first + count, dtype=">u8").tobytes()
        counts = (np.arange(1, count + 1, dtype="<i4") * 16).tobytes()
        self.report(
            replica, Stored(HashScheme("s"), AdapterId(""), 1, 8, keys, counts), incarnation=incarnation
        )


class Indexer:
    """A fold and its owner machine, with the I/O done in memory, at once unless it is told to fail."""

    def __init__(
        self,
        partition: Partition,
        name: str,
        *,
        base: SnapshotRef | None = None,
        max_change_bytes: int = MAX_BYTES,
        ended: AbstractSet[LogEpoch] = frozenset(),
    ) -> None:
        self.partition = partition
        self.id = OwnerId(name)
        self.fold = (
            load_fold(partition.objects[base.object])
            if base is not None
            else Fold(max_change_bytes=max_change_bytes)
        )
        self.owner = Owner(
            self.fold,
            self.id,
            LogEpoch(f"epoch-of-{name}"),
            OwnerSettings(),
            last_sequence=base.delta.sequence if base is not None else 0,
            told={base.log_epoch: base.log} if base is not None else None,
            began_empty=base is None,
            ended=ended,
        )
        self.snapshots = Snapshots(SnapshotSettings(interval_s=1e9))
        self.deltas_read = base.delta.sequence if base is not None else 0
        self.now = 0.0
        self.lose_acks = False
        self.deltas_full = False
        self.withhold: list[owner.Action] | None = None

    @property
    def view(self) -> View:
        return self.fold.view

    def owns(self) -> bool:
        return self.owner.owning

    def is_holding(self) -> bool:
        return self.owner.holding

    def read_log(self, through: int | None = None) -> None:
        last = self.partition.log.last if through is None else through
        while self.view.log.sequence < last and not self.owner.holding:
            sequence = max(self.view.log.sequence + 1, self.partition.log.first)
            message = self.partition.log.at(sequence)
            self.fold.fold(
                LogMessage(
                    self.partition.log.position(sequence), message.sender, decode_batch(message.payload)
                )
            )

    def read_deltas(self) -> None:
        self.deltas_read = max(self.deltas_read, self.partition.deltas.first - 1)
        while self.deltas_read < self.partition.deltas.last:
            self.deltas_read += 1
            message = self.partition.deltas.at(self.deltas_read)
            self.owner.delta_read(self.deltas_read, decode_delta(message.payload))

    def poll(self, after_s: float = 0.02) -> list[owner.Action]:
        """Let time pass and do what the machine asks for, once."""
        self.now += after_s
        actions = self.owner.poll(self.now, int(1e15 + self.now * 1e6))
        for action in actions:
            if self.withhold is not None:
                self.withhold.append(action)
            else:
                self.do(action)
        return actions

    def run(self, rounds: int = 12) -> None:
        """Fold and tell until nothing is left to do."""
        for _ in range(rounds):
            self.read_log()
            self.poll()

    def claim(self) -> None:
        self.read_log()
        self.read_deltas()
        self.owner.should_own(True)
        self.run()
        assert self.owner.owning

    def do(self, action: owner.Action) -> None:
        deltas = self.partition.deltas
        match action:
            case PublishRecords():
                log = self.partition.log
                behind = log.messages[action.folded :] if action.folded is not None else []
                if not any(each.sender == OWNER for each in behind):
                    log.append(encode_batch(Batch(records=action.records)), message_id=action.message_id)
            case PublishDelta() if self.deltas_full:
                self.owner.failed(action.message_id, self.now)
            case PublishDelta():
                try:
                    sequence = deltas.append(action.payload, message_id=action.message_id, after=action.after)
                except RefusedError:
                    self.owner.refused(action.message_id)
                else:
                    if self.lose_acks:
                        self.owner.failed(action.message_id, self.now)
                    else:
                        self.owner.stored(action.message_id, sequence)
            case ReadLastDelta():
                if not deltas.messages:
                    self.owner.read_last(action.number, deltas.last, "", None)
                else:
                    last = deltas.at(deltas.last)
                    self.owner.read_last(
                        action.number, deltas.last, last.message_id, decode_delta(last.payload)
                    )
            case TakeSnapshot():
                self._do_snapshot(self.snapshots.take(self.now, action.delta, self.owner.reading_cost))

    def _do_snapshot(self, actions: list[snapshots.Action]) -> None:
        partition, machine = self.partition, self.snapshots
        for action in actions:
            match action:
                case snapshots.FindDelta():
                    sequence = partition.deltas.last if action.sequence is None else action.sequence
                    self._do_snapshot(machine.found(partition.deltas.position(sequence)))
                case snapshots.Store():
                    name = f"{self.view.log.sequence}-{self.id}-{len(partition.objects)}"
                    partition.objects[name] = list(encode_snapshot(self.fold, action.delta))
                    ref = SnapshotRef(
                        name, digest_text(self.view.digest), self.view.log, action.delta, self.view.log_epoch
                    )
                    self.owner.taken()
                    self._do_snapshot(machine.stored(ref))
                case ReadRefs():
                    self._do_snapshot(machine.refs_read(partition.refs, partition.refs_revision))
                case snapshots.WriteRefs():
                    if action.revision != partition.refs_revision:
                        self._do_snapshot(machine.failed("refused"))
                    else:
                        partition.refs, partition.refs_revision = action.refs, action.revision + 1
                        self._do_snapshot(machine.referenced())
                case snapshots.Purge():
                    if action.deltas_below:
                        partition.deltas.purge_below(action.deltas_below)
                case snapshots.Referenced():
                    if action.bridging:
                        self.owner.bridged(action.ref.log, action.ref.delta.sequence)
                case snapshots.Dropped():
                    self.owner.taken()
                    if action.bridging:
                        self.owner.bridge_failed(self.now)

    def snapshot(self) -> SnapshotRef:
        """Take one now and give its reference."""
        self.owner.want_snapshot()
        self.run()
        assert self.partition.refs is not None
        assert self.partition.refs.current is not None
        return self.partition.refs.current


class Router:
    """A follower over the partition's deltas and snapshots."""

    def __init__(self, partition: Partition, unreachable: Iterable[str] = ()) -> None:
        self.partition = partition
        self.follower = Follower(View)
        self.now = 0.0
        self.damage: set[int] = set()
        self.unreachable = list(unreachable)
        """Objects that attempts to load do not reach, once for each time that they are here."""
        self.read = 0
        self.loaded: list[str] = []
        self._reading = False
        self.do(self.follower.start())

    @property
    def view(self) -> View:
        return self.follower.view

    def is_complete(self) -> bool:
        return self.follower.complete

    def do(self, actions: list[follower.Action]) -> None:
        for action in actions:
            match action:
                case ReadRefs():
                    self.do(self.follower.refs_read(self.now, self.partition.refs))
                case Load():
                    self.loaded.append(action.ref.object)
                    chunks = self.partition.objects.get(action.ref.object)
                    if action.ref.object in self.unreachable:
                        self.unreachable.remove(action.ref.object)
                        self.do(self.follower.load_unreachable(self.now, action.ref))
                    elif chunks is None:
                        self.do(self.follower.load_failed())
                    else:
                        self.do(self.follower.loaded(self.now, action.ref, load_view(chunks)))
                case Read():
                    self._open(action.position)
                case StopReading():
                    self._reading = False
                case AskSnapshot():
                    self.partition.asked += 1

    def _open(self, position: Position) -> None:
        deltas = self.partition.deltas
        lost = PositionCheck(position).opened(StreamEnds(deltas.created_ns, deltas.first, deltas.last))
        if lost is not None:
            self.do(self.follower.lost(self.now, lost))
            return
        self.read = position.sequence
        self._reading = True
        self.follower.opened(self.now, deltas.last)

    def run(self, after_s: float = 0.01) -> None:
        """Read every delta there is."""
        self.now += after_s
        self.do(self.follower.poll(self.now))
        while self._reading and self.read < self.partition.deltas.last:
            if self.read + 1 < self.partition.deltas.first:
                self._reading = False
                self.do(self.follower.lost(self.now, Lost("cut", "")))
                return
            self.read += 1
            message = self.partition.deltas.at(self.read)
            delta: Delta | None = decode_delta(message.payload)
            if self.read in self.damage:
                delta = None
            position = self.partition.deltas.position(self.read)
            pending = self.partition.deltas.last - self.read
            self.do(self.follower.received(self.now, position, delta, pending))
