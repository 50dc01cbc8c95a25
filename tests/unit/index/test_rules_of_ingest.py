"""What reports and events do to keys and holds [IDX sections 2 to 5]."""

from __future__ import annotations

import pytest

from inferencecache.schemas.records import Cleared, Event, Stats
from tests.oracle.logs import evicted, stored
from tests.oracle.routing import Question
from tests.oracle.stories import assert_answer, chain, exact, policy
from tests.oracle.story import Story

OPEN = policy(floors=(0, 0.0))


@pytest.mark.rule("IDX-10", "WIRE-020", "WIRE-021")
@pytest.mark.parametrize(
    "other",
    [
        exact("p", tenant="T"),
        exact("p", model="m "),
        exact("p", scheme="VLLM"),
        exact("p", adapter="a"),
        exact("p\0"),
        exact("P"),
    ],
)
def test_a_key_is_found_only_by_all_its_five_parts(story: Story, other: Question) -> None:
    story.given("r{p:64}")
    assert story.ask_index(exact("p")).reason == "PREFIX_MATCH"
    assert story.ask_index(other).reason != "PREFIX_MATCH"


@pytest.mark.rule("IDX-03", "IDX-10", "WIRE-021", "WIRE-054")
@pytest.mark.parametrize(
    "hashes",
    [
        [b"", b"\0", b"\0\0", b"\0" * 7, b"\0" * 8, b"\0" * 9, b"\0" * 32],
        [b"abcdefg", b"abcdefg\7", b"abcdefg\7\0"],
        [bytes(range(width)) for width in range(65)],
    ],
)
def test_hashes_of_any_length_are_told_apart(story: Story, hashes: list[bytes]) -> None:
    for number, hash_ in enumerate(hashes, 1):
        story.report("r", stored([hash_], [100 + number]))
    assert story.keys() == len(hashes)
    for number, hash_ in enumerate(hashes, 1):
        answer = story.ask(Question(prefix_hash=hash_))
        assert_answer(answer, "PREFIX_MATCH", f"r {100 + number} matched={100 + number}")


@pytest.mark.rule("IDX-12")
def test_a_replica_id_means_nothing_outside_its_tenant_and_model(story: Story) -> None:
    story.given("r{p:64} hit=0.1; r{p:64} tenant=u hit=0.2; r{p:64} model=n hit=0.3").clear("r")
    assert [story.keys(), story.keys(tenant="u"), story.keys(model="n")] == [0, 1, 1]
    rates = {pair: [row.hit_rate for row in story.index.stats(*pair).values()] for pair in ("tm", "um", "tn")}
    assert rates == {"tm": [], "um": [0.2], "tn": [0.3]}


@pytest.mark.rule("IDX-13", "WIRE-087", "WIRE-110")
def test_empty_names_are_stored_like_others(story: Story) -> None:
    story.report("", stored([b""], [64]), Stats(hit_rate=0.5), tenant="", model="")
    assert story.keys(tenant="", model="") == 1
    assert list(story.index.stats("", "")) == [""]
    story.report("", stored([b""], [64]))
    assert [hint.replica for hint in story.ask(exact("")).hints] == [""]


@pytest.mark.rule("IDX-14", "IDX-50", "IDX-86")
def test_a_replica_is_a_member_while_it_holds_anything_in_any_adapter(story: Story) -> None:
    story.given("r1{p:64}; r2{q:64} adapter=a; r2{q:64} adapter=b; r3 hit=0.9; r4{q:64} scheme=sglang")
    assert_answer(story.ask(exact("p")), "PREFIX_MATCH", "r1 32")
    story.evict("r2", "q", adapter="a")
    assert_answer(story.ask(exact("p")), "PREFIX_MATCH", "r1 32")
    story.evict("r2", "q", adapter="b")
    assert_answer(story.ask(exact("p")), "PREFIX_MATCH", "r1 64")


@pytest.mark.rule("IDX-15", "IDX-30")
def test_a_report_adds_and_refreshes_but_removes_nothing(story: Story) -> None:
    story.given("r{a:64, b:64}; r{b:128}")
    assert story.kept("a,b") == "a,b"
    assert story.keys() == 2
    assert_answer(story.ask(exact("b")), "PREFIX_MATCH", "r 128 matched=128")


@pytest.mark.rule("IDX-17", "IDX-49", "WIRE-106")
def test_what_the_log_says_last_holds_whatever_its_time(story: Story) -> None:
    second_us = 1_000_000
    story.report("r", stored([b"p"], [64]), evicted(b"p", timestamp_us=story.now_us - 900 * second_us))
    assert story.kept("p") == ""
    story.report("r", Cleared(), stored([b"p"], [64], timestamp_us=story.now_us - 900 * second_us))
    assert story.kept("p") == "p"


@pytest.mark.rule("IDX-18", "WIRE-093")
@pytest.mark.parametrize("timestamp_us", [-1, -(2**62), 1])
def test_a_time_long_ago_is_taken_as_it_is(story: Story, timestamp_us: int) -> None:
    story.report("r", stored([b"p"], [64], timestamp_us=timestamp_us))
    assert_answer(story.ask(exact("p")), "AFFINITY_HINT", "r 0")
    story.sweep()
    assert story.keys() == 0


@pytest.mark.rule("IDX-05", "IDX-19", "IDX-31", "WIRE-093")
def test_no_time_means_the_time_of_the_log(story: Story) -> None:
    story.report("r", stored([b"p"], [64]))
    answer = story.index.route(exact("p"), OPEN, story.now_us + 900_000_000)
    assert_answer(answer, "PREFIX_MATCH", "r 32 prob=0.5")
    story.log.tick()
    story.report("r", stored([b"p"], [64]))
    answer = story.index.route(exact("p"), OPEN, story.now_us)
    assert_answer(answer, "PREFIX_MATCH", "r 64 prob=1")


@pytest.mark.rule("IDX-28", "IDX-74", "WIRE-092")
def test_of_a_hash_repeated_in_one_record_the_last_count_stays(story: Story) -> None:
    story.report("r", stored([b"b1", b"b2", b"b1"], [16, 32, 48]))
    assert story.keys() == 2
    assert_answer(story.ask_index(exact("b1")), "PREFIX_MATCH", "r 48 matched=48")
    assert_answer(story.ask(chain("b1,b2,b1", 64)), "PREFIX_MATCH", "r 192 matched=192")


@pytest.mark.rule("IDX-29", "WIRE-028")
@pytest.mark.parametrize("count", [0, -1, 2**31 - 1, -(2**31)])
def test_token_counts_are_stored_as_given(story: Story, count: int) -> None:
    story.report("r", stored([b"p"], [count]))
    (hint,) = story.ask_index(exact("p")).hints
    assert hint.matched_tokens == count


@pytest.mark.rule("IDX-29", "WIRE-028", "WIRE-C37")
def test_the_tokens_of_a_run_wrap_around(story: Story) -> None:
    story.given("r{b1:2147483647, b2:-2147483648}")
    assert_answer(story.ask(chain("b1,b2", 2147483647, 1)), "AFFINITY_HINT", "r 0")
    (hint,) = story.ask(chain("b1", 2147483647)).hints
    assert hint.matched_tokens == 2147483647


@pytest.mark.rule("IDX-42", "IDX-11")
def test_statistics_belong_to_a_replica_of_a_model_and_to_no_adapter(story: Story) -> None:
    story.given("r{p:64} adapter=a hit=0.1; r{p:64} scheme=sglang hit=0.2")
    assert [row.hit_rate for row in story.index.stats("t", "m").values()] == [0.2]


@pytest.mark.rule("IDX-46", "IDX-50", "IDX-51", "WIRE-107")
def test_an_eviction_is_about_one_hash_and_counts_nowhere(story: Story) -> None:
    story.given("r[b1,b2]x64; r{full:128} hit=0.5; r{:64}")
    story.evict("r", "b1").evict("r", "nothing").evict("nobody", "b2").evict("r", "")
    assert story.kept("b1,b2,full") == "b2,full"
    assert story.keys() == 2
    assert list(story.index.stats("t", "m")) == ["r"]
    assert story.index.evictions() == {}
    assert story.index.tenant_evictions() == {}


@pytest.mark.rule("IDX-54", "IDX-55")
def test_a_policy_rates_what_is_there_at_once_in_both_directions(story: Story) -> None:
    story.given("r{p:64} age=900")
    assert_answer(story.ask(exact("p")), "PREFIX_MATCH", "r 32")
    assert_answer(story.under(policy(ttl_s=900)).ask(exact("p")), "AFFINITY_HINT", "r 0")
    assert_answer(story.under(policy(ttl_s=3600)).ask(exact("p")), "PREFIX_MATCH", "r 48")
    assert_answer(story.under(None).ask(exact("p")), "PREFIX_MATCH", "r 32")


@pytest.mark.rule("IDX-43", "IDX-48")
def test_being_alive_refreshes_no_hold(story: Story) -> None:
    story.given("r{p:64} age=900 hit=0.1").replica_updated("r").report("r", Event(1, b"p"))
    assert_answer(story.ask(exact("p")), "PREFIX_MATCH", "r 32")
