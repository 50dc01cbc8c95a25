"""What users say: conversations that begin with a shared system prompt and grow by every turn.

Everything follows from the seed: which system prompt, how long each message, every token. Nothing
depends on timing, so two runs send the same prompts as long as engines give the same answers.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Workload:
    """Shape of the load. Ranges are (least, most), inclusive; tokens and seconds."""

    seed: int = 1
    users: int = 24
    system_prompts: int = 12
    system_tokens: int = 96
    turns: tuple[int, int] = (5, 9)
    message_tokens: tuple[int, int] = (40, 90)
    answer_tokens: tuple[int, int] = (24, 48)
    pause_s: tuple[float, float] = (0.1, 0.5)
    start_s: float = 1.0
    """Users begin within this time, each at another moment."""
    vocabulary: int = 32_000


@dataclass(frozen=True)
class Turn:
    """What a user does next: after `pause_s` adds `message`, wants `answer_tokens` tokens back."""

    message: tuple[int, ...]
    answer_tokens: int
    pause_s: float


@dataclass(frozen=True)
class Conversation:
    """One conversation as planned; the prompt of a turn is all that was said before and its message."""

    system_prompt: tuple[int, ...]
    turns: tuple[Turn, ...]


class Transcript:
    """A conversation as it goes: the prompt so far."""

    def __init__(self, conversation: Conversation) -> None:
        self._tokens = list(conversation.system_prompt)

    def ask(self, turn: Turn) -> tuple[int, ...]:
        """The prompt of this turn."""
        self._tokens += turn.message
        return tuple(self._tokens)

    def answered(self, tokens: Sequence[int]) -> None:
        """Add the engine's answer."""
        self._tokens += tokens


def conversations(workload: Workload, user: int) -> Iterator[Conversation]:
    """All conversations of one user, without end."""
    systems = _system_prompts(workload)
    number = 0
    while True:
        rng = random.Random(f"{workload.seed}/{user}/{number}")
        turns = tuple(
            Turn(
                message=_tokens(rng, rng.randint(*workload.message_tokens), workload.vocabulary),
                answer_tokens=rng.randint(*workload.answer_tokens),
                pause_s=rng.uniform(*workload.pause_s),
            )
            for _ in range(rng.randint(*workload.turns))
        )
        yield Conversation(rng.choice(systems), turns)
        number += 1


def bounded(planned: Iterable[Conversation], turns: int) -> Iterator[Conversation]:
    """Conversations with `turns` turns together; the last one breaks off where it must."""
    left = turns
    for conversation in planned:
        if left <= 0:
            return
        yield Conversation(conversation.system_prompt, conversation.turns[:left])
        left -= len(conversation.turns)


def turns_of_user(total: int, users: int, user: int) -> int:
    """How many of `total` turns are this user's: as even as possible, the first users take the rest."""
    return total // users + (user < total % users)


def _system_prompts(workload: Workload) -> list[tuple[int, ...]]:
    rng = random.Random(f"{workload.seed}/system prompts")
    return [_tokens(rng, workload.system_tokens, workload.vocabulary) for _ in range(workload.system_prompts)]


def _tokens(rng: random.Random, count: int, vocabulary: int) -> tuple[int, ...]:
    return tuple(rng.randrange(vocabulary) for _ in range(count))
