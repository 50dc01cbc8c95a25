"""Worked cases of eviction and its counters, as the rules print them [IDX section 22.6]."""

from __future__ import annotations

from typing import Any

import pytest

from inferencecache.schemas.ids import PROBE_TENANT, TenantId
from inferencecache.schemas.records import TenantPolicy
from tests.oracle.stories import assert_answer, chain, exact, policy
from tests.oracle.story import Story

LFU = policy(floors=(10, 0.1), lfu=True)


@pytest.mark.rule("IDX-W64", "IDX-157", "IDX-164")
def test_a_quota_keeps_the_newest_keys(story: Story) -> None:
    story.under(None, quota=3)
    for minute, key in enumerate("abcde"):
        story.given(f"r{{{key}:64}} age={240 - 60 * minute}")
    assert story.kept("a,b,c,d,e") == "c,d,e"
    assert story.index.tenant_evictions() == {"t": 2}
    assert story.index.evictions() == {}


@pytest.mark.rule("IDX-W65", "IDX-158", "IDX-159")
def test_a_key_leaves_with_all_its_holders_and_counts_once(story: Story) -> None:
    story.under(None, quota=2)
    story.given("r1{a:64} age=180; r2{a:64} age=120; r1{b:64} age=60; r1{c:64}")
    assert story.kept("a,b,c") == "b,c"
    assert story.index.tenant_evictions() == {"t": 1}


@pytest.mark.rule("IDX-W65", "IDX-158")
@pytest.mark.parametrize(
    "holders", ["r1{a:64} age=180; r2{a:64} age=90", "r2{a:64} age=90; r1{a:64} age=180"]
)
def test_a_key_is_as_young_as_its_freshest_holder(story: Story, holders: str) -> None:
    story.under(None, quota=2).given(f"{holders}; r1{{b:64}} age=120; r1{{c:64}}")
    assert story.kept("a,b,c") == "a,c"
    assert story.holders("a") == {"r1", "r2"}


@pytest.mark.rule("IDX-W66", "IDX-160")
def test_a_late_report_may_lose_its_own_keys(story: Story) -> None:
    story.under(None, quota=2).given("r{x:64, y:64} age=100; r{late:64} age=150")
    assert story.kept("x,y,late") == "x,y"


@pytest.mark.rule("IDX-W67", "IDX-158")
@pytest.mark.parametrize(
    ("larger", "smaller"),
    [
        ("p:64} model=m2", "p:64} model=m1"),
        ("p:64} scheme=vllm-b", "p:64} scheme=vllm-a"),
        ("p:64} adapter=lora-b", "p:64} adapter=lora-a"),
        ("p2:64}", "p1:64}"),
        ("8-bytes2:64}", "8-bytes1:64}"),
    ],
)
def test_of_keys_of_one_age_the_smaller_leaves(story: Story, larger: str, smaller: str) -> None:
    story.under(None, quota=1).given(f"r{{{larger} age=10").given(f"r{{{smaller} age=10")
    fields: dict[str, Any] = dict(item.split("=") for item in larger.split()[1:])
    kept = exact(larger.partition(":")[0], **fields)
    assert story.ask_index(kept).reason == "PREFIX_MATCH"
    assert story.index.tenant_evictions() == {"t": 1}


@pytest.mark.rule("IDX-W68", "IDX-116", "IDX-161", "IDX-164")
@pytest.mark.parametrize("others", [True, False])
def test_a_quota_of_nothing_keeps_statistics_only(story: Story, others: bool) -> None:
    story.under(None, quota=0)
    if others:
        story.given("r{z:64} tenant=other")
    story.given("r{a:100} hit=0.5")
    assert_answer(story.ask(exact("a")), "UNKNOWN_TENANT" if others else "NO_HINT")
    assert story.index.tenant_evictions() == {"t": 1}
    assert list(story.index.stats("t", "m")) == ["r"]


@pytest.mark.rule("IDX-162")
def test_a_lowered_quota_waits_for_the_next_update_of_its_tenant(story: Story) -> None:
    story.given("r{a:64} age=20; r{b:64} age=10").under(None, quota=1)
    story.given("r{z:64} tenant=other").evict("r", "nothing")
    assert story.kept("a,b") == "a,b"
    story.given("r hit=0.5")
    assert story.kept("a,b") == "b"


@pytest.mark.rule("IDX-163", "IDX-188")
@pytest.mark.parametrize("tenant", [TenantId(""), PROBE_TENANT])
def test_no_quota_binds_the_empty_and_the_reserved_tenant(story: Story, tenant: TenantId) -> None:
    story.apply(quotas={tenant: 0}).given(f"r{{a:64}} tenant={tenant}")
    assert story.keys(tenant=tenant) == 1


@pytest.mark.rule("IDX-W69", "IDX-151", "IDX-153", "IDX-156")
def test_over_the_cap_the_oldest_leaves(story: Story) -> None:
    story.capped(2).given("r{old:64} age=120; r{mid:64} age=60; r{new:64}")
    assert story.kept("old,mid,new") == "mid,new"
    assert story.index.evictions() == {("lru", "cap"): 1}


@pytest.mark.rule("IDX-W70", "IDX-154")
def test_the_cap_counts_each_holder_of_a_key(story: Story) -> None:
    story.capped(2).given("r1{p:64} age=120; r2{p:64} age=60; r3{p:64}")
    assert story.holders("p") == {"r2", "r3"}
    assert story.keys() == 1
    assert story.index.evictions() == {("lru", "cap"): 1}


@pytest.mark.rule("IDX-W71", "IDX-152", "IDX-153")
def test_over_the_cap_the_least_used_leaves_before_the_oldest(story: Story) -> None:
    story.under(LFU).capped(3)
    story.given("r{hot:10} age=180; r{warm:10} age=120; r{cold:10} age=60")
    story.credit("r", "hot", 5).credit("r", "warm", 2).given("r{new:10}")
    assert story.kept("hot,warm,cold,new") == "hot,warm,new"
    assert story.index.evictions() == {("lfu", "cap"): 1}


@pytest.mark.rule("IDX-W72", "IDX-152", "IDX-156")
def test_what_an_lru_tenant_holds_counts_as_never_used(story: Story) -> None:
    lfu = TenantPolicy(TenantId("x"), lfu=True)
    story.apply(lfu).capped(2).given("r{x:64} tenant=x age=120; r{y:64} tenant=y age=60")
    story.credit("r", "x", 1, tenant="x").credit("r", "y", 9, tenant="y").given("r{w:64} tenant=x")
    assert [story.keys(tenant=tenant) for tenant in ("x", "y")] == [2, 0]
    assert story.index.evictions() == {("lru", "cap"): 1}


@pytest.mark.rule("IDX-W73", "IDX-152")
def test_a_replica_that_served_nothing_loses_its_first_block_first(story: Story) -> None:
    story.under(policy(lfu=True)).capped(6).given("rB[b1,b2]x16 age=10; rA[b1..b4]x16")
    answer = story.ask(chain("b1..b4", 16))
    assert_answer(answer, "PREFIX_MATCH", "rA 32 matched=64")
    story.credit("rA", "b1..b4", 3).given("rC{z:16}")
    assert story.holders("b1") == {"rA"}
    assert story.holders("b2") == {"rA", "rB"}


@pytest.mark.rule("IDX-33", "IDX-146")
def test_accesses_outlive_a_refresh_but_not_a_removal(story: Story) -> None:
    story.under(LFU).capped(2).given("r{a:10} age=60; r{b:10} age=50").credit("r", "a,b", 5)
    story.given("r{a:10} age=40").evict("r", "b").given("r{b:10}").given("r{c:10}")
    assert story.kept("a,b,c") == "a,c"


@pytest.mark.rule("IDX-W75", "IDX-188")
def test_the_reserved_tenant_is_outside_the_cap(story: Story) -> None:
    story.capped(1).given(f"r{{rp:64}} age=10; p{{pp:64}} tenant={PROBE_TENANT}")
    assert (story.keys(), story.keys(tenant=PROBE_TENANT)) == (1, 1)
    assert story.index.evictions() == {}


@pytest.mark.rule("IDX-W76", "IDX-148", "IDX-150")
def test_a_sweep_removes_what_has_expired_and_counts_it(story: Story) -> None:
    story.given("r{p:64} age=1800").sweep()
    assert story.keys() == 0
    assert story.index.evictions() == {("lru", "ttl"): 1}


@pytest.mark.rule("IDX-148", "IDX-188")
def test_a_sweep_reaches_the_reserved_tenant_too(story: Story) -> None:
    story.given(f"p{{pp:16}} tenant={PROBE_TENANT} age=1800").sweep()
    assert story.keys(tenant=PROBE_TENANT) == 0
