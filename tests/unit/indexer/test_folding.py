"""A partition's log is folded in order, and never for long at once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from inferencecache.cli.running import in_background
from inferencecache.core.index.fold import Folded, LogMessage
from inferencecache.core.service.tracing import Carried
from inferencecache.indexer.folding import Folding
from inferencecache.schemas.positions import Position
from tests.support.played import Arrived, PlayedLog
from tests.support.waiting import a_turn, eventually


class Folds:
    """A folding whose every message takes a whole turn; `turns` are the messages of each."""

    def __init__(self) -> None:
        self.log = PlayedLog()
        self.is_held = False
        self.fails = False
        self.turns: list[list[int]] = []
        self._turn: list[int] = []
        self.folding = Folding(
            cast("Any", self.log),
            "S",
            cast("Any", SimpleNamespace(fold=self._fold)),
            Position(),
            Carried(),
            is_held=lambda: self.is_held,
            on_open=lambda _: None,
            on_folded=lambda _: self._folded(),
            on_lost=lambda _: None,
            slice_s=0.0,
        )

    def _fold(self, message: LogMessage) -> Folded:
        if self.fails:
            raise LookupError
        self._turn.append(message.position.sequence)
        return Folded()

    def _folded(self) -> None:
        self.turns.append(self._turn)
        self._turn = []

    def arrive(self, first: int, last: int) -> None:
        """Messages of one read of the socket, the last of them the head of the log."""
        for number in range(first, last + 1):
            reply = f"$JS.ACK.S.c.1.{number}.{number}.1000.{last - number}"
            self.log.waiting = last - number
            self.log.callback(Arrived(subject="ic.ev.1.0._.r", reply=reply))


async def test_a_flood_is_folded_in_order_with_a_turn_for_others_between() -> None:
    folds = Folds()
    async with in_background(folds.folding.run()):
        await folds.log.asked_for_messages.wait()
        folds.arrive(1, 3)
        assert folds.turns == [[1]]
        assert (folds.folding.waiting, folds.folding.caught_up) == (2, False)
        await a_turn()
        folds.arrive(4, 5)
        await eventually(lambda: not folds.folding.waiting)
        assert folds.turns == [[1], [2], [3], [4], [5]]
        assert folds.folding.caught_up
        assert folds.folding.lag_s() == 0


async def test_what_is_held_is_folded_when_it_is_released() -> None:
    folds = Folds()
    async with in_background(folds.folding.run()):
        await folds.log.asked_for_messages.wait()
        folds.is_held = True
        folds.arrive(1, 2)
        folds.folding.release()
        await a_turn()
        assert (folds.turns, folds.folding.waiting) == ([], 2)
        folds.is_held = False
        folds.folding.release()
        await eventually(lambda: folds.turns == [[1], [2]])


async def test_what_a_turn_cannot_do_ends_the_run() -> None:
    folds = Folds()
    running = asyncio.create_task(folds.folding.run())
    await folds.log.asked_for_messages.wait()
    folds.arrive(1, 2)
    folds.fails = True
    with pytest.raises(ExceptionGroup) as raised:
        await asyncio.wait_for(running, 10)
    assert raised.group_contains(LookupError)
