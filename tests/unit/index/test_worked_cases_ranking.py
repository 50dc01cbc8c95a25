"""Worked cases of ranking, as the rules print them [IDX section 22.1]."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from inferencecache.schemas.policy import ResolvedPolicy
from tests.oracle.routing import Question
from tests.oracle.stories import assert_answer, chain, exact, policy
from tests.oracle.story import Story

THREE = "r1{p:80}; r2{p:40}; r3{d:1}"
HEADER = "; ".join(f"{replica}{{rag-corpus-header:1500}}" for replica in ("r0", "r1", "r2"))
DEEP = "r0[b1..b4]x64; r1[b1,b2]x64; r2[b1]x64"
AGED = "A[h1,h2,h3]x64 age=60; B[h1,h2]x64 age=120; C[h1]x64 age=240"
HOT = "big-but-hot{p:100} pressure=0.9; small-cool{p:50} pressure=0; zzz{d:1}"
OLD = "big-old{p:200} age=1440; small-fresh{p:100}; zzz{d:1}"
OFF = policy(affinity=False)
rule = pytest.mark.rule


@dataclass(frozen=True)
class Case:
    state: str
    question: Question
    reason: str
    hints: tuple[str, ...] = ()
    policy: ResolvedPolicy | None = None
    is_gated: bool = True


def case(
    mark: pytest.MarkDecorator,
    state: str,
    question: Question,
    reason: str,
    *hints: str,
    under: ResolvedPolicy | None = None,
    index_level: bool = False,
) -> object:
    told = Case(state, question, reason, hints, under, not index_level)
    return pytest.param(told, id=mark.args[0], marks=mark)


CASES = [
    case(rule("IDX-W1"), "r1{p:100}", exact("p"), "PREFIX_MATCH", "r1 100 matched=100 prob=1 tier=1"),
    case(rule("IDX-W2"), THREE, exact("p"), "PREFIX_MATCH", "r1 26.667", "r2 13.333", index_level=True),
    case(rule("IDX-W3"), THREE, exact("p"), "PREFIX_MATCH", "r1 26.667"),
    case(rule("IDX-W4"), "r0{u:64}; r1{o:32}", exact("u"), "PREFIX_MATCH", "r0 32"),
    case(rule("IDX-W5"), "r0{u:64}; r1{o:32}; r2{o:32}", exact("u"), "PREFIX_MATCH", "r0 42.667"),
    case(
        rule("IDX-W6"),
        "r0{u:64}; r1{o:32}; r2{o:32}",
        exact("u"),
        "NO_HINT",
        under=policy(floors=(64, 100.0), affinity=False),
    ),
    case(
        rule("IDX-W7"),
        HEADER,
        exact("rag-corpus-header"),
        "PREFIX_MATCH",
        "r0 0 matched=1500",
        "r1 0 matched=1500",
        "r2 0 matched=1500",
        index_level=True,
    ),
    case(rule("IDX-W7"), HEADER, exact("rag-corpus-header"), "AFFINITY_HINT", "r0 0 matched=0 prob=0 tier=0"),
    case(rule("IDX-W7"), HEADER, exact("rag-corpus-header"), "NO_HINT", under=OFF),
    case(rule("IDX-W8"), "r1{p:4096}; r2{p:4096}", exact("p"), "AFFINITY_HINT", "r2 0"),
    case(rule("IDX-W9"), "r1{p:1500}; r2{p:1500}; r3 hit=0.5", exact("p"), "AFFINITY_HINT", "r2 0"),
    case(
        rule("IDX-W10"),
        DEEP,
        chain("b1..b4", 64),
        "PREFIX_MATCH",
        "r0 170.667 matched=256",
        "r1 42.667 matched=128",
        "r2 0 matched=64",
    ),
    case(
        rule("IDX-W11"),
        DEEP,
        chain("b1..b4", 64),
        "PREFIX_MATCH",
        "r0 170.667",
        "r1 42.667",
        under=policy(floors=(128, 0.1)),
    ),
    case(
        rule("IDX-W12"), DEEP, chain("b1..b4", 64), "AFFINITY_HINT", "r1 0", under=policy(floors=(64, 200.0))
    ),
    case(
        rule("IDX-W13"),
        "r1[b1,b2]x64; r2[b1]x64",
        chain("b1,b2", 64),
        "PREFIX_MATCH",
        "r1 64 matched=128",
        "r2 0",
    ),
    case(
        rule("IDX-W14"),
        AGED,
        chain("h1..h5", 64),
        "PREFIX_MATCH",
        "A 123.733 matched=192 prob=0.9667",
        "B 39.822 matched=128 prob=0.9333",
        "C 0 matched=64 prob=0.8667",
    ),
    case(
        rule("IDX-W15"),
        HOT,
        exact("p"),
        "PREFIX_MATCH",
        "small-cool 16.667",
        "big-but-hot 3.333",
        index_level=True,
    ),
    case(rule("IDX-W16"), HOT, exact("p"), "PREFIX_MATCH", "big-but-hot 3.333"),
    case(
        rule("IDX-W16"),
        HOT,
        exact("p"),
        "PREFIX_MATCH",
        "small-cool 16.667",
        "big-but-hot 3.333",
        under=policy(floors=(0, 0.1)),
    ),
    case(rule("IDX-W17"), "solo{p:1000} pressure=1.5", exact("p"), "AFFINITY_HINT", "solo 0"),
    case(rule("IDX-W17"), "solo{p:1000} pressure=-0.5", exact("p"), "PREFIX_MATCH", "solo 1000"),
    *(
        case(
            rule("IDX-W18"),
            OLD,
            exact("p", ttft_ms=ttft_ms),
            "PREFIX_MATCH",
            *("big-old 40", "small-fresh 33.333"),
            under=policy(ttl_s=3600),
        )
        for ttft_ms in (0, 200, -5)
    ),
    *(
        case(
            rule("IDX-W18"),
            OLD,
            exact("p", ttft_ms=ttft_ms),
            "PREFIX_MATCH",
            *("small-fresh 66.667", "big-old 64"),
            under=policy(ttl_s=3600),
        )
        for ttft_ms in (50, 199)
    ),
    case(
        rule("IDX-W20"),
        "r1{p:400} pressure=0.25 age=450; r2{o:1} age=450",
        exact("p", ttft_ms=150),
        "PREFIX_MATCH",
        "r1 196.875 prob=0.75",
    ),
    case(
        rule("IDX-W22"),
        "r0{chat:16}; r1{chat:16}; r2{chat:16}",
        exact("chat"),
        "PREFIX_MATCH",
        "r0 0",
        "r1 0",
        "r2 0",
        under=policy(floors=(0, 0.0)),
    ),
]


@pytest.mark.parametrize("told", CASES)
def test_replicas_are_ranked_as_the_worked_case_says(story: Story, told: Case) -> None:
    story.under(told.policy).given(told.state)
    answer = story.ask(told.question) if told.is_gated else story.ask_index(told.question)
    assert_answer(answer, told.reason, *told.hints)


@rule("IDX-W7", "IDX-W8", "IDX-W12", "IDX-92")
def test_a_prefix_that_all_hold_scores_exactly_zero(story: Story) -> None:
    story.given(HEADER)
    assert [hint.score for hint in story.ask_index(exact("rag-corpus-header")).hints] == [0.0, 0.0, 0.0]


@rule("IDX-W19", "IDX-56", "IDX-57")
def test_a_stale_replica_counts_in_the_fleet_until_it_is_swept(story: Story) -> None:
    story.under(policy(ttl_s=600)).given("r3{d:1} age=610; r1{p:1500}; r2{p:1500}")
    assert_answer(story.ask(exact("p")), "PREFIX_MATCH", "r1 500", "r2 500")
    story.sweep()
    assert_answer(story.ask(exact("p")), "AFFINITY_HINT", "r2 0")


@rule("IDX-W21", "IDX-88")
def test_runs_that_differ_by_blocks_of_no_tokens_are_equally_deep(story: Story) -> None:
    story.given("a{b1:64, b2:64}; c{b1:64}; z{d:1}")
    answer = story.ask(chain("b1,b2", 64, 0))
    assert_answer(answer, "PREFIX_MATCH", "a 21.333 matched=64", "c 21.333 matched=64")
