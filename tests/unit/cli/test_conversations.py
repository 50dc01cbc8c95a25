"""The load follows from its seed, and its conversations grow."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from inferencecache.cli.load.conversations import (
    Conversation,
    Transcript,
    Workload,
    bounded,
    conversations,
    turns_of_user,
)

WORKLOAD = Workload(users=3)


def first(workload: Workload, user: int, count: int = 3) -> list[Conversation]:
    return list(islice(conversations(workload, user), count))


def test_the_same_seed_says_the_same() -> None:
    assert first(WORKLOAD, 1) == first(WORKLOAD, 1)
    assert first(WORKLOAD, 1) != first(replace(WORKLOAD, seed=2), 1)


def test_users_say_different_things_after_shared_system_prompts() -> None:
    system_prompts = {
        conversation.system_prompt for user in range(40) for conversation in first(WORKLOAD, user)
    }
    messages = [conversation.turns[0].message for user in range(40) for conversation in first(WORKLOAD, user)]
    assert len(system_prompts) == WORKLOAD.system_prompts
    assert len(set(messages)) == len(messages)


def test_the_prompt_of_a_turn_continues_the_one_before_it() -> None:
    [conversation] = first(WORKLOAD, 0, 1)
    transcript = Transcript(conversation)
    one, other = conversation.turns[:2]
    first_prompt = transcript.ask(one)
    transcript.answered([7, 8, 9])
    second_prompt = transcript.ask(other)
    assert first_prompt == conversation.system_prompt + one.message
    assert second_prompt == (*first_prompt, 7, 8, 9, *other.message)


def test_a_bounded_run_has_exactly_the_turns_it_was_given() -> None:
    shares = [turns_of_user(100, 7, user) for user in range(7)]
    made = [
        sum(len(conversation.turns) for conversation in bounded(conversations(WORKLOAD, user), share))
        for user, share in enumerate(shares)
    ]
    assert made == shares
    assert sum(made) == 100
    assert max(made) - min(made) <= 1
