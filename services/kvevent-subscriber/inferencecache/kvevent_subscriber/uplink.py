"""The producer's actions carried out: publishes and their outcomes, its clock, the full state when asked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from inferencecache.core.log import Log, NotStoredError, PayloadTooLargeError, WrongLastSequenceError
from inferencecache.core.protocol.producer import (
    Action,
    Begun,
    Fenced,
    Group,
    Producer,
    Publish,
    StatsStored,
    TellState,
)
from inferencecache.core.service import get_logger
from inferencecache.kvevent_subscriber.alarm import Alarm
from inferencecache.kvevent_subscriber.failures import Failures
from inferencecache.schemas.records import AnyRecord, Stats
from inferencecache.schemas.requests import ResyncRequest

PUBLISH_LIMIT_S = 5.0
TOO_LARGE_PAUSE_S = 5.0
"""A server whose limit not even a `Begin` fits is not asked again at once."""

logger = get_logger("uplink")


class Uplink:
    """One replica's producer over the process's connection, which may come later than the first records.

    What publishing fails with, other than a server's refusal, goes to `failures`.
    """

    def __init__(
        self,
        producer: Producer,
        replica: str,
        full_state: Callable[[float], list[Group]],
        failures: Failures,
    ) -> None:
        self.producer = producer
        self.stats_stored = asyncio.Event()
        self.stats_delivered = 0
        self._failures = failures
        self._replica = replica
        self._full_state = full_state
        self._log: asyncio.Future[Log] = asyncio.get_running_loop().create_future()
        self._publishing: asyncio.Task[None] | None = None
        self._alarm = Alarm(lambda: self._do(producer.tick(time.monotonic())), failures)
        self._changed = asyncio.Event()

    def attach(self, log: Log) -> None:
        """There is a connection to the log's servers."""
        self._log.set_result(log)

    def placed(self, subject: str) -> None:
        """The layout says where this replica's records go."""
        self._do(self.producer.placed(subject, time.monotonic()))

    def submit(self, records: Iterable[AnyRecord], observed_at: float) -> None:
        """Records of one engine batch."""
        self._do(self.producer.submit(records, observed_at, time.monotonic()))

    def submit_stats(self, stats: Stats) -> None:
        """A statistics sample of now; `stats_stored` is set once the log has it."""
        now = time.monotonic()
        self.stats_stored.clear()
        self._do(self.producer.submit_stats(stats, now, now))

    def engine_restarted(self) -> None:
        """Everything told so far is void."""
        self._do(self.producer.begin_anew("engine_restart", time.monotonic()))

    def requested(self, request: ResyncRequest) -> None:
        """An owner of the partition asks for something."""
        self._do(self.producer.requested(request, time.monotonic()))

    def rearm(self) -> None:
        """What the producer goes by has changed from outside."""
        self._alarm.set(self.producer.wake_at())

    async def drain(self) -> None:
        """Send what waits, until all of it is in the log."""
        await self._failures.guard(self._drain())

    async def _drain(self) -> None:
        self._do(self.producer.drain(time.monotonic()))
        while self.producer.beginning or (self.producer.live and not self.producer.idle):
            self._changed.clear()
            await self._changed.wait()

    async def close(self) -> None:
        """Stop where it is."""
        self._alarm.cancel()
        if self._publishing is not None:
            self._publishing.cancel()
            await asyncio.wait((self._publishing,))

    def _do(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Publish():
                    self._publish(action)
                case TellState():
                    now = time.monotonic()
                    self._do(self.producer.restate(self._full_state(now), now))
                case StatsStored():
                    self.stats_delivered += 1
                    self.stats_stored.set()
                case Begun(incarnation, reason):
                    if reason == "start":
                        logger.info("begin", replica=self._replica, incarnation=incarnation)
                    else:
                        logger.warning(
                            "resync",
                            msg="everything known is told anew",
                            replica=self._replica,
                            incarnation=incarnation,
                            reason=reason,
                        )
                case Fenced(begun_at):
                    logger.error(
                        "fenced",
                        msg="another process reports this replica now; nothing is published any more. "
                        "Two engines must not have the same --replica-id",
                        replica=self._replica,
                        begun_at=begun_at,
                    )
        self._alarm.set(self.producer.wake_at())
        self._changed.set()

    def _publish(self, publish: Publish) -> None:
        if self._publishing is not None:
            self._publishing.cancel()
        self._publishing = self._failures.start(self._store(publish))

    async def _store(self, publish: Publish) -> None:
        log = await asyncio.shield(self._log)
        self.producer.payload_limit = log.publisher.payload_limit
        try:
            ack = await log.publisher.publish(
                publish.subject,
                publish.payload,
                msg_id=publish.msg_id,
                expect_last_subject_sequence=publish.expect_last_subject_sequence,
                timeout_s=PUBLISH_LIMIT_S,
            )
        except WrongLastSequenceError as error:
            actions = self.producer.refused(publish.msg_id, error.last, time.monotonic())
        except PayloadTooLargeError as error:
            logger.warning("batch_too_large", msg=str(error), replica=self._replica)
            self.producer.payload_limit = error.limit
            await asyncio.sleep(TOO_LARGE_PAUSE_S)
            actions = self.producer.begin_anew("message_too_large", time.monotonic())
        except NotStoredError as error:
            logger.warning("publish_failed", msg=str(error), replica=self._replica, address=log.address)
            actions = self.producer.failed(publish.msg_id, time.monotonic())
        else:
            actions = self.producer.acknowledged(publish.msg_id, ack.sequence, time.monotonic())
        self._publishing = None
        self._do(actions)
