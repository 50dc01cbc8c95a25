"""Drives both groups: every turn goes to the hinted engine and to the control group at the same moment.

The next turn of a conversation begins when both have answered, so both groups get the same prompts at
the same times, and one that is slow slows the other down as well.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from itertools import cycle
from typing import Final

from inferencecache.cli.load.choice import Pool
from inferencecache.cli.load.conversations import (
    Conversation,
    Transcript,
    Turn,
    Workload,
    bounded,
    conversations,
    turns_of_user,
)
from inferencecache.cli.load.engines import Completion, EngineFailedError, Engines
from inferencecache.cli.load.figures import Figures, GroupFigures
from inferencecache.cli.load.hints import Hint, Router
from inferencecache.cli.stack.plan import EngineAddress
from inferencecache.client import TIMEOUT, UNREACHABLE

ATTEMPTS: Final = 3
RETRY_S: Final = 0.2


class Driver:
    """All users. `total_turns` bounds the run; None goes on until cancelled."""

    def __init__(
        self,
        workload: Workload,
        engines: Engines,
        hinted: Pool,
        control: Pool,
        routers: Sequence[Router],
        figures: Figures,
        *,
        total_turns: int | None = None,
    ) -> None:
        self._workload = workload
        self._engines = engines
        self._hinted = hinted
        self._control = control
        self._routers = list(routers)
        self._turn = cycle(range(len(routers)))
        self._figures = figures
        self._total_turns = total_turns

    async def run(self) -> None:
        """Return when every user has made its turns."""
        async with asyncio.TaskGroup() as group:
            for user in range(self._workload.users):
                group.create_task(self._user(user))

    async def _user(self, user: int) -> None:
        rng = random.Random(f"{self._workload.seed}/start/{user}")
        await asyncio.sleep(rng.uniform(0, self._workload.start_s))
        planned = conversations(self._workload, user)
        if self._total_turns is not None:
            planned = bounded(planned, turns_of_user(self._total_turns, self._workload.users, user))
        for conversation in planned:
            await self._hold(conversation)

    async def _hold(self, conversation: Conversation) -> None:
        transcript = Transcript(conversation)
        for turn in conversation.turns:
            await asyncio.sleep(turn.pause_s)
            prompt = transcript.ask(turn)
            hinted, control = await asyncio.gather(self._with_hint(prompt, turn), self._in_turn(prompt, turn))
            answer = hinted or control
            if answer is not None:
                transcript.answered(answer.tokens)

    async def _with_hint(self, prompt: Sequence[int], turn: Turn) -> Completion | None:
        hint = await self._ask(prompt)
        self._figures.reasons[hint.reason] += 1
        first = self._hinted.choose(hint)
        return await self._complete(self._hinted, self._figures.hinted, first, prompt, turn)

    async def _in_turn(self, prompt: Sequence[int], turn: Turn) -> Completion | None:
        if not self._control.engines:
            return None
        first = self._control.round_robin()
        return await self._complete(self._control, self._figures.control, first, prompt, turn)

    async def _ask(self, prompt: Sequence[int]) -> Hint:
        """Routers take turns; one that does not answer is passed over."""
        first = next(self._turn)
        hint = Hint(UNREACHABLE)
        for router in self._routers[first:] + self._routers[:first]:
            hint = await router.lookup(prompt)
            if hint.reason not in (UNREACHABLE, TIMEOUT):
                break
        return hint

    async def _complete(
        self, pool: Pool, figures: GroupFigures, first: EngineAddress, prompt: Sequence[int], turn: Turn
    ) -> Completion | None:
        """A completion from the chosen engine, else from others; None when all fail."""
        failed: set[str] = set()
        engine = first
        for _ in range(ATTEMPTS):
            try:
                with pool.in_flight(engine):
                    completion = await self._engines.complete(engine, prompt, turn.answer_tokens)
            except EngineFailedError:
                figures.failures += 1
                failed.add(engine.name)
                engine = pool.least_outstanding(without=failed)
                await asyncio.sleep(RETRY_S)
            else:
                figures.count(engine.name, completion, asyncio.get_running_loop().time())
                return completion
        return None
