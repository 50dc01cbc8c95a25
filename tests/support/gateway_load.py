"""Conversations held with engines by way of whoever chooses among them, and what came of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from inferencecache.cli.load.conversations import Transcript, Workload, bounded, conversations, turns_of_user
from inferencecache.cli.load.engines import Completion, EngineFailedError, Engines
from inferencecache.cli.stack.plan import EngineAddress

Complete = Callable[[Sequence[int], int], Awaitable[Completion]]
"""Prompt and tokens of the answer. Raises `EngineFailedError`."""


@dataclass
class Outcome:
    """`failed` are starts, on the monotonic clock, and errors of the requests that failed."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    answered: int = 0
    failed: list[tuple[float, str]] = field(default_factory=list)

    @property
    def cached_share(self) -> float:
        return self.cached_tokens / max(1, self.prompt_tokens)


async def hold_conversations(
    workload: Workload, complete: Complete, outcome: Outcome, turns: int | None = None
) -> Outcome:
    """All users' conversations, `turns` turns together, or without end."""

    async def user(number: int) -> None:
        planned = conversations(workload, number)
        if turns is not None:
            planned = bounded(planned, turns_of_user(turns, workload.users, number))
        for conversation in planned:
            transcript = Transcript(conversation)
            for turn in conversation.turns:
                started = time.monotonic()
                try:
                    completion = await complete(transcript.ask(turn), turn.answer_tokens)
                except EngineFailedError as error:
                    outcome.failed.append((started, str(error)))
                    break
                outcome.answered += 1
                outcome.prompt_tokens += completion.prompt_tokens
                outcome.cached_tokens += completion.cached_tokens
                transcript.answered(completion.tokens)

    async with asyncio.TaskGroup() as group:
        for number in range(workload.users):
            group.create_task(user(number))
    return outcome


def through(engines: Engines, url: str) -> Complete:
    """Let a gateway choose."""
    gateway = EngineAddress("gateway", url)

    async def complete(prompt: Sequence[int], answer_tokens: int) -> Completion:
        return await engines.complete(gateway, prompt, answer_tokens)

    return complete
