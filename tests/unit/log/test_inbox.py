"""Questions in flight: what is not answered is put again, the first answer counts."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from inferencecache.core.log import inbox as module
from inferencecache.core.log.inbox import Inbox, NoAnswerError
from tests.support.waiting import eventually


class Wire:
    """Notes what is put on it, and answers when it is told to."""

    def __init__(self) -> None:
        self.inbox = Inbox("_INBOX.test", self._send)
        self.sent: list[tuple[str, str]] = []

    async def _send(self, subject: str, payload: bytes, reply: str, headers: dict[str, str] | None) -> bool:
        self.sent.append((subject, reply))
        return True

    def answer(self, data: bytes) -> None:
        message: Any = SimpleNamespace(subject=self.sent[-1][1], reply="", data=data, headers=None)
        self.inbox.answered(message)


async def test_a_patient_question_that_is_not_answered_is_put_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_S", 0.01)
    wire = Wire()
    asking = asyncio.create_task(wire.inbox.ask("leaderless", b"?", timeout_s=10))
    await eventually(lambda: len(wire.sent) == 3)
    assert set(wire.sent) == {wire.sent[0]}, "the same question, so that any answer is one to it"
    wire.answer(b"!")
    assert (await asking).data == b"!"
    wire.answer(b"once more")
    assert wire.inbox.in_flight == 0


async def test_an_impatient_question_is_put_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_S", 0.01)
    wire = Wire()
    with pytest.raises(NoAnswerError, match="timeout"):
        await wire.inbox.ask("probe", b"?", timeout_s=0.1, patient=False)
    assert len(wire.sent) == 1


async def test_a_question_that_nobody_answers_fails_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_S", 0.01)
    wire = Wire()
    with pytest.raises(NoAnswerError, match="timeout"):
        await wire.inbox.ask("leaderless", b"?", timeout_s=0.1)
    assert wire.inbox.in_flight == 0
