"""Questions in flight on one connection: asked again on every reconnect until they are answered.

All answers come to one wildcard subscription. A question that was on the wire when the server died
is put again as soon as the connection is back, so whoever asks waits for the server and not for a
timeout. In a cluster the server that had to answer may be lost while the connection is not: so what is not
answered is put again now and then. What is asked must therefore bear being asked twice.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Literal, Protocol

RETRY_S: Final = 0.05
MOST_IN_FLIGHT: Final = 16_384
"""Questions that wait for an answer at a time."""
AGAIN_S: Final = 1.0
"""Unanswered for so long, a patient question is put again; and then after twice the time, and so on."""
_NO_RESPONDERS: Final = "503"


class Message(Protocol):
    """A message as it came from the server."""

    @property
    def subject(self) -> str: ...
    @property
    def reply(self) -> str: ...
    @property
    def data(self) -> bytes: ...
    @property
    def headers(self) -> dict[str, str] | None: ...


class NoAnswerError(Exception):
    """Nobody answered in time. `reason` tells a silent server from one where nobody serves the subject."""

    def __init__(
        self, subject: str, reason: Literal["timeout", "no_responders", "closed", "too_many_wait"]
    ) -> None:
        super().__init__(f"{subject}: {reason.replace('_', ' ')}")
        self.subject = subject
        self.reason = reason


class _Question:
    __slots__ = ("answer", "headers", "payload", "reply", "sent_in", "subject")

    def __init__(self, subject: str, payload: bytes, headers: dict[str, str] | None, reply: str) -> None:
        self.subject = subject
        self.payload = payload
        self.headers = headers
        self.reply = reply
        self.sent_in = 0
        self.answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()


SendQuestion = Callable[[str, bytes, str, dict[str, str] | None], Awaitable[bool]]
"""Puts subject, payload, reply subject and headers on the wire; False when that was not possible."""


class Inbox:
    """The table of questions in flight. `prefix` is a subject of this connection alone."""

    def __init__(self, prefix: str, send: SendQuestion) -> None:
        self.subject = f"{prefix}.*"
        self._prefix = f"{prefix}."
        self._send = send
        self._numbers = itertools.count(1)
        self._questions: dict[str, _Question] = {}
        self._life = 1
        """Number of the connection's life; what was sent in an earlier one may be lost."""

    @property
    def in_flight(self) -> int:
        return len(self._questions)

    async def ask(
        self,
        subject: str,
        payload: bytes,
        headers: Mapping[str, str] | None = None,
        *,
        timeout_s: float,
        patient: bool = True,
    ) -> Message:
        """The first answer. Raises NoAnswerError.

        A patient question is asked again every 50 ms while nobody serves its subject: a stream that
        is being created, or a server that is still loading its store. It is also put again while it is
        not answered: a stream whose leader is lost answers once it has another.
        """
        if len(self._questions) >= MOST_IN_FLIGHT:
            raise NoAnswerError(subject, "too_many_wait")
        number = str(next(self._numbers))
        question = _Question(subject, payload, dict(headers) if headers else None, self._prefix + number)
        self._questions[number] = question
        reason: Literal["timeout", "no_responders"] = "timeout"
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    await self._put(question)
                    message = await (self._insist(question) if patient else question.answer)
                    if message.data or (message.headers or {}).get("Status") != _NO_RESPONDERS:
                        return message
                    reason = "no_responders"
                    if not patient:
                        raise NoAnswerError(subject, reason)
                    question.answer = asyncio.get_running_loop().create_future()
                    await asyncio.sleep(RETRY_S)
        except TimeoutError:
            raise NoAnswerError(subject, reason) from None
        finally:
            del self._questions[number]

    async def _insist(self, question: _Question) -> Message:
        wait_s = AGAIN_S
        while not (await asyncio.wait((question.answer,), timeout=wait_s))[0]:
            wait_s *= 2
            await self._put(question)
        return question.answer.result()

    def answered(self, message: Message) -> None:
        """An answer arrived; one that nobody waits for any more is dropped."""
        question = self._questions.get(message.subject[len(self._prefix) :])
        if question is not None and not question.answer.done():
            question.answer.set_result(message)

    def connection_lost(self) -> None:
        """Whatever was sent so far may never have arrived."""
        self._life += 1

    async def ask_again(self) -> None:
        """The connection is back: put what it may have lost once more, in the order it was asked."""
        for question in list(self._questions.values()):
            if question.sent_in != self._life and not question.answer.done():
                await self._put(question)

    def close(self) -> None:
        """Fail what is in flight."""
        for question in self._questions.values():
            if not question.answer.done():
                question.answer.set_exception(NoAnswerError(question.subject, "closed"))

    async def _put(self, question: _Question) -> None:
        life = self._life
        if await self._send(question.subject, question.payload, question.reply, question.headers):
            question.sent_in = life
