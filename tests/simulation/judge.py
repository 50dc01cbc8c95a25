"""What must hold, whatever happened: watched while it runs, and demanded once everything has settled."""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from inferencecache.core.index.eviction import Begun
from inferencecache.core.index.fold import Fold, LogMessage
from inferencecache.core.index.snapshot import load_view
from inferencecache.core.index.view import View
from inferencecache.core.log.subjects import (
    AGGREGATE,
    LAYOUT,
    LAYOUT_KEY,
    POLICY,
    POLICY_KEY,
    budget_key,
    parse_subject,
)
from inferencecache.core.policy import policy_applied
from inferencecache.core.policy.document import decode_policy_set
from inferencecache.core.protocol.follower import Follower
from inferencecache.indexer.partition import PartitionIndexer
from inferencecache.kvevent_subscriber.reports import Added, Cleared, Doubted, Evicted
from inferencecache.router.replica import PartitionReplica
from inferencecache.schemas.budgets import Division
from inferencecache.schemas.deltas import Delta, decode_delta
from inferencecache.schemas.digests import digest_text
from inferencecache.schemas.ids import OwnerId
from inferencecache.schemas.layout import CurrentLayout
from inferencecache.schemas.positions import Position, Refs
from inferencecache.schemas.records import Stored, Tick, decode_batch
from inferencecache.schemas.senders import ControlSender
from tests.fuzz.worlds import state_of
from tests.simulation.plan import Plan
from tests.simulation.sharing import Part, is_over, not_shared, over_the_whole, part_of
from tests.simulation.streams import Kept, Stream
from tests.simulation.world import CAPACITY, MODEL, TENANT, RouterHost, SidecarHost, World

SECOND_US = 1_000_000
LATE_PURGE_NS = 5_000_000_000
WATCH_S = 3.0
"""After everything has settled it is watched for so long."""


class ViolationError(AssertionError):
    """Something that must hold did not."""


class _Told(NamedTuple):
    """What somebody says the state is at a position of the log."""

    who: str
    at: Position
    log_epoch: str
    time_us: int
    digest: int


class _Reached(NamedTuple):
    """What a log comes to at a place."""

    log_epoch: str
    time_us: int
    digest: int
    part: Part


_Place = tuple[int, int, int]
"""A message of a log: when the log was created, the message's number and its time."""


class _Partition:
    """What was seen of one partition."""

    def __init__(self) -> None:
        self.courses: dict[int, list[Kept]] = {}
        """The course that the log took last, by its time of creation."""
        self.all_courses: list[tuple[int, list[Kept]]] = []
        """Every course it took: where the storage loses something, another one branches off."""
        self.told: list[_Told] = []
        self.log_epochs: set[str] = set()
        self.told_to: dict[str, Position] = {}
        self.owner_epochs: dict[str, int] = {}
        self.bridges: set[tuple[str, int]] = set()
        self.views: dict[tuple[str, Position], _Told] = {}
        self.refs: Refs | None = None

    def storage_lost(self) -> None:
        self.told_to.clear()
        self.owner_epochs.clear()


class Judge:
    """Watches a world. What is lost and changed on purpose it has to be told."""

    def __init__(self, world: World, plan: Plan) -> None:
        self.world = world
        self._plan = plan
        self._partitions: defaultdict[str, _Partition] = defaultdict(_Partition)
        self._stored_in_order: list[tuple[str, _Place]] = []
        """All messages of all logs."""
        self.layout_changes = False
        self.log_was_cut = False
        self.damaged: set[str] = set()
        """Subjects of chunks that a fault has damaged."""
        self.lost_storage = False
        world.server.on_stored = self._stored
        world.server.on_purged = self._purged

    @property
    def is_rebuilt(self) -> bool:
        """Has anything happened after which an index is built anew?"""
        return self.lost_storage or self.log_was_cut or self.layout_changes

    # -- while it runs -------------------------------------------------------------------------------

    def storage_lost(self) -> None:
        """A fault took something that was stored."""
        self.lost_storage = True
        for partition in self._partitions.values():
            partition.storage_lost()

    def watched(self) -> type[Follower]:
        """A follower whose view is looked at after every delta."""
        judge = self

        class Watched(Follower):
            def received(self, now: float, position: Position, delta: Delta | None, pending: int) -> Any:
                actions = super().received(now, position, delta, pending)
                is_taken = delta is not None and self.view.log == delta.to
                if is_taken or not self.view.proven:
                    judge.viewed(self.view)
                return actions

        return Watched

    def _violated(self, text: str) -> None:
        """A process must not swallow what is found out while it runs."""
        self.world.loop.failure = self.world.loop.failure or ViolationError(text)

    def viewed(self, view: View) -> None:
        """A router took a delta."""
        if not view.proven:
            self._violated(f"a delta led a router to another digest, at {view.log}")
        if not view.log_epoch:
            return
        told = _Told("a router", view.log, view.log_epoch, view.time_us, view.digest)
        partition = self._of_view(view)
        key = (view.log_epoch, view.delta)
        before = partition.views.setdefault(key, told)
        if before != told:
            self._violated(f"two routers differ at the same delta: {before} and {told}")

    def _of_view(self, view: View) -> _Partition:
        for host in self.world.routers.values():
            if host.subject is not None:
                for replica in host.subject.replicas:
                    if replica.view is view:
                        return self._partitions[replica.key]
        return _Partition()

    def _stored(self, stream: Stream, kept: Kept) -> None:
        if stream.name.startswith("IC_EVENTS_"):
            place = (stream.created_ns, kept.sequence, kept.time_ns)
            self._stored_in_order.append((_key(stream), place))
            self._log_grew(self._partitions[_key(stream)], stream, kept)
        elif stream.name.startswith("IC_DELTAS_"):
            self._delta_told(self._partitions[_key(stream)], decode_delta(kept.payload))
        elif stream.name == "KV_IC_REFS":
            self._refs_written(self._partitions[kept.subject[len("$KV.IC_REFS.") :]], kept)

    def _log_grew(self, partition: _Partition, stream: Stream, kept: Kept) -> None:
        course = partition.courses.get(stream.created_ns, [])
        if not course or course[-1].sequence >= kept.sequence:
            course = [each for each in course if each.sequence < kept.sequence]
            partition.courses[stream.created_ns] = course
            partition.all_courses.append((stream.created_ns, course))
        course.append(kept)

    def _delta_told(self, partition: _Partition, delta: Delta) -> None:
        log_epoch, at = delta.log_epoch, partition.told_to.get(delta.log_epoch)
        partition.log_epochs.add(log_epoch)
        if len(partition.log_epochs) > 1 and not (self.lost_storage or self.log_was_cut):
            raise ViolationError(f"log epoch {log_epoch} begins although nothing was lost")
        is_bridged = (log_epoch, delta.from_.sequence) in partition.bridges and (
            at is None or delta.from_.sequence > at.sequence or self.lost_storage
        )
        begins = delta.emptied or is_bridged
        if at is not None and delta.from_ != at and not begins:
            raise ViolationError(f"a delta begins at {delta.from_}, the one before ended at {at}")
        if at is not None and delta.emptied:
            raise ViolationError(f"log epoch {log_epoch} is begun a second time")
        if delta.owner_epoch < partition.owner_epochs.get(log_epoch, 0):
            raise ViolationError(f"an owner of {delta.owner_epoch} tells a delta behind its successor's")
        if delta.to.sequence <= delta.from_.sequence:
            raise ViolationError(f"a delta tells nothing: {delta.from_} to {delta.to}")
        partition.told_to[log_epoch] = delta.to
        partition.owner_epochs[log_epoch] = delta.owner_epoch
        partition.told.append(
            _Told(f"the delta of owner {delta.owner}", delta.to, log_epoch, delta.time_us, delta.digest)
        )

    def _refs_written(self, partition: _Partition, kept: Kept) -> None:
        refs = msgspec.json.decode(kept.payload, type=Refs)
        ref = refs.current
        if ref is None:
            raise ViolationError("references without a snapshot are written")
        before = partition.refs.current if partition.refs is not None else None
        if before is not None and refs.previous != before and not self.lost_storage:
            raise ViolationError(f"{before} was current and is not previous")
        partition.refs = refs
        partition.bridges.add((ref.log_epoch, ref.log.sequence))
        chunks, store = chunks_subject(ref.object), self.world.server.streams.get("OBJ_IC_SNAPSHOTS")
        is_lost = self.lost_storage and (store is None or store.last_of(chunks) is None)
        if store is not None and not is_lost and chunks not in self.damaged:
            digest = _digest_of(store, chunks)
            if digest != ref.digest:
                raise ViolationError(f"a reference does not restore to its digest: {ref}, {digest}")
        partition.told.append(_Told("a reference", ref.log, ref.log_epoch, -1, int(ref.digest, 16)))

    def _is_meant_for_an_earlier(self, stream: Stream, previous: Position | None) -> bool:
        """Has a purge that was right when it was sent met a stream that was made meanwhile?

        The server cannot be told which of them is meant; readers of the new one then begin with a snapshot.
        """
        age_ns = self.world.server.now_ns() - stream.created_ns
        return previous is not None and previous.created_ns < stream.created_ns and age_ns < LATE_PURGE_NS

    def _purged(self, stream: Stream, below: int) -> None:
        if stream.name.startswith("IC_DELTAS_"):
            refs = self._partitions[_key(stream)].refs
            previous = refs.previous.delta if refs is not None and refs.previous is not None else None
            if self._is_meant_for_an_earlier(stream, previous):
                return
            if previous is None or previous.created_ns != stream.created_ns or below > previous.sequence:
                raise ViolationError(
                    f"deltas are purged below {below}, the previous snapshot is at {previous}"
                )

    # -- once everything should have settled ---------------------------------------------------------

    def unsettled(self) -> Iterator[str]:
        """What is not as it should be in the end, most important first."""
        yield from self._indexers_unsettled()
        yield from self._routers_unsettled()
        yield from self._sidecars_unsettled()

    def _indexers_unsettled(self) -> Iterator[str]:
        owners: dict[str, list[str]] = {}
        for host in self.world.indexers.values():
            partitions: list[PartitionIndexer] = host.subject.partitions if host.subject else []
            if not host.alive or not partitions:
                yield f"{host.name} does not run"
                continue
            if not host.subject.ready:
                yield f"{host.name} is not ready"
            for partition in partitions:
                if partition.owned:
                    owners.setdefault(partition.key, []).append(host.name)
        yield from self._policy_unsettled()
        layout = self._layout()
        for generation in layout.generations if layout is not None else ():
            keys = [f"{generation.generation}.{number}" for number in range(generation.partitions)]
            for key in keys:
                if len(owners.get(key, ())) != 1:
                    yield f"partition {key} is owned by {owners.get(key, 'nobody')}"
            if self._plan.is_limited and owners.keys() >= set(keys):
                yield from self._sharing_unsettled(generation.generation, keys)

    def _policy_unsettled(self) -> Iterator[str]:
        """An owner has told the log of the policies that there are; a lost bucket changes nothing."""
        kept = self._kept(POLICY, POLICY_KEY)
        if kept is not None:
            written = policy_applied(decode_policy_set(kept.payload), kept.sequence, OwnerId(""), 0)
            for key, fold in self._owned():
                policy = fold.policy
                if (policy.revision, policy.policies, policy.quotas) != (
                    written.revision,
                    written.policies,
                    written.quotas,
                ):
                    yield f"the owner of partition {key} has not applied the policies"

    def _sharing_unsettled(self, generation: int, keys: list[str]) -> Iterator[str]:
        """Partitions keep to the division that there is, and nobody has more to evict."""
        owned = dict(self._owned())
        for key in keys:
            if owned[key].begun != Begun():
                yield f"in partition {key} is left to evict: {owned[key].begun}"
        kept = self._kept(AGGREGATE, budget_key(generation))
        division = msgspec.json.decode(kept.payload, type=Division) if kept is not None else None
        for wrong in not_shared([part_of(owned[key]) for key in keys], self._plan.max_entries, division):
            yield f"in generation {generation} {wrong}"

    def _owned(self) -> Iterator[tuple[str, Fold]]:
        """The folds of owners, by partition."""
        for host in self.world.indexers.values():
            for partition in host.subject.partitions if host.alive and host.subject is not None else ():
                if partition.owned:
                    yield partition.key, partition.state.folding.fold

    def _kept(self, bucket: str, key: str) -> Kept | None:
        """The message behind a key of a bucket."""
        stream = self.world.server.streams.get(f"KV_{bucket}")
        return stream.last_of(f"$KV.{bucket}.{key}") if stream is not None else None

    def _layout(self) -> CurrentLayout | None:
        kept = self._kept(LAYOUT, LAYOUT_KEY)
        return msgspec.json.decode(kept.payload, type=CurrentLayout) if kept is not None else None

    def _routers_unsettled(self) -> Iterator[str]:
        for host in self.world.routers.values():
            if not host.alive or host.subject is None or not host.subject.ready:
                yield f"{host.name} is not ready"
                continue
            layout, served = self._layout(), host.subject.layout
            if layout is None or served is None or served.generation != layout.generation:
                yield f"{host.name} answers by the layout {served}, in force is {layout}"
                continue
            for replica in host.subject.replicas:
                yield from self._replica_unsettled(host, replica)

    def _replica_unsettled(self, host: RouterHost, replica: PartitionReplica) -> Iterator[str]:
        number = replica.key
        log = self.world.server.streams.get(f"IC_EVENTS_{number.replace('.', '_')}")
        view, owned = replica.view, dict(self._owned()).get(number)
        if not replica.complete:
            yield f"{host.name} is not complete in partition {number}"
        elif owned is not None and view.log_epoch != owned.view.log_epoch:
            yield f"{host.name} answers from log epoch {view.log_epoch} in partition {number}"
        elif log is None or view.log.created_ns != log.created_ns:
            yield f"{host.name} has a view of another log in partition {number}"
        elif not view.time_us:
            yield f"log time has not begun in partition {number}"
        elif view.log.sequence < log.last - 3 or replica.age_s() > 1.6:
            yield f"{host.name} is at {view.log.sequence} of {log.last} in partition {number}"

    def _sidecars_unsettled(self) -> Iterator[str]:
        for pod in self.world.pods.values():
            speaking = [each for each in pod.sidecars if each.alive and not _producer(each).fenced]
            if pod.deleted:
                yield from self._returned(pod.name)
                continue
            if len(speaking) != 1:
                yield f"{len(speaking)} sidecars of {pod.name} believe to be the one"
                continue
            sidecar = speaking[0]
            producer = _producer(sidecar)
            if not producer.live or not producer.idle:
                yield f"{sidecar.name} has not sent everything"
                continue
            known = _known(sidecar)
            cache = sidecar.engine.cache
            if not known <= cache:
                yield f"{sidecar.name} believes in blocks that its engine does not have"
                continue
            yield from self._holds_unsettled(pod.name, known, cache)

    def _returned(self, pod: str) -> Iterator[str]:
        """Of a pod that is deleted nothing is left, not even what would be uncertain."""
        replica = pod.replace(" ", "-")
        for host in self.world.routers.values():
            held = _held(host, replica) if host.subject is not None else set()
            if held - self.world.reports.get(replica, set()):
                yield f"{host.name} knows {len(held)} blocks of {pod}, which is deleted"

    def _holds_unsettled(self, pod: str, known: set[int], cache: set[int]) -> Iterator[str]:
        replica = pod.replace(" ", "-")
        reported = self.world.reports.get(replica, set())
        for host in self.world.routers.values():
            certain = _certain(host, replica) if host.subject is not None else set()
            if certain - reported != (known & certain if self._plan.is_limited else known):
                missing, wrong = len(known - certain), len(certain - reported - known)
                yield f"{host.name} lacks {missing} blocks of {pod} and has {wrong} too many"
                if not certain - reported <= cache:
                    yield f"{host.name} credits {pod} with blocks that its engine does not have"

    @property
    def _began_anew(self) -> bool:
        return any(len(partition.log_epochs) > 1 for partition in self._partitions.values())

    def reports_lost(self) -> Iterator[str]:
        """What gRPC producers reported and got acknowledged stays, unless it was lost with storage, left
        behind in an older generation or log epoch, evicted, or grew too old.
        """
        if self._began_anew or self.lost_storage or self.layout_changes:
            return
        if self._plan.ttl_s or self._plan.is_limited:
            return
        for producer, keys in self.world.reported.items():
            if producer.startswith("grpc"):
                for host in self.world.routers.values():
                    missing = keys - _certain(host, producer)
                    if missing:
                        yield f"{host.name} lacks {len(missing)} acknowledged blocks of {producer}"

    def look_at_folds(self) -> None:
        """Standbys stand where the log does, too."""
        for host in self.world.indexers.values():
            for partition in host.subject.partitions if host.subject is not None else ():
                if partition.state is not None:
                    view = partition.state.folding.fold.view
                    told = _Told(
                        f"the fold of {host.name}", view.log, view.log_epoch, view.time_us, view.digest
                    )
                    if view.log.time_ns:
                        self._partitions[partition.key].told.append(told)

    def times(self) -> dict[str, int]:
        """Log time by router, partition and log epoch."""
        return {
            f"{host.name}, partition {replica.key}, log epoch {replica.view.log_epoch}": replica.view.time_us
            for host in self.world.routers.values()
            for replica in host.subject.replicas
        }

    def check_rate(self, before: dict[str, int], after: dict[str, int], elapsed_s: float) -> None:
        """Log time neither stops nor jumps."""
        for name, time_us in after.items():
            if name not in before:
                continue
            passed_s = (time_us - before[name]) / SECOND_US
            if not elapsed_s - 1.5 < passed_s < 2 * (elapsed_s + 1.5):
                raise ViolationError(f"log time goes on by {passed_s:.2f} s in {elapsed_s} s: {name}")

    def check_against_log(self) -> None:
        """Whatever was told of the state is what the log, folded from its beginning, comes to."""
        reached_by: dict[str, dict[_Place, _Reached]] = {}
        for number, partition in self._partitions.items():
            reached = reached_by[number] = {}
            for created_ns, course in partition.all_courses:
                _fold(created_ns, course, reached, is_whole=not self.lost_storage)
            for told in [*partition.told, *partition.views.values()]:
                found = reached.get((told.at.created_ns, told.at.sequence, told.at.time_ns))
                if found is None:
                    raise ViolationError(f"{told.who} stands at a place that the log never had: {told.at}")
                is_same = (told.log_epoch, told.digest) == (found.log_epoch, found.digest)
                if not is_same or told.time_us not in (-1, found.time_us):
                    raise ViolationError(
                        f"{told.who} of partition {number} at {told.at.sequence} is not what the log says: "
                        f"{told} against {found}"
                    )
        if not self._began_anew and not self.lost_storage:
            self._check_sharing(reached_by)

    def _check_sharing(self, reached: dict[str, dict[_Place, _Reached]]) -> None:
        """At no time partitions may together hold more than there is."""
        generations: defaultdict[str, dict[str, Part]] = defaultdict(dict)
        for key, place in self._stored_in_order:
            parts = generations[key.partition(".")[0]]
            part = reached[key][place].part
            if parts.get(key) != part:
                parts[key] = part
                wrong = over_the_whole(list(parts.values()), self._plan.max_entries)
                if wrong:
                    raise ViolationError(f"{wrong}; since message {place[1]} of partition {key}")


def _key(stream: Stream) -> str:
    """`<generation>.<partition>` of an events or deltas stream."""
    return ".".join(stream.name.split("_")[2:])


def _fold(
    created_ns: int,
    course: list[Kept],
    reached: dict[_Place, _Reached],
    *,
    is_whole: bool,
) -> None:
    """What the log comes to at each place. Where it is whole, no producer may leave out a batch."""
    fold = Fold(CAPACITY)
    for kept in course:
        sender = parse_subject(kept.subject)[2]
        decoded = decode_batch(kept.payload)
        before, epoch_before = fold.view.time_us, fold.view.log_epoch
        folded = fold.fold(LogMessage(Position(kept.sequence, kept.time_ns, created_ns), sender, decoded))
        if folded.dropped == "jump" and is_whole:
            raise ViolationError(f"a batch of {kept.subject} before that of {kept.sequence} is missing")
        view = fold.view
        reached[created_ns, kept.sequence, kept.time_ns] = _Reached(
            view.log_epoch, view.time_us, view.digest, part_of(fold)
        )
        is_update = folded.dropped is None and any(type(each) is Stored for each in decoded.batch.records)
        if is_update and is_over(fold):
            raise ViolationError(f"more than {part_of(fold)} is held at {kept.sequence}")
        if isinstance(sender, ControlSender) and before and view.log_epoch == epoch_before:
            ticks = sum(type(record) is Tick for record in decoded.batch.records)
            if not 0 <= view.time_us - before <= 2 * SECOND_US * ticks:
                raise ViolationError(f"log time jumps by {view.time_us - before} us at {kept.sequence}")


def _producer(sidecar: SidecarHost) -> Any:
    return sidecar.subject._channels[0].uplink.producer


def _known(sidecar: SidecarHost) -> set[int]:
    """What the sidecar knows for certain."""
    known: set[int] = set()
    for group in sidecar.subject._channels[0].path.full_state(0.0):
        for report in group.reports:
            match report:
                case Added():
                    known |= {int.from_bytes(key, "big") for key in report.keys}
                case Evicted():
                    known -= {int.from_bytes(key, "big") for key in report.keys}
                case Cleared() | Doubted():
                    known.clear()
                case _:
                    pass
    return known


def _certain(host: RouterHost, replica: str) -> set[int]:
    """The keys that a router is certain a replica holds."""
    return {key for key, is_certain in _holds(host, replica) if is_certain}


def _held(host: RouterHost, replica: str) -> set[int]:
    """All keys that a replica may hold by a router's view."""
    return {key for key, _ in _holds(host, replica)}


def _holds(host: RouterHost, replica: str) -> Iterator[tuple[int, bool]]:
    """Keys of a replica in a router's view; is each certain?"""
    for each in host.subject.replicas:
        for hold, (_, _, mark) in state_of(each.view).holds.items():
            if (hold.holder.tenant, hold.holder.model, hold.holder.replica) == (TENANT, MODEL, replica):
                yield hold.key, not mark & 1


def chunks_subject(name: str) -> str:
    """Where the chunks of a snapshot are."""
    return f"$O.IC_SNAPSHOTS.C.{base64.urlsafe_b64encode(name.encode()).decode().rstrip('=')}"


def _digest_of(store: Stream, chunks: str) -> str:
    """The digest of a stored snapshot."""
    payloads = [store.messages[number].payload for number in store.by_subject[chunks]]
    return digest_text(load_view(payloads, CAPACITY).digest)
