"""Worked cases of fallbacks and diagnostics, as the rules print them [IDX section 22.4]."""

from __future__ import annotations

import pytest

from tests.oracle.routing import Question
from tests.oracle.stories import assert_answer, chain, exact, policy
from tests.oracle.story import Story

WARM = "r-warm{other:1}; r-warm hit=0.8 pressure=0.1 age=30"
OFF = policy(affinity=False)


@pytest.mark.rule("IDX-W47", "IDX-97", "IDX-98")
def test_a_warm_replica_is_a_hint_for_an_exact_miss(story: Story) -> None:
    story.given(WARM)
    assert_answer(story.ask(exact("novel")), "TENANT_HOT", "r-warm 0.648 matched=0 prob=0.8 tier=0")
    assert_answer(story.ask(exact("novel", ttft_ms=100)), "TENANT_HOT", "r-warm 1.2312 prob=0.8")


@pytest.mark.rule("IDX-W48", "IDX-96")
def test_statistics_of_five_minutes_make_nobody_hot(story: Story) -> None:
    story.given("r-warm{other:1}; r-warm hit=0.8 pressure=0.1 age=300")
    assert_answer(story.ask(exact("novel")), "AFFINITY_HINT", "r-warm 0")


@pytest.mark.rule("IDX-W49", "IDX-95")
def test_a_chain_that_misses_never_asks_who_is_hot(story: Story) -> None:
    story.given(WARM)
    assert_answer(story.ask(chain("q1", 16)), "AFFINITY_HINT", "r-warm 0")


@pytest.mark.rule("IDX-W50", "IDX-141")
@pytest.mark.parametrize("affinity", [True, False])
def test_with_hot_hints_off_affinity_decides(story: Story, affinity: bool) -> None:
    story.under(policy(tenant_hot=False, affinity=affinity)).given(WARM)
    expected = ("AFFINITY_HINT", "r-warm 0") if affinity else ("NO_HINT",)
    assert_answer(story.ask(exact("novel")), *expected)


@pytest.mark.rule("IDX-W51", "IDX-96", "IDX-98")
def test_the_least_hit_rate_counts_and_a_saturated_replica_is_still_named(story: Story) -> None:
    story.given("r{o:1} hit=0.1")
    assert_answer(story.ask(exact("n")), "TENANT_HOT", "r 0.1")
    story.given("r hit=0.9 pressure=1.0")
    answer = story.ask(exact("n"))
    assert_answer(answer, "TENANT_HOT", "r 0")
    assert answer.hints[0].score == 0


@pytest.mark.rule("IDX-W52", "IDX-100", "IDX-112")
def test_a_stale_member_may_be_hot_until_it_is_swept(story: Story) -> None:
    story.under(policy(ttl_s=600)).given("r{o:1} age=900; r hit=0.9")
    assert_answer(story.ask(exact("n")), "TENANT_HOT", "r 0.9")
    story.sweep()
    assert_answer(story.ask(exact("n")), "NO_HINT")


@pytest.mark.rule("IDX-W53", "IDX-105", "IDX-106", "WIRE-C24")
@pytest.mark.parametrize(
    ("question", "replica"),
    [
        (chain("prompt-block-1,prompt-block-2", 16), "r-1"),
        (exact("novel"), "r-2"),
        (chain("ab,cd", 16), "r-3"),
        (chain("abcd", 16), "r-2"),
    ],
)
def test_a_miss_is_assigned_by_the_hash_of_its_input(story: Story, question: Question, replica: str) -> None:
    story.given("r-3{z:1}; r-1{x:1}; r-2{y:1}")
    assert_answer(story.ask(question), "AFFINITY_HINT", f"{replica} 0 matched=0 prob=0 tier=0")


@pytest.mark.rule("WIRE-183")
def test_members_are_ordered_by_bytes(story: Story) -> None:
    story.given("r-2{y:1}; r-10{x:1}")  # the seed's digest is even, so it picks the first
    assert_answer(story.ask(exact("novel")), "AFFINITY_HINT", "r-10 0")


@pytest.mark.rule("IDX-W54", "IDX-111", "WIRE-C05")
def test_an_empty_index_gives_no_hint_and_no_diagnosis(story: Story) -> None:
    assert_answer(story.ask(exact("p", tenant="anybody")), "NO_HINT")


@pytest.mark.rule("IDX-W55", "IDX-111", "IDX-114", "WIRE-C03", "WIRE-C04")
@pytest.mark.parametrize(
    ("question", "reason"),
    [
        (exact("p", tenant="x", model="zz", scheme="s"), "UNKNOWN_TENANT"),
        (exact("p", model="m2", scheme="s"), "UNKNOWN_MODEL"),
        (exact("p", model="m1", scheme="vllm-v1"), "UNKNOWN_HASH_SCHEME"),
        (exact("p", model="m1", scheme="vllm-v1", adapter="a"), "UNKNOWN_HASH_SCHEME"),
        (exact("p", model="m1", scheme=""), "NO_HINT"),
    ],
)
def test_the_outermost_key_that_nobody_reported_is_named(
    story: Story, question: Question, reason: str
) -> None:
    story.given("r{p:64} model=m1")
    answer = story.ask(question)
    assert_answer(answer, reason)
    assert answer.adapter == question.adapter


@pytest.mark.rule("IDX-W55", "IDX-111")
def test_a_novel_prefix_in_a_known_domain_is_no_diagnosis(story: Story) -> None:
    story.given("r{p:64} model=m1")
    assert_answer(story.ask(exact("novel", model="m1")), "AFFINITY_HINT", "r 0")


@pytest.mark.rule("IDX-112")
def test_statistics_alone_make_nothing_known(story: Story) -> None:
    story.given("r{p:64}; q tenant=u hit=0.9")
    assert_answer(story.ask(exact("p", tenant="u")), "UNKNOWN_TENANT")


@pytest.mark.rule("IDX-58", "WIRE-C06")
def test_what_is_stored_under_an_empty_key_is_counted_but_never_found(story: Story) -> None:
    story.given("r1{p:128} tenant=")
    assert_answer(story.ask(exact("p", tenant="")), "NO_HINT")
    assert story.keys(tenant="") == 1


@pytest.mark.rule("IDX-W56", "IDX-133", "IDX-134", "WIRE-C25")
@pytest.mark.parametrize("affinity", [True, False])
def test_a_request_that_is_too_small_gets_affinity_or_nothing(story: Story, affinity: bool) -> None:
    story.under(policy(prefix_floor=1024, floors=(0, 0.1), affinity=affinity)).given("r-1{deep:64}")
    expected = ("AFFINITY_HINT", "r-1 0 matched=0 prob=0 tier=0") if affinity else ("NO_HINT",)
    assert_answer(story.ask(exact("deep", 1)), *expected)
    reason = "UNKNOWN_HASH_SCHEME" if affinity else "NO_HINT"
    assert_answer(story.ask(exact("deep", 1, scheme="sglang")), reason)


@pytest.mark.rule("IDX-W57", "IDX-136")
def test_a_score_equal_to_the_floor_passes(story: Story) -> None:
    story.under(policy(floors=(64, 64.0))).given("r{p:64}")
    assert_answer(story.ask(exact("p")), "PREFIX_MATCH", "r 64")
    story.under(policy(floors=(64, 64.5)))
    assert_answer(story.ask(exact("p")), "AFFINITY_HINT", "r 0")


@pytest.mark.rule("IDX-W58", "IDX-60", "WIRE-060", "WIRE-C14", "WIRE-C15")
@pytest.mark.parametrize(
    "question",
    [
        chain("b1,b2", 16, 16, 16),
        Question(block_hashes=(b"b1", b"b2"), block_token_counts=(16,)),
        Question(block_token_counts=(16, 16)),
        Question(prefix_hash=b"other", block_hashes=(b"b1", b"b2"), block_token_counts=(16,), adapter="a"),
    ],
)
def test_a_malformed_chain_gets_nothing_at_all(story: Story, question: Question) -> None:
    story.given(WARM)
    answer = story.ask(question)
    assert_answer(answer, "NO_HINT")
    assert answer.adapter == ""


@pytest.mark.rule("IDX-W59", "IDX-136", "WIRE-C07")
def test_without_a_policy_the_least_match_is_64_tokens(story: Story) -> None:
    story.given("r{ct:16}")
    assert_answer(story.ask(exact("ct")), "AFFINITY_HINT", "r 0")
    story.given("r{ct:64}")
    assert_answer(story.ask(exact("ct")), "PREFIX_MATCH", "r 64")
