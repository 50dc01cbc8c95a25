"""One partition in an indexer: restored, folded, and told by whoever owns it.

All of it happens in one task group. A state begins with a base that fits the log, lives while the log
is its continuation, and is dropped as a whole when it is not; then the next one is restored. The
machines decide, this class carries their decisions between them.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from inferencecache.core.index.fold import Fold, ResyncWanted
from inferencecache.core.index.snapshot import UnreadableSnapshotError
from inferencecache.core.log import (
    ApiError,
    Log,
    Message,
    NoAnswerError,
    NotStoredError,
    ObjectDamagedError,
    ObjectMissingError,
    Objects,
    finds_no_stream,
)
from inferencecache.core.log.subjects import (
    SNAPSHOTS,
    control_subject,
    events_stream,
    partition_key,
    resync_subject,
    snapshot_request_subject,
)
from inferencecache.core.partitions import References, Tasks
from inferencecache.core.partitions.loading import load_snapshot
from inferencecache.core.protocol.bases import AskSnapshot, Load, ReadRefs
from inferencecache.core.protocol.membership import Membership
from inferencecache.core.protocol.owner import Owner, OwnerSettings
from inferencecache.core.protocol.position import Lost
from inferencecache.core.protocol.restoring import Action, ClaimAnew, OpenLog, Restoring
from inferencecache.core.protocol.resyncs import Resyncs
from inferencecache.core.protocol.snapshots import SnapshotSettings
from inferencecache.core.service import get_logger
from inferencecache.core.service.tracing import Carried
from inferencecache.indexer.folding import Folding
from inferencecache.indexer.telling import Telling
from inferencecache.schemas.budgets import Division
from inferencecache.schemas.deltas import ReplicaName
from inferencecache.schemas.ids import LogEpoch, OwnerId
from inferencecache.schemas.members import FoldedPartition
from inferencecache.schemas.positions import SnapshotRef
from inferencecache.schemas.records import Batch, Claim, PolicyApplied, encode_batch
from inferencecache.schemas.requests import ResyncRequest

POLL_S: Final = 0.2
"""Longest time between two looks at membership."""
READY_LAG_S: Final = 1.0

logger = get_logger("indexer")


class PartitionSettings(NamedTuple):
    """`capacity` is the number of entries that a fold makes room for."""

    owner: OwnerSettings
    snapshots: SnapshotSettings
    capacity: int


class _State(NamedTuple):
    folding: Folding
    telling: Telling


class PartitionIndexer:
    """Keeps one partition. `on_change` is called when what others see of it has changed; `on_missing`
    when a stream is not there.
    """

    def __init__(
        self,
        log: Log,
        generation: int,
        partition: int,
        me: OwnerId,
        settings: PartitionSettings,
        membership: Membership,
        *,
        on_change: Callable[[], None],
        on_missing: Callable[[], None],
    ) -> None:
        self.key = partition_key(generation, partition)
        self.generation = generation
        self.number = partition
        self._log = log
        self._me = me
        self._settings = settings
        self._membership = membership
        self._on_change = on_change
        self._on_missing = on_missing
        self._events = events_stream(generation, partition)
        self._references = References(log, self.key)
        self._objects = Objects(log, SNAPSHOTS)
        self._restoring = Restoring()
        self._resyncs = Resyncs()
        self._loaded: Fold | None = None
        self._state: _State | None = None
        self._bereft: set[ReplicaName] = set()
        self._ended: set[LogEpoch] = set()
        """Log epochs whose log has lost something."""
        self._announced: tuple[bool, bool] | None = None
        self._wake = asyncio.Event()
        self._tasks = Tasks()
        self._policy: PolicyApplied | None = None
        self._division: Division | None = None
        self.resyncs_sent = {"resync": 0, "fenced": 0}
        self.restored = 0
        self.evictions: Counter[tuple[str, str]] = Counter()
        """Holds evicted while this indexer owned the partition, by (algorithm, reason)."""
        self.tenant_evictions: Counter[str] = Counter()
        self._evictions_seen: Counter[tuple[str, str]] = Counter()
        self._tenant_evictions_seen: Counter[str] = Counter()

    # -- what others see ---------------------------------------------------------------------------

    @property
    def state(self) -> _State | None:
        """The state that is being folded, None while it is restored."""
        return self._state

    @property
    def partitions(self) -> int:
        """How many the generation has."""
        return self._settings.owner.partitions

    @property
    def max_entries(self) -> int:
        """Cap of the whole index, -1 for none."""
        return self._settings.owner.max_entries

    @property
    def owned(self) -> bool:
        return self._state is not None and self._state.telling.owner.owning

    @property
    def caught_up(self) -> bool:
        """Is the state at the head of the log, so that this indexer may own the partition?"""
        state = self._state
        return state is not None and state.folding.caught_up and (state.telling.knows_deltas or self.owned)

    @property
    def restorations_from_log(self) -> int:
        """How often no snapshot would do."""
        return self._restoring.from_log

    def is_ready(self) -> bool:
        """Caught up to within a second, and owned if it should be this indexer's."""
        state = self._state
        if state is None or not self.caught_up or state.folding.lag_s() > READY_LAG_S:
            return False
        return self.owned or self._membership.owner_of(self.key, time.monotonic()) not in (None, self._me)

    def row(self) -> FoldedPartition:
        """What the other members read."""
        state = self._state
        if state is None:
            return FoldedPartition()
        view = state.folding.fold.view
        return FoldedPartition(view.log.sequence, self.caught_up, self.owned, view.log_epoch)

    def division_read(self, division: Division | None) -> None:
        """How partitions share the cap and quotas, of which the owner tells the fold its part."""
        self._division = division
        if self._state is not None:
            self._state.telling.owner.division_read(division)

    def policy_read(self, policy: PolicyApplied) -> None:
        """The policy bucket's values, of which the owner tells the fold."""
        self._policy = policy
        if self._state is not None:
            self._state.telling.owner.policy_read(policy)

    # -- life --------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the partition until cancelled. What it cannot survive it raises."""
        asked = await self._log.subscribe(
            snapshot_request_subject(self.generation, self.number), self._snapshot_asked
        )
        try:
            async with self._tasks.running():
                self._do(self._restoring.start())
                while True:
                    self._progress()
                    self._wake.clear()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(self._wait_s()):
                            await self._wake.wait()
        finally:
            await asked.cancel()

    def _wait_s(self) -> float:
        now = time.monotonic()
        due = now + POLL_S
        if self._state is not None:
            due = min(due, self._state.telling.owner.due(now))
        return due - now

    def _progress(self) -> None:
        """Something has happened, or time has passed: let the machines say what follows."""
        now = time.monotonic()
        restoring = self._restoring
        others = restoring.void and self._membership.is_announced_by_others(self.key, self._me, now)
        self._do(restoring.poll(now, others))
        state = self._state
        if state is not None:
            self._consider_owning(state, now)
            state.telling.poll(now)
            state.folding.release()
            self._ask_bereft()
        announced = (self.caught_up, self.owned)
        if announced != self._announced:
            self._announced = announced
            self._on_change()

    def _woken(self) -> None:
        self._wake.set()

    def _consider_owning(self, state: _State, now: float) -> None:
        """An empty member list says nothing: then the last verdict stays."""
        assigned = self._membership.owner_of(self.key, now)
        if assigned is not None:
            state.telling.owner.should_own(assigned == self._me and self.caught_up)

    # -- restoring ---------------------------------------------------------------------------------

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case ReadRefs():
                    self._tasks.start(self._read_refs())
                case Load():
                    self._tasks.start(self._load(action.ref))
                case OpenLog():
                    self._open(action)
                case ClaimAnew():
                    self._tasks.start(self._claim_anew())
                case AskSnapshot():
                    self._tasks.start(self._ask_snapshot())

    async def _read_refs(self) -> None:
        try:
            refs, _ = await self._references.read()
        except (ApiError, NoAnswerError) as error:
            logger.warning("refs_not_read", partition=self.key, error=str(error))
            if finds_no_stream(error):
                self._on_missing()
            self._do(self._restoring.refs_failed(time.monotonic()))
        else:
            self._do(self._restoring.refs_read(time.monotonic(), refs))

    async def _load(self, ref: SnapshotRef) -> None:
        fold = Fold(self._settings.capacity)
        try:
            self._loaded = await load_snapshot(self._objects, ref, self.key, fold)
        except (ObjectMissingError, ObjectDamagedError, UnreadableSnapshotError) as error:
            logger.warning("snapshot_not_loaded", partition=self.key, object=ref.object, error=str(error))
            self._do(self._restoring.load_failed())
        except (ApiError, NoAnswerError) as error:
            logger.warning("snapshot_unreachable", partition=self.key, object=ref.object, error=str(error))
            if finds_no_stream(error):
                self._on_missing()
            self._do(self._restoring.load_unreachable(time.monotonic(), ref))
        else:
            self._do(self._restoring.loaded(ref))

    def _open(self, action: OpenLog) -> None:
        """Fold on from a base. Whether it fits the log is known when the log has been opened there."""
        position, ref = action
        fold = self._loaded if ref is not None and self._loaded is not None else Fold(self._settings.capacity)
        self._loaded = None
        fold.changes.kept_from = position
        owner = Owner(
            fold,
            self._me,
            LogEpoch(secrets.token_hex(8)),
            self._settings.owner,
            last_sequence=ref.delta.sequence if ref is not None else 0,
            told={ref.log_epoch: ref.log} if ref is not None else None,
            began_empty=ref is None,
            ended=self._ended,
        )
        if self._policy is not None:
            owner.policy_read(self._policy)
        owner.division_read(self._division)
        traces = Carried()
        telling = Telling(
            self._log,
            self.generation,
            self.number,
            fold,
            owner,
            self._me,
            self._settings.snapshots,
            partitions=self._settings.owner.partitions,
            base=ref.delta if ref is not None else None,
            base_epoch=ref.log_epoch if ref is not None else None,
            traces=traces,
            tasks=self._tasks,
            on_progress=self._woken,
            on_missing=self._on_missing,
        )
        folding = Folding(
            self._log,
            self._events,
            fold,
            position,
            traces,
            is_held=lambda: owner.holding,
            on_open=lambda pending: self._opened(folding, ref, pending),
            on_folded=lambda wanted: self._folded(folding, wanted),
            on_lost=lambda lost: self._lost(folding, lost),
        )
        self._state = _State(folding, telling)
        self._evictions_seen, self._tenant_evictions_seen = Counter(), Counter()
        self._tasks.start(folding.run())

    def _opened(self, folding: Folding, ref: SnapshotRef | None, pending: int) -> None:
        if self._state is not None and self._state.folding is folding:
            self._state.telling.owner.opened(folding.reader.position.sequence + pending)
        if self._restoring.is_opening:
            self.restored += 1
            base = ref.object if ref is not None else "log"
            logger.info("partition_restored", partition=self.key, base=base, behind=folding.reader.pending)
        self._restoring.opened()
        self._woken()

    def _lost(self, folding: Folding, lost: Lost) -> None:
        state = self._state
        if state is None or state.folding is not folding:
            return
        logger.warning("log_lost", partition=self.key, reason=lost.reason, detail=lost.detail)
        self._bereft |= set(folding.fold.view.rows)
        if lost.reason != "cut":
            self._ended.add(folding.fold.view.log_epoch)
        state.telling.stop()
        self._state = None
        if lost.reason == "no_stream":
            self._on_missing()
            self._do(self._restoring.missing(time.monotonic()))
        else:
            self._do(self._restoring.lost())
        self._woken()

    async def _claim_anew(self) -> None:
        """Begin a new log epoch: nothing that is there can be continued, and nobody else does.

        The first claim of a log takes over what is there, so there is one before the one that begins anew.
        """
        first, claim = (Claim(self._me, LogEpoch(secrets.token_hex(8))) for _ in range(2))
        logger.warning("log_epoch_begun", partition=self.key, log_epoch=claim.log_epoch)
        subject = control_subject(self.generation, self.number, "o")
        try:
            ack = await self._log.publisher.publish(
                subject,
                encode_batch(Batch(records=(first, claim))),
                msg_id=f"{self._me}.anew.{claim.log_epoch}",
            )
        except NotStoredError as error:
            logger.warning("control_not_stored", partition=self.key, error=str(error))
            if finds_no_stream(error):
                self._on_missing()
            self._restoring.claim_failed(time.monotonic())
        else:
            self._do(self._restoring.claimed(ack.sequence))

    async def _ask_snapshot(self) -> None:
        await self._log.send(snapshot_request_subject(self.generation, self.number), b"")

    def _snapshot_asked(self, _: Message) -> None:
        if self._state is not None and self.owned:
            self._state.telling.snapshots.asked(time.monotonic())
            self._woken()

    # -- folding -----------------------------------------------------------------------------------

    def _folded(self, folding: Folding, wanted: list[ResyncWanted]) -> None:
        state = self._state
        if state is None or state.folding is not folding:
            return
        now = time.monotonic()
        is_owner = state.telling.owner.owning
        self._count_evictions(folding.fold, is_owner)
        if is_owner:
            for each in wanted:
                if self._resyncs.should_ask(now, each):
                    self._tasks.start(self._ask_resync(each))
        state.telling.poll(now)
        self._woken()

    def _count_evictions(self, fold: Fold, is_owner: bool) -> None:
        """Every indexer that folds the partition evicts the same; the owner alone counts it."""
        if fold.evictions != self._evictions_seen:
            if is_owner:
                self.evictions += fold.evictions - self._evictions_seen
            self._evictions_seen = fold.evictions.copy()
        if fold.tenant_evictions != self._tenant_evictions_seen:
            if is_owner:
                self.tenant_evictions += fold.tenant_evictions - self._tenant_evictions_seen
            self._tenant_evictions_seen = fold.tenant_evictions.copy()

    def _ask_bereft(self) -> None:
        """Replicas of a state that is gone are asked at once, instead of when they next speak."""
        if not self._bereft or not self.owned or self._state is None:
            return
        known = self._state.folding.fold.view.rows
        bereft, self._bereft = self._bereft, set()
        for name in bereft - set(known):
            request = ResyncWanted(name.tenant, name.model, name.replica, ResyncRequest("resync"))
            self._tasks.start(self._ask_resync(request))

    async def _ask_resync(self, wanted: ResyncWanted) -> None:
        self.resyncs_sent[wanted.request.kind] += 1
        subject = resync_subject(wanted.tenant, wanted.model, wanted.replica)
        await self._log.send(subject, msgspec.json.encode(wanted.request))
