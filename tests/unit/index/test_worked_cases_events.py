"""Worked cases of events and statistics, as the rules print them [IDX section 22.3]."""

from __future__ import annotations

import pytest

from inferencecache.schemas.ids import ReplicaId
from inferencecache.schemas.records import Event, Stats
from tests.oracle.stories import assert_answer, exact, policy
from tests.oracle.story import Story


@pytest.mark.rule("IDX-W41", "IDX-44", "IDX-47", "IDX-50")
@pytest.mark.parametrize("scheme", ["vllm", "sglang"])
def test_an_eviction_and_a_clear_leave_other_replicas_alone(story: Story, scheme: str) -> None:
    story.given(f"r1{{p1:64, p2:64}} scheme={scheme}; r2{{p1:64}} scheme={scheme}")
    story.evict("r1", "p1")
    assert story.holders("p1", scheme=scheme) == {"r2"}
    assert story.holders("p2", scheme=scheme) == {"r1"}
    story.clear("r1")
    assert story.holders("p1", scheme=scheme) == {"r2"}
    assert story.holders("p2", scheme=scheme) == set()
    assert story.keys() == 1


@pytest.mark.rule("IDX-W41", "IDX-44", "WIRE-101")
def test_an_eviction_removes_a_hash_under_every_scheme(story: Story) -> None:
    story.given("r1{p:64, q:64}; r1{p:64, q:64} scheme=sglang; r2{p:64} scheme=sglang")
    story.evict("r1", "p")
    assert story.holders("p") == set()
    assert story.holders("p", scheme="sglang") == {"r2"}
    assert story.holders("q") == story.holders("q", scheme="sglang") == {"r1"}
    story.clear("r1")
    assert story.holders("q") == story.holders("q", scheme="sglang") == set()


@pytest.mark.rule("IDX-W42", "IDX-45", "WIRE-C28")
def test_an_eviction_names_one_adapter_or_all(story: Story) -> None:
    both = "r{p:64} adapter=sql-lora; r{p:64}"
    story.given(both).evict("r", "p", adapter="sql-lora")
    assert story.holders("p", adapter="sql-lora") == set()
    assert story.holders("p") == {"r"}
    story.given(both).evict("r", "p")
    assert story.holders("p", adapter="sql-lora") == story.holders("p") == set()


@pytest.mark.rule("IDX-W42", "IDX-45", "WIRE-C28")
def test_an_eviction_in_an_adapter_reaches_it_under_every_scheme(story: Story) -> None:
    story.given("r{p:64} adapter=a; r{p:64} adapter=a scheme=sglang; r{p:64} adapter=b scheme=sglang")
    story.evict("r", "p", adapter="a")
    assert story.holders("p", adapter="a") == story.holders("p", adapter="a", scheme="sglang") == set()
    assert story.holders("p", adapter="b", scheme="sglang") == {"r"}


@pytest.mark.rule("IDX-W43", "IDX-12", "IDX-47")
def test_a_clear_takes_the_replica_out_of_one_model_under_every_scheme(story: Story) -> None:
    story.given("r{p:64} model=m1 hit=0.5; r{s:64} model=m1 scheme=sglang; r{p:64} model=m2 hit=0.6")
    story.given("r2{p:64} model=m1").clear("r", model="m1")
    assert story.holders("p", model="m1") == {"r2"}
    assert story.holders("s", model="m1", scheme="sglang") == set()
    assert story.holders("p", model="m2") == {"r"}
    assert dict(story.index.stats("t", "m1")) == {}
    assert list(story.index.stats("t", "m2")) == ["r"]


@pytest.mark.rule("IDX-W44", "IDX-34", "IDX-49")
def test_a_report_after_an_eviction_counts_whatever_its_time(story: Story) -> None:
    story.given("r{p:64} age=10").evict("r", "p")
    assert story.holders("p") == set()
    story.given("r{p:64} age=100")
    assert story.holders("p") == {"r"}


@pytest.mark.rule("IDX-W45", "IDX-48", "IDX-81", "IDX-149", "WIRE-C41")
def test_an_event_keeps_statistics_alive_but_makes_them_no_younger(story: Story) -> None:
    story.under(policy(ttl_s=600)).given("r{p:50} pressure=0.9 hit=0.9 age=1000")
    story.replica_updated("r", age_s=410).sweep()
    story.given("r{p:100}")
    assert list(story.index.stats("t", "m")) == ["r"]
    assert_answer(story.ask(exact("p")), "PREFIX_MATCH", "r 100")
    assert_answer(story.ask(exact("novel")), "AFFINITY_HINT", "r 0")


@pytest.mark.rule("IDX-W45", "IDX-149")
def test_statistics_that_nothing_keeps_alive_are_swept(story: Story) -> None:
    story.under(policy(ttl_s=600)).given("r{p:50} hit=0.9 age=600").sweep()
    assert dict(story.index.stats("t", "m")) == {}


@pytest.mark.rule("IDX-48", "WIRE-102")
def test_an_event_makes_no_statistics_and_no_hold(story: Story) -> None:
    story.replica_updated("r")
    assert dict(story.index.stats("t", "m")) == {}
    assert story.keys() == 0


@pytest.mark.rule("IDX-43", "WIRE-C42")
@pytest.mark.parametrize("type_", [0, 1, 77])
def test_other_events_change_nothing(story: Story, type_: int) -> None:
    story.given("r{p:64} age=900").report("r", Event(type_, b"q"), Event(type_, b"p"))
    assert story.keys() == 1
    assert_answer(story.ask(exact("p")), "PREFIX_MATCH", "r 32")


@pytest.mark.rule("IDX-W46", "IDX-40", "WIRE-C34")
def test_statistics_that_are_no_numbers_are_zero(story: Story) -> None:
    story.report("r", Stats(hit_rate=float("nan"), pressure=float("inf")))
    row = story.index.stats("t", "m")[ReplicaId("r")]
    assert (row.hit_rate, row.pressure) == (0, 0)


@pytest.mark.rule("IDX-38", "IDX-40", "WIRE-096")
def test_statistics_replace_the_row_as_a_whole(story: Story) -> None:
    story.report("r", Stats(cache_memory_bytes=5, hit_rate=0.5, t2_hit_tokens=7, t2_query_tokens=9))
    story.report("r", Stats(pressure=1.75))
    row = story.index.stats("t", "m")[ReplicaId("r")]
    assert (row.cache_memory_bytes, row.hit_rate, row.t2_hit_tokens, row.t2_query_tokens) == (0, 0, 0, 0)
    assert row.pressure == 1.75
