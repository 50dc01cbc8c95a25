"""One replica from its engine's sockets to the log: the event path and the producer with everything around.

Sockets call in with message parts; what the event path makes of them is submitted as records, opens
and closes replays, or begins anew. Whether the engine is still the same process is asked of its
metrics page when a connection comes back, because only a page can tell without a replay socket.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

import zmq.asyncio

from inferencecache.core.protocol.producer import Group, Producer
from inferencecache.core.service import get_logger
from inferencecache.kvevent_subscriber.alarm import Alarm
from inferencecache.kvevent_subscriber.diary import Diary
from inferencecache.kvevent_subscriber.event_path import (
    CloseReplay,
    Effect,
    EventPath,
    OpenReplay,
    ProcessChanged,
    Tell,
)
from inferencecache.kvevent_subscriber.failures import Failures
from inferencecache.kvevent_subscriber.records import records_of
from inferencecache.kvevent_subscriber.reports import (
    Added,
    AllKnown,
    Cleared,
    Doubted,
    Evicted,
    Report,
    Restarted,
)
from inferencecache.kvevent_subscriber.settings import SubscriberSettings
from inferencecache.kvevent_subscriber.sockets import LiveSocket, Parts, replay
from inferencecache.kvevent_subscriber.uplink import Uplink
from inferencecache.kvevent_subscriber.warning_log import WarningLog
from inferencecache.schemas.ids import ReplicaId
from inferencecache.schemas.records import Begin

KINDS: Final[dict[type[Report], str]] = {
    Added: "add",
    Evicted: "evict",
    Cleared: "clear",
    Restarted: "begin",
    Doubted: "gap",
    AllKnown: "complete",
}
WARN_OF_SILENCE_AFTER_S: Final = 60.0

logger = get_logger("events")

Identify = Callable[[], Awaitable[str]]
"""Asks the engine's metrics page which process it is; empty when it does not say."""


class Channel:
    """One replica id. `ranks` are the engine's ranks that report under it."""

    def __init__(
        self,
        settings: SubscriberSettings,
        replica: ReplicaId,
        ranks: Sequence[int],
        context: zmq.asyncio.Context,
        identify: Identify,
    ) -> None:
        self.replica = replica
        self.ranks = tuple(ranks)
        self.diary = Diary()
        self._settings = settings
        self._context = context
        self._identify = identify
        self._replay_endpoints = [settings.replay_endpoints[rank] for rank in ranks]
        self.path = EventPath(
            settings.mapping,
            self.diary,
            lanes=len(self.ranks),
            on_gap=settings.on_gap,
            replays=all(self._replay_endpoints),
            replay_timeout_s=settings.replay_timeout_s,
        )
        self._failures = Failures()
        self.uplink = Uplink(
            Producer(self._begin(""), settings.producer), replica, self._full_state, self._failures
        )
        self._processes = [""] * len(self.ranks)
        self._seen_before = [False] * len(self.ranks)
        self._proving: list[asyncio.Task[None] | None] = [None] * len(self.ranks)
        self._replaying: list[asyncio.Task[None] | None] = [None] * len(self.ranks)
        self._alarm = Alarm(lambda: self._carry_out(self.path.tick(time.monotonic())), self._failures)
        self._warnings = WarningLog(logger)

    async def run(self) -> None:
        """Read the engine's sockets until cancelled, or until anything of this replica fails [SUB-185]."""
        try:
            await self._failures.guard(self._read())
        finally:
            self._alarm.cancel()
            for task in (*self._proving, *self._replaying):
                if task is not None:
                    task.cancel()

    async def _read(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for lane in range(len(self.ranks)):
                tasks.create_task(self._live_socket(lane).run())
            tasks.create_task(self._warn_of_silence())

    def counters(self) -> Counter[tuple[str, str]]:
        """Every counter of this replica, by name and reason."""
        producer = self.uplink.producer.counters
        delivered = Counter({(name, ""): amount for name, amount in producer.items()})
        delivered["records", "stats"] = self.uplink.stats_delivered
        return self.diary.counters + delivered

    def engine_is(self, process: str) -> None:
        """The engine's metrics page says which process it is."""
        if not process:
            return
        for lane, known in enumerate(self._processes):
            if known and known != process:
                self._carry_out(self.path.restarted(lane, time.monotonic()))
            self._processes[lane] = process
        self._refresh()

    # ------------------------------------------------------------------ sockets

    def _live_socket(self, lane: int) -> LiveSocket:
        return LiveSocket(
            self._context,
            self._settings.endpoints[self.ranks[lane]],
            self._settings.topic,
            on_message=lambda parts: self._carry_out(self.path.message(lane, parts, time.monotonic())),
            on_connected=lambda: self._connected(lane),
            on_disconnected=lambda: self._disconnected(lane),
        )

    def _connected(self, lane: int) -> None:
        if self._seen_before[lane]:
            self._stop(self._proving, lane)
            self._carry_out(self.path.reconnecting(lane, time.monotonic()))
            self._proving[lane] = self._failures.start(self._prove(lane))
        else:
            self._seen_before[lane] = True
            self._carry_out(self.path.connected(lane, time.monotonic(), None))

    def _disconnected(self, lane: int) -> None:
        self._stop(self._proving, lane)
        self._carry_out(self.path.disconnected(lane, time.monotonic()))

    async def _prove(self, lane: int) -> None:
        """The connection is back: is it the same process?"""
        process = await self._identify()
        known = self._processes[lane]
        same = process == known if process and known else None
        self._carry_out(self.path.connected(lane, time.monotonic(), same))
        if process:
            self._processes[lane] = process
            self._refresh()

    def _open_replay(self, lane: int, first: int) -> None:
        self._stop(self._replaying, lane)
        exchange = replay(
            self._context,
            self._replay_endpoints[lane],
            first,
            lambda parts: self._replayed(lane, task, parts),
        )
        task = self._replaying[lane] = self._failures.start(exchange)

    def _replayed(self, lane: int, exchange: asyncio.Task[None], parts: Parts) -> None:
        # An exchange that was ended may still have messages at hand.
        if self._replaying[lane] is exchange:
            self._carry_out(self.path.reply(lane, parts, time.monotonic()))

    def _stop(self, tasks: list[asyncio.Task[None] | None], lane: int) -> None:
        task, tasks[lane] = tasks[lane], None
        if task is not None:
            task.cancel()

    async def _warn_of_silence(self) -> None:
        await asyncio.sleep(WARN_OF_SILENCE_AFTER_S)
        if not self.diary.total("messages"):
            logger.warning(
                "no_engine_events",
                msg="the engine has sent nothing yet; if it is not idle, its topic may not be the one "
                "subscribed to: engines publish under an empty topic unless configured otherwise",
                endpoint=self._settings.endpoints[self.ranks[0]],
                topic=self._settings.topic,
            )

    # ------------------------------------------------------------------ effects

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Tell(reports):
                    self._tell(reports)
                case ProcessChanged(lane):
                    self._processes[lane] = ""
                case OpenReplay(lane, first):
                    self._open_replay(lane, first)
                case CloseReplay(lane):
                    self._stop(self._replaying, lane)
        self._refresh()
        self._alarm.set(self.path.wake_at())
        self._warnings.show(self.diary.drain(), time.monotonic())

    def _tell(self, reports: list[Report]) -> None:
        for report in reports:
            self.diary.count("records", reason=KINDS[type(report)])
        if any(type(report) is Restarted for report in reports):
            # Without an identity of its engine, nothing of the earlier incarnation is kept.
            self.uplink.producer.begin = self._begin("")
            self.uplink.engine_restarted()
        else:
            self.uplink.submit(records_of(reports, self._settings.scheme), time.monotonic())

    def _refresh(self) -> None:
        """Keep what the producer goes by in step."""
        producer = self.uplink.producer
        producer.begin = self._begin(self._processes[0])
        if producer.certain != self.path.certain:
            producer.certain = self.path.certain
            self.uplink.rearm()

    def _begin(self, engine: str) -> Begin:
        block_size = self.path.block_size
        return Begin(self._settings.pod_uid, engine, self._settings.scheme, block_size)

    def _full_state(self, now: float) -> list[Group]:
        return [
            Group(group.observed_at, records_of(group.reports, self._settings.scheme))
            for group in self.path.full_state(now)
        ]
