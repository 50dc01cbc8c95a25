"""Publishing to streams: every message is acknowledged as stored, or its sender learns that it may not be.

A publish in flight survives a restart of the server: it is sent again with the same `Nats-Msg-Id` as
soon as the connection is back, and within the stream's duplicate window (2 min) the server stores it
once. The server checks an expected sequence before the id, so a conditional publish that was stored
and whose acknowledgement was lost comes back as WrongLastSequenceError: whoever sends conditionally
looks at what is stored there.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from typing import Final

import msgspec

from inferencecache.core.log.inbox import RETRY_S, Inbox, Message, NoAnswerError
from inferencecache.core.service import tracing
from inferencecache.schemas.unreadable import UNREADABLE

HEADERS_ROOM: Final = 64 * 1024
"""Payload and headers together must fit the server's `max_payload`; beyond it the server hangs up."""

_WRONG_LAST_SEQUENCE: Final = 10071
_WRONG_LAST_SEQUENCE_IN_FLIGHT: Final = 10164
"""Another publish to the same place is being replicated: a moment later it is 10071, with the number."""
_LAST_SEQUENCE: Final = re.compile(r"wrong last sequence: (\d+)")


class PubAck(msgspec.Struct, frozen=True):
    """The message is stored. `duplicate`: it already was, under `sequence`."""

    stream: str
    sequence: int
    duplicate: bool = False


class WrongLastSequenceError(Exception):
    """A conditional publish found another message there: `last` is the number of the last one (0: none)."""

    def __init__(self, subject: str, last: int) -> None:
        super().__init__(f"{subject}: the last sequence there is {last}")
        self.subject = subject
        self.last = last


class NotStoredError(Exception):
    """The message is not stored, or nobody said so in time (it may be stored nevertheless).

    `retryable`: the same bytes may succeed later. `no_stream`: nothing stores the subject. `refused`: the
    server has said that it does not store it.
    """

    def __init__(
        self,
        subject: str,
        reason: str,
        *,
        retryable: bool,
        no_stream: bool = False,
        refused: bool = False,
    ) -> None:
        super().__init__(f"{subject}: {reason}")
        self.subject = subject
        self.reason = reason
        self.retryable = retryable
        self.no_stream = no_stream
        self.refused = refused


class PayloadTooLargeError(NotStoredError):
    """Never sent: `limit` is what one message may carry, the server's `max_payload` less 64 KiB."""

    def __init__(self, subject: str, size: int, limit: int) -> None:
        super().__init__(
            subject,
            f"{size} bytes do not fit one message of {limit}; raise max_payload in the NATS configuration",
            retryable=False,
        )
        self.size = size
        self.limit = limit


class _Failure(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _Answer(msgspec.Struct):
    stream: str = ""
    seq: int = 0
    duplicate: bool = False
    error: _Failure | None = None


_answers = msgspec.json.Decoder(_Answer)


class Publisher:
    """Publishes over one connection. Any number may be in flight; their order is the sender's business."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self.payload_limit = 1024 * 1024 - HEADERS_ROOM
        """Largest payload in bytes; follows the connected server's `max_payload`."""

    @property
    def in_flight(self) -> int:
        """Publishes and requests that wait for an answer."""
        return self._inbox.in_flight

    async def publish(
        self,
        subject: str,
        payload: bytes,
        *,
        msg_id: str = "",
        expect_last_sequence: int | None = None,
        expect_last_subject_sequence: int | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 5.0,
    ) -> PubAck:
        """Store one message.

        The expectations are about the stream's and the subject's last message, 0 meaning that there
        is none. Raises WrongLastSequenceError, PayloadTooLargeError, NotStoredError.
        """
        if len(payload) > self.payload_limit:
            raise PayloadTooLargeError(subject, len(payload), self.payload_limit)
        all_headers = dict(headers or {})
        if msg_id:
            all_headers["Nats-Msg-Id"] = msg_id
        if expect_last_sequence is not None:
            all_headers["Nats-Expected-Last-Sequence"] = str(expect_last_sequence)
        if expect_last_subject_sequence is not None:
            all_headers["Nats-Expected-Last-Subject-Sequence"] = str(expect_last_subject_sequence)
        with tracing.sent("publish", subject):
            if trace := tracing.current_trace():
                all_headers[tracing.TRACEPARENT] = trace
            return await self._store(subject, payload, all_headers, timeout_s)

    async def _store(
        self, subject: str, payload: bytes, all_headers: dict[str, str], timeout_s: float
    ) -> PubAck:
        deadline = time.monotonic() + timeout_s
        while True:
            answer = await self._ask(subject, payload, all_headers, deadline - time.monotonic())
            failure = answer.error
            if failure is None:
                return PubAck(answer.stream, answer.seq, answer.duplicate)
            if failure.err_code == _WRONG_LAST_SEQUENCE and (
                match := _LAST_SEQUENCE.search(failure.description)
            ):
                raise WrongLastSequenceError(subject, int(match[1]))
            passing = failure.code == 503 or failure.err_code == _WRONG_LAST_SEQUENCE_IN_FLIGHT
            if not passing or time.monotonic() + RETRY_S >= deadline:
                reason = f"{failure.description} ({failure.err_code})"
                raise NotStoredError(subject, reason, retryable=passing or failure.code >= 500, refused=True)
            await asyncio.sleep(RETRY_S)

    async def _ask(self, subject: str, payload: bytes, headers: dict[str, str], timeout_s: float) -> _Answer:
        try:
            message = await self._inbox.ask(subject, payload, headers, timeout_s=timeout_s)
        except NoAnswerError as error:
            if error.reason == "no_responders":
                raise NotStoredError(subject, "no stream stores it", retryable=True, no_stream=True) from None
            raise NotStoredError(subject, f"no acknowledgement: {error.reason}", retryable=True) from None
        return _read(subject, message)


def _read(subject: str, message: Message) -> _Answer:
    try:
        answer = _answers.decode(message.data)
    except UNREADABLE:
        raise NotStoredError(subject, "the answer is no acknowledgement", retryable=False) from None
    if answer.error is None and not answer.stream:
        raise NotStoredError(subject, "the answer is no acknowledgement", retryable=False)
    return answer
