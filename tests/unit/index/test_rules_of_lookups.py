"""What a lookup finds and how it is ranked, where no worked case says it [IDX sections 6 to 10]."""

from __future__ import annotations

import pytest

from inferencecache.schemas.ids import PROBE_TENANT
from tests.oracle.routing import Question
from tests.oracle.stories import assert_answer, chain, exact, policy
from tests.oracle.story import Story

OPEN = policy(floors=(0, 0.0))


@pytest.mark.rule("IDX-63", "IDX-78")
def test_every_fresh_holder_of_a_key_is_a_candidate(story: Story) -> None:
    story.given("; ".join(f"r{number:02}{{p:64}}" for number in range(40)))
    story.given("stale{p:64} age=1800; other{q:64}")
    answer = story.ask_index(exact("p"))
    assert [hint.replica for hint in answer.hints] == [f"r{number:02}" for number in range(40)]


@pytest.mark.rule("IDX-67", "IDX-69")
def test_who_lacks_the_first_block_is_no_candidate(story: Story) -> None:
    story.given("r1[b1,b2]x64; r2{b2:128, b3:192}; r3{b1:64} age=1800; r3{b2:128}")
    assert_answer(story.ask_index(chain("b1,b2,b3", 64)), "PREFIX_MATCH", "r1 85.333 matched=128")


@pytest.mark.rule("IDX-68")
def test_a_run_that_has_ended_never_goes_on(story: Story) -> None:
    story.given("r1{b1:64, b3:192, b4:256}; r2[b1..b4]x64; r3{z:1}")
    hints = ("r2 170.667 matched=256", "r1 21.333 matched=64")
    assert_answer(story.ask_index(chain("b1..b4", 64)), "PREFIX_MATCH", *hints)


@pytest.mark.rule("IDX-59", "WIRE-058")
def test_a_chain_is_matched_and_the_exact_hash_beside_it_is_not(story: Story) -> None:
    story.given("r1{p:640}; r2[b1]x64; r3{z:1}")
    question = Question(prefix_hash=b"p", block_hashes=(b"b1",), block_token_counts=(64,))
    assert_answer(story.ask(question), "PREFIX_MATCH", "r2 42.667")


@pytest.mark.rule("IDX-74")
def test_a_hash_repeated_in_a_chain_counts_at_each_position(story: Story) -> None:
    story.given("r{b1:64}")
    assert_answer(story.ask(chain("b1,b1,b1,x", 64)), "PREFIX_MATCH", "r 192 matched=192")


@pytest.mark.rule("IDX-77")
def test_the_tier_moves_no_replica(story: Story) -> None:
    story.given("r1{p:64} tier=3; r2{p:64} tier=1; r3{z:1}")
    assert_answer(story.ask(exact("p")), "PREFIX_MATCH", "r1 21.333 tier=3", "r2 21.333 tier=1")


@pytest.mark.rule("IDX-79")
def test_the_probability_of_a_hit_is_the_freshness_and_nothing_else(story: Story) -> None:
    story.given("r1{p:640} age=450 pressure=0.5; r2{z:1}")
    assert_answer(story.ask(exact("p", ttft_ms=100)), "PREFIX_MATCH", "r1 210 prob=0.75")


@pytest.mark.rule("IDX-80")
def test_a_candidate_makes_a_prefix_match_whatever_its_score(story: Story) -> None:
    story.given("r{p:-5} pressure=1; r hit=0.9")
    assert story.ask_index(exact("p")).reason == "PREFIX_MATCH"


@pytest.mark.rule("IDX-82")
@pytest.mark.parametrize(("pressure", "score"), [(1.0, 0), (7.5, 0), (-3.0, 64), (0.25, 48)])
def test_pressure_takes_away_at_most_everything(story: Story, pressure: float, score: float) -> None:
    story.given(f"r{{p:64}} pressure={pressure}")
    assert_answer(story.ask_index(exact("p")), "PREFIX_MATCH", f"r {score}")


@pytest.mark.rule("IDX-81")
def test_statistics_as_old_as_the_ttl_press_no_more(story: Story) -> None:
    story.under(policy(ttl_s=600))
    story.given("r{p:64}; r pressure=0.5 age=599")
    assert_answer(story.ask_index(exact("p")), "PREFIX_MATCH", "r 32")
    story.given("r pressure=0.5 age=600")
    assert_answer(story.ask_index(exact("p")), "PREFIX_MATCH", "r 64")


@pytest.mark.rule("IDX-90")
def test_a_match_below_the_floor_still_distinguishes_less(story: Story) -> None:
    story.given("r1{p:640}; r2{p:1}; r3{z:1}; r4{z:1}")
    assert_answer(story.ask(exact("p")), "PREFIX_MATCH", "r1 320")


@pytest.mark.rule("IDX-93")
def test_a_fleet_is_what_has_reported(story: Story) -> None:
    story.given("r1{p:640}; r2{p:640}")
    assert [hint.score for hint in story.ask_index(exact("p")).hints] == [0, 0]
    story.given("r3{z:1}")
    assert_answer(story.ask_index(exact("p")), "PREFIX_MATCH", "r1 213.333", "r2 213.333")


@pytest.mark.rule("IDX-99")
def test_the_floors_do_not_bind_a_hot_hint(story: Story) -> None:
    story.under(policy(floors=(10_000, 10_000.0))).given("r{o:1} hit=0.5")
    assert_answer(story.ask(exact("novel")), "TENANT_HOT", "r 0.5")


@pytest.mark.rule("IDX-101", "WIRE-078")
def test_a_hot_replica_is_hot_for_every_adapter(story: Story) -> None:
    story.given("r{o:1} adapter=a hit=0.5")
    for adapter in ("", "a", "never-seen"):
        assert_answer(story.ask(exact("novel", adapter=adapter)), "TENANT_HOT", "r 0.5")


@pytest.mark.rule("IDX-104", "IDX-109", "WIRE-071")
def test_affinity_looks_at_membership_alone(story: Story) -> None:
    story.given("r-1{x:1} pressure=9 age=1799; r-2{y:1} age=1801 adapter=a; r-3{z:1}; r-0 hit=0.9 age=299")
    story.given("r-0 hit=0.05")
    assert_answer(story.ask(chain("prompt-block-1,prompt-block-2", 16)), "AFFINITY_HINT", "r-1 0")
    assert_answer(story.ask(exact("novel")), "AFFINITY_HINT", "r-2 0")


@pytest.mark.rule("IDX-108", "WIRE-184", "WIRE-185")
def test_affinity_depends_on_the_members_and_the_seed_alone(story: Story) -> None:
    story.given("r-3{z:1}; r-1{x:1}; r-2{y:1}")
    before = story.ask(exact("novel"))
    story.given("r-2{more:9}; r-1{x:1}; r-3{z:1} adapter=a").evict("r-3", "z", adapter="a")
    assert story.ask(exact("novel")) == before
    assert story.ask(exact("novel", adapter="a")).hints == before.hints


@pytest.mark.rule("IDX-110", "IDX-111")
def test_a_hot_hint_comes_before_a_diagnosis_and_a_diagnosis_before_affinity(story: Story) -> None:
    story.given("r{o:1} hit=0.5")
    assert story.ask(exact("novel")).reason == "TENANT_HOT"
    assert story.ask(exact("novel", scheme="other")).reason == "UNKNOWN_HASH_SCHEME"
    assert story.ask(chain("novel", 16, scheme="other")).reason == "UNKNOWN_HASH_SCHEME"


@pytest.mark.rule("IDX-102", "IDX-103")
def test_nothing_to_go_by_gets_no_affinity(story: Story) -> None:
    story.given("r{o:1}")
    assert_answer(story.ask(exact("")), "NO_HINT")


@pytest.mark.rule("IDX-112", "WIRE-049")
def test_an_index_that_holds_only_probe_keys_is_empty(story: Story) -> None:
    story.given(f"p{{pp:16}} tenant={PROBE_TENANT}")
    assert_answer(story.ask(exact("p")), "NO_HINT")
    story.given("r{p:64} tenant=u")
    assert_answer(story.ask(exact("p")), "UNKNOWN_TENANT")


@pytest.mark.rule("IDX-189", "WIRE-042", "WIRE-040")
def test_the_reserved_tenant_gets_nothing_from_a_lookup(story: Story) -> None:
    story.given(f"p{{pp:640}} tenant={PROBE_TENANT}; p{{pp:640}} tenant={PROBE_TENANT}x")
    answer = story.ask(exact("pp", tenant=PROBE_TENANT, adapter="a"))
    assert_answer(answer, "NO_HINT")
    assert answer.adapter == ""
    assert_answer(story.ask(exact("pp", tenant=f"{PROBE_TENANT}x")), "PREFIX_MATCH", "p 640")


@pytest.mark.rule("IDX-143", "IDX-188")
def test_the_probe_asks_the_index_itself_and_no_floor_fails_it(story: Story) -> None:
    story.given(f"p{{pp:16}} tenant={PROBE_TENANT}")
    answer = story.ask_index(chain("pp", 16, tenant=PROBE_TENANT))
    assert_answer(answer, "PREFIX_MATCH", "p 16 matched=16")


@pytest.mark.rule("IDX-139")
def test_with_both_floors_off_everything_that_matches_is_delivered(story: Story) -> None:
    story.under(OPEN).given("r1{p:1}; r2{p:1} pressure=1")
    assert_answer(story.ask(exact("p")), "PREFIX_MATCH", "r1 0", "r2 0")
