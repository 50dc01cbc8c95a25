"""Worked cases of matching, freshness and tiers, as the rules print them [IDX section 22.2].

Chain entries and co-set prefix hashes of an update reach the log as single keys with the counts that
IDX-24 to IDX-28 give them; what becomes of them on the way is a test of the router.
"""

from __future__ import annotations

import pytest

from inferencecache.schemas.records import TIER_T1, TIER_T2
from tests.oracle.logs import stored
from tests.oracle.stories import assert_answer, chain, exact, policy
from tests.oracle.story import Story

OPEN = policy(floors=(0, 0.0))


@pytest.mark.rule("IDX-W23", "IDX-70")
def test_a_run_is_worth_the_tokens_that_the_request_counts(story: Story) -> None:
    story.given("r[b1,b2]x16")
    assert_answer(story.ask(chain("b1,b2", 128)), "PREFIX_MATCH", "r 256 matched=256")


@pytest.mark.rule("IDX-W24", "IDX-64", "IDX-66")
def test_a_block_asked_for_by_itself_is_worth_its_stored_cumulative_count(story: Story) -> None:
    story.given("r[b1..b4]x64")
    assert_answer(story.ask(exact("b3", 5)), "PREFIX_MATCH", "r 192 matched=192")


@pytest.mark.rule("IDX-W25", "IDX-73")
def test_a_chain_finds_an_exact_entry_for_its_own_count(story: Story) -> None:
    story.given("r{p:640}")
    assert_answer(story.ask_index(chain("p,x", 16)), "PREFIX_MATCH", "r 16 matched=16")


@pytest.mark.rule("IDX-W26", "IDX-71")
@pytest.mark.parametrize("old", ["b1", "b2", "b3"])
def test_a_run_is_as_fresh_as_its_oldest_block_wherever_it_stands(story: Story, old: str) -> None:
    story.under(policy(ttl_s=600))
    for block in ("b1", "b2", "b3"):
        story.given(f"r{{{block}:64}} age={480 if block == old else 0}")
    assert_answer(story.ask(chain("b1,b2,b3", 64)), "PREFIX_MATCH", "r 38.4 matched=192 prob=0.2")


@pytest.mark.rule("IDX-W27", "IDX-68")
def test_a_stale_block_ends_the_run_before_it(story: Story) -> None:
    story.under(policy(ttl_s=600)).given("r{b1:64, b3:192}; r{b2:128} age=600")
    assert_answer(story.ask(chain("b1,b2,b3", 64)), "PREFIX_MATCH", "r 64 matched=64 prob=1")


@pytest.mark.rule("IDX-W28", "IDX-76", "WIRE-C29")
@pytest.mark.parametrize("cold", ["b1", "b2"])
def test_a_run_has_the_tier_of_its_coldest_block_wherever_it_stands(story: Story, cold: str) -> None:
    for block in ("b1", "b2"):
        tier = TIER_T2 if block == cold else TIER_T1
        story.report("r", stored([block.encode()], [64], tier=tier))
    assert_answer(story.ask(chain("b1,b2", 64)), "PREFIX_MATCH", "r 128 matched=128 tier=2")


@pytest.mark.rule("IDX-W28", "IDX-75")
def test_an_exact_match_has_the_tier_of_its_own_entry(story: Story) -> None:
    story.given("r{b1:64} tier=2; r{b2:64} tier=1")
    assert_answer(story.ask(exact("b2")), "PREFIX_MATCH", "r 64 matched=64 tier=1")


@pytest.mark.rule("IDX-W29", "IDX-35", "IDX-36", "WIRE-C30")
@pytest.mark.parametrize(("tier", "answered"), [(0, 1), (1, 1), (2, 2), (3, 3), (99, 0), (-1, 0)])
def test_a_tier_is_answered_only_if_it_is_a_known_one(story: Story, tier: int, answered: int) -> None:
    story.given(f"r{{p:128}} tier={tier}")
    assert_answer(story.ask(exact("p")), "PREFIX_MATCH", f"r 128 tier={answered}")


@pytest.mark.rule("IDX-36", "IDX-76")
@pytest.mark.parametrize("unknown", [99, -1])
def test_an_unknown_tier_is_colder_than_every_known_one(story: Story, unknown: int) -> None:
    story.given(f"r{{b1:64}} tier={unknown}; r{{b2:128}} tier=3")
    assert_answer(story.ask(chain("b1,b2", 64)), "PREFIX_MATCH", "r 128 tier=0")


@pytest.mark.rule("IDX-W30", "IDX-53")
def test_an_entry_as_old_as_its_ttl_is_stale_until_it_is_swept(story: Story) -> None:
    story.given("r{p:1000} age=1799")
    assert_answer(story.ask(exact("p")), "PREFIX_MATCH", "r 0.556")
    story.given("r{p:1000} age=1800")
    assert_answer(story.ask(exact("p")), "AFFINITY_HINT", "r 0")
    story.sweep()
    assert_answer(story.ask(exact("p")), "NO_HINT")


@pytest.mark.rule("IDX-W31", "IDX-136")
def test_the_score_of_an_ageing_entry_falls_below_the_floor(story: Story) -> None:
    story.given("r{p:64} age=1797")
    assert_answer(story.ask(exact("p")), "PREFIX_MATCH", "r 0.107")
    story.given("r{p:64} age=1798")
    assert_answer(story.ask(exact("p")), "AFFINITY_HINT", "r 0")


@pytest.mark.rule("IDX-W32", "IDX-30", "IDX-32", "IDX-37")
def test_the_report_applied_last_wins_even_if_it_is_older(story: Story) -> None:
    story.given("r{p:128} tier=1; r{p:128} tier=2 age=900")
    assert_answer(story.ask(exact("p")), "PREFIX_MATCH", "r 64 prob=0.5 tier=2")


@pytest.mark.rule("IDX-W33", "IDX-20", "IDX-53")
@pytest.mark.parametrize("ahead_s", [5, 3_000_000_000])
def test_an_entry_from_the_future_is_fresh(story: Story, ahead_s: int) -> None:
    story.given(f"r{{p:128}} age={-ahead_s}")
    assert_answer(story.ask(exact("p")), "PREFIX_MATCH", "r 128 prob=1")


@pytest.mark.rule("IDX-20")
def test_a_time_far_in_the_future_does_not_count(story: Story) -> None:
    story.given("r{p:128} age=-6")
    later_us = story.now_us + 900_000_000
    answer = story.index.route(exact("p"), None, later_us)
    assert_answer(answer, "PREFIX_MATCH", "r 64 prob=0.5")


@pytest.mark.rule("IDX-W34", "IDX-25", "WIRE-C32")
def test_a_column_that_does_not_fit_its_counts_stores_nothing(story: Story) -> None:
    whole = stored([b"b1", b"b2", b"b3"], [16, 32, 48])
    story.report("r", stored([b"b1", b"b2", b"b3"], [16]))
    story.report("r", type(whole)(whole.scheme, whole.adapter, 0, 2, whole.hashes, b"\0" * 11))
    story.report("r", type(whole)(whole.scheme, whole.adapter, 0, 5, whole.hashes, whole.token_counts))
    assert story.keys() == 0


@pytest.mark.rule("IDX-W35", "IDX-26")
def test_a_chain_and_the_key_of_its_whole_prefix_are_keys_of_their_own(story: Story) -> None:
    story.given("r[b1,b2,b3]x16; r{full:128}")
    assert_answer(story.ask(exact("full")), "PREFIX_MATCH", "r 128 matched=128")
    assert_answer(story.ask_index(chain("b1,b2,b3", 16)), "PREFIX_MATCH", "r 48 matched=48")
    assert story.keys() == 4


@pytest.mark.rule("IDX-W36", "IDX-27", "IDX-65")
def test_a_block_overwritten_with_no_tokens_still_counts_in_a_run(story: Story) -> None:
    story.given("r[b1,b2]x64; r{b2:0}")
    assert_answer(story.ask_index(exact("b2")), "PREFIX_MATCH", "r 0 matched=0")
    assert_answer(story.ask(chain("b1,b2", 64)), "PREFIX_MATCH", "r 128 matched=128")


@pytest.mark.rule("IDX-W37", "IDX-21", "WIRE-088")
def test_without_a_scheme_only_the_statistics_of_an_update_are_taken(story: Story) -> None:
    story.given("r{p:128} scheme= hit=0.5")
    assert story.keys() == 0
    assert list(story.index.stats("t", "m")) == ["r"]


@pytest.mark.rule("IDX-W38", "IDX-61", "IDX-11", "IDX-115", "WIRE-C26")
def test_an_adapter_is_a_partition_of_keys_but_not_of_the_fleet(story: Story) -> None:
    story.given("r-sql{p:128} adapter=sql-lora; r-chat{p:128} adapter=chat-lora")
    answer = story.ask(exact("p", adapter="sql-lora"))
    assert_answer(answer, "PREFIX_MATCH", "r-sql 64")
    assert answer.adapter == "sql-lora"
    assert_answer(story.ask(exact("p")), "AFFINITY_HINT", "r-sql 0")
    assert_answer(story.ask(exact("p", adapter="x")), "AFFINITY_HINT", "r-sql 0")


@pytest.mark.rule("IDX-W39", "IDX-23", "IDX-62")
def test_the_empty_hash_is_found_by_a_request_without_input(story: Story) -> None:
    story.given("r{:128}")
    assert_answer(story.ask(exact("")), "PREFIX_MATCH", "r 128")


@pytest.mark.rule("IDX-W40", "IDX-65", "IDX-72")
def test_no_tokens_make_an_exact_match_but_no_run(story: Story) -> None:
    story.under(OPEN).given("r{p:0}")
    assert_answer(story.ask(exact("p")), "PREFIX_MATCH", "r 0 matched=0")
    story.given("r[p]x64")
    assert_answer(story.ask(chain("p", 0)), "AFFINITY_HINT", "r 0")
