"""Reading a stream in order from a position, through whatever happens to the server.

A `Reader` opens an ephemeral consumer, keeps pull requests overlapping so that the server never waits
for it, and hands over messages in lists, as many as one read of the socket brought. Silence, a
reconnect, a consumer that vanished or a hole make it open a new consumer at its position, where
`PositionCheck` judges whether the stream is still the one it was. If it is not, the reader says why
and ends: what then is for whoever holds the state that was built from it.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

import msgspec
from nats.nuid import NUID

from inferencecache.core.log import jetstream
from inferencecache.core.log.connection import Log, Subscription
from inferencecache.core.log.inbox import Message, NoAnswerError
from inferencecache.core.log.jetstream import ApiError, NoStreamError
from inferencecache.core.protocol.position import Lost, PositionCheck, StreamEnds, Verdict
from inferencecache.core.service import get_logger
from inferencecache.schemas.positions import Position

BATCH: Final = 512
MOST_ASKED: Final = BATCH + BATCH // 2
"""Messages asked for at a time, which still arrive when the reader pauses."""
MAX_BYTES: Final = 16 * 1024 * 1024
"""Of one pull request; a message above it would be refused for ever."""
EXPIRY_S: Final = 10.0
INACTIVE_S: Final = 30.0
SILENT_HEARTBEATS: Final = 2.5
WATCHDOG_S: Final = 5.0
_RETRY_S: Final = 0.1
_RETRY_LIMIT_S: Final = 1.0
_NANOSECONDS: Final = 1_000_000_000
_CONSUMER_GONE: Final = re.compile("deleted|leadership|shutdown", re.IGNORECASE)

logger = get_logger("log")


class Start(Enum):
    """Where to begin when there is no position to go on from."""

    OLDEST = "oldest"
    """With whatever the stream still holds."""
    NEW = "new"
    """With what comes from now on."""
    LAST_PER_SUBJECT = "last_per_subject"
    """With the last message of each subject, again at every opening: how a bucket is watched."""


class StreamMessage(NamedTuple):
    """One message of a stream; `pending` counts those that waited behind it when it was sent."""

    subject: str
    payload: bytes
    position: Position
    headers: Mapping[str, str]
    pending: int


class Reader:
    """Reads `stream` (only `subjects`, if given) and calls `deliver` with messages in order, none twice.

    `on_open` is called after every opening, once the stream has proved to be the continuation of the
    position, with the number of messages that wait. `on_lost` is called once, and `run` returns, when
    it is not. Readers of some subjects see holes by nature: they notice another stream, not a cut one.
    An exception of `deliver` ends `run`.
    """

    def __init__(
        self,
        log: Log,
        stream: str,
        start: Position | Start,
        deliver: Callable[[list[StreamMessage]], None],
        on_lost: Callable[[Lost], None],
        *,
        subjects: Sequence[str] = (),
        name: str = "reader",
        heartbeat_s: float = 1.0,
        on_open: Callable[[int], None] | None = None,
    ) -> None:
        self._log = log
        self._stream = stream
        self._start = start
        self._deliver = deliver
        self._on_lost = on_lost
        self._on_open = on_open
        self._subjects = list(subjects)
        self._name = name
        self._heartbeat_s = heartbeat_s
        self._check = PositionCheck(
            start if isinstance(start, Position) else Position(),
            strict=not subjects and start is not Start.LAST_PER_SUBJECT,
        )
        self._wake = asyncio.Event()
        self._stopping = False
        self._paused = False
        self._subscription: Subscription | None = None
        self._batch: list[StreamMessage] = []
        self._outstanding = 0
        self._consumer_sequence = 0
        self._trouble = ""
        self._lost: Lost | None = None
        self._failure: Exception | None = None
        self._heard = 0.0
        self.pending: int | None = None
        """Messages behind the last one read, as the server last said; None before the first opening."""
        self.openings = 0

    @property
    def position(self) -> Position:
        """The last message that was delivered, or where the reader began."""
        return self._check.position

    @property
    def caught_up(self) -> bool:
        """Has everything been delivered that the stream held at some moment since the last opening?"""
        return self.pending == 0

    async def run(self) -> None:
        """Read until `stop`, until the stream is lost, or until cancelled."""
        stop_listening = self._log.on_connected(self._reconnected)
        retry_s = _RETRY_S
        try:
            while True:
                await self._log.wait_connected()
                began = time.monotonic()
                opened_before = self.openings
                try:
                    await self._session()
                except NoStreamError as error:
                    self._lost = Lost("no_stream", str(error))
                except (NoAnswerError, ApiError) as error:
                    self._trouble = str(error)
                if self._ended():
                    return
                logger.info("reader_reopens", stream=self._stream, reason=self._trouble)
                if self.openings == opened_before:
                    retry_s = min(2 * retry_s, _RETRY_LIMIT_S)
                    await asyncio.sleep(retry_s)
                elif time.monotonic() - began < _RETRY_LIMIT_S:
                    retry_s = _RETRY_S
                    await asyncio.sleep(retry_s)
        finally:
            stop_listening()

    def _ended(self) -> bool:
        if self._failure is not None:
            raise self._failure
        if self._lost is not None and not self._stopping:
            self._on_lost(self._lost)
            return True
        return self._stopping

    def stop(self) -> None:
        """End `run` soon; nothing is delivered afterwards."""
        self._stopping = True
        self._wake.set()

    def pause(self) -> None:
        """Ask for no more messages; the few hundred that were already asked for still arrive."""
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._heard = time.monotonic()
        self._wake.set()

    # -- one consumer ------------------------------------------------------------------------------

    async def _session(self) -> None:
        info = await jetstream.stream_info(self._log, self._stream)
        ends = StreamEnds(info.created_ns, info.state.first_seq, info.state.last_seq)
        self._lost = self._place(ends)
        if self._lost is not None:
            return
        consumer = f"{self._name}-{NUID().next().decode()}"
        inbox = self._log.new_inbox()
        self._trouble = ""
        self._outstanding = 0
        self._consumer_sequence = 0
        self._batch = []
        self._wake.clear()
        self._subscription = await self._log.subscribe(inbox, self._received)
        try:
            created = await jetstream.create_consumer(self._log, self._stream, self._config(consumer))
            self.openings += 1
            if self._check.is_proven:
                self._opened(created.num_pending)
            await self._read(f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{consumer}", inbox)
        finally:
            subscription, self._subscription = self._subscription, None
            self._hand_over()
            await subscription.cancel()
            await jetstream.delete_consumer(self._log, self._stream, consumer)

    def _opened(self, pending: int) -> None:
        self.pending = pending
        if self._on_open is not None:
            self._on_open(pending)

    def _place(self, ends: StreamEnds) -> Lost | None:
        """Decide where this opening begins."""
        if self._start is Start.LAST_PER_SUBJECT:
            self._check = PositionCheck(Position(), strict=False)
        elif not isinstance(self._start, Position) and self._check.position.sequence == 0:
            at = ends.last if self._start is Start.NEW else max(ends.first - 1, 0)
            self._check = PositionCheck(Position(at), strict=not self._subjects)
        return self._check.opened(ends)

    def _config(self, name: str) -> dict[str, Any]:
        config: dict[str, Any] = {
            "name": name,
            "ack_policy": "none",
            "max_deliver": 1,
            "replay_policy": "instant",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": int(INACTIVE_S * _NANOSECONDS),
        }
        if len(self._subjects) == 1:
            config["filter_subject"] = self._subjects[0]
        elif self._subjects:
            config["filter_subjects"] = self._subjects
        if self._start is Start.LAST_PER_SUBJECT:
            config.setdefault("filter_subject", ">")
            return config | {"deliver_policy": "last_per_subject"}
        return config | {"deliver_policy": "by_start_sequence", "opt_start_seq": self._check.open_at}

    async def _read(self, next_subject: str, inbox: str) -> None:
        """Keep messages coming until something makes another opening necessary."""
        request = msgspec.json.encode(
            {
                "batch": BATCH,
                "max_bytes": MAX_BYTES,
                "expires": int(EXPIRY_S * _NANOSECONDS),
                "idle_heartbeat": int(self._heartbeat_s * _NANOSECONDS),
            }
        )
        silence_s = SILENT_HEARTBEATS * self._heartbeat_s
        watched = self.position.sequence
        watch_at = time.monotonic() + WATCHDOG_S
        self._heard = time.monotonic()
        while not (self._trouble or self._lost or self._failure or self._stopping):
            if self._outstanding <= BATCH // 2 and not self._paused:
                self._outstanding += BATCH
                await self._log.send(next_subject, request, inbox)
            try:
                async with asyncio.timeout(silence_s / 2):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            now = time.monotonic()
            if not self._paused and now - self._heard > silence_s:
                self._trouble = "no heartbeat"
            elif now >= watch_at:
                if not self._paused and watched == self.position.sequence and await self._is_behind():
                    self._trouble = "no progress"
                watched, watch_at = self.position.sequence, now + WATCHDOG_S

    async def _is_behind(self) -> bool:
        """Heartbeats arrive and messages do not, although the stream has some."""
        if self._subjects or self._start is Start.LAST_PER_SUBJECT:
            return False
        at = self.position.sequence
        info = await jetstream.stream_info(self._log, self._stream)
        return info.state.last_seq > at == self.position.sequence

    def _reconnected(self) -> None:
        self._trouble = self._trouble or "reconnected"
        self._wake.set()

    # -- messages ----------------------------------------------------------------------------------

    def _received(self, message: Message) -> None:
        if self._trouble or self._lost or self._failure or self._stopping:
            return
        self._heard = time.monotonic()
        if not message.reply:
            self._control(message.headers or {})
        elif not self._accept(message):
            return
        # A word of the server counts too: it may come behind the last message of one read of the socket.
        if self._subscription is None or not self._subscription.waiting or len(self._batch) >= BATCH:
            self._hand_over()
        if self._outstanding <= BATCH // 2:
            self._wake.set()

    def _accept(self, message: Message) -> bool:
        """Put a message into the batch if it continues the stream; False when reading cannot go on so."""
        self._outstanding -= 1
        sequence, consumer_sequence, time_ns, pending = _numbers(message.reply)
        if consumer_sequence != self._consumer_sequence + 1:
            self._reopen("messages were lost on the way")
            return False
        self._consumer_sequence = consumer_sequence
        was_proven = self._check.is_proven
        match self._check.received(sequence, time_ns):
            case Verdict.DELIVER:
                self.pending = pending
                position = self._check.position
                self._batch.append(
                    StreamMessage(message.subject, message.data, position, message.headers or {}, pending)
                )
            case Verdict.DROP:
                if self._check.is_proven and not was_proven:
                    self._opened(pending)
            case Verdict.REOPEN:
                self._reopen("messages are missing")
                return False
            case Lost() as lost:
                self._hand_over()
                self._lost = lost
                self._wake.set()
                return False
        return True

    def _control(self, headers: Mapping[str, str]) -> None:
        status, text = headers.get("Status", ""), headers.get("Description", "")
        if status == "100":
            return
        unanswered = headers.get("Nats-Pending-Messages")
        if status in ("408", "409") and unanswered is not None and not _CONSUMER_GONE.search(text):
            self._outstanding = max(0, self._outstanding - int(unanswered))
            self._wake.set()  # a request has ended by time or size; the next one goes on
        else:
            self._reopen(f"{status} {text}")

    def _reopen(self, reason: str) -> None:
        self._hand_over()
        self._trouble = reason
        self._wake.set()

    def _hand_over(self) -> None:
        batch, self._batch = self._batch, []
        if not batch or self._stopping:
            return
        try:
            self._deliver(batch)
        except Exception as error:  # noqa: BLE001 - it is raised by `run`, where its owner sees it
            self._failure = error
            self._wake.set()


def _numbers(reply: str) -> tuple[int, int, int, int]:
    """Stream sequence, consumer sequence, timestamp (ns) and pending count of a delivered message.

    The reply subject ends `.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>`; the long form
    of servers with a domain has one more token.
    """
    parts = reply.split(".")
    end = len(parts) if len(parts) == 9 else len(parts) - 1
    return int(parts[end - 4]), int(parts[end - 3]), int(parts[end - 2]), int(parts[end - 1])
