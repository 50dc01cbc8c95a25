"""What is evicted, and what is not, where no worked case says it [IDX section 14, architecture section 2]."""

from __future__ import annotations

import pytest

from inferencecache.schemas.ids import PROBE_TENANT
from inferencecache.schemas.policy import ResolvedPolicy
from inferencecache.schemas.records import Alive, Begin, Cleared, Gap, TenantQuota
from tests.oracle.logs import stored
from tests.oracle.stories import policy
from tests.oracle.story import TENANT, Story

LFU = policy(floors=(10, 0.1), lfu=True)
SHORT = policy(ttl_s=10)


@pytest.mark.rule("IDX-155", "IDX-146")
@pytest.mark.parametrize(("at_last", "kept"), [(LFU, "old,new"), (None, "young,new")])
def test_the_cap_goes_by_the_algorithm_in_force_when_it_binds(
    story: Story, at_last: ResolvedPolicy | None, kept: str
) -> None:
    story.under(LFU).given("r{old:10} age=60; r{young:10} age=30").credit("r", "old", 1)
    story.under(None).under(at_last).capped(2).given("r{new:10}")
    assert story.kept("old,young,new") == kept


@pytest.mark.rule("IDX-154")
def test_what_was_just_reported_may_be_what_the_cap_removes(story: Story) -> None:
    story.capped(1).given("r{a:64} age=10; r{late:64} age=20")
    assert story.kept("a,late") == "a"
    story.capped(0).given("r{b:64}")
    assert story.kept("a,late,b") == ""


@pytest.mark.rule("IDX-151")
def test_a_lowered_cap_waits_for_the_next_update_of_anybody(story: Story) -> None:
    story.given("r{a:64} age=20; r{b:64} age=10").capped(1).evict("r", "nothing")
    assert story.kept("a,b") == "a,b"
    story.given("q hit=0.5 tenant=other")
    assert story.kept("a,b") == "b"


@pytest.mark.rule("IDX-202", "IDX-163")
def test_a_partition_keeps_its_part_of_a_quota(story: Story) -> None:
    story.under(None, quota=3)
    story.log.budget(-1, [TenantQuota(TENANT, 2)])
    story.given("r{a:64} age=30; r{b:64} age=20; r{c:64} age=10")
    assert story.kept("a,b,c") == "b,c"
    story.under(None).given("r{d:64}")
    assert story.kept("a,b,c,d") == "b,c,d"


@pytest.mark.rule("IDX-202")
def test_a_part_that_a_division_lowers_is_kept_to_without_an_update(story: Story) -> None:
    """The update that needs the room comes to another partition."""
    story.under(None, quota=3).given("r{a:64} age=30; r{b:64} age=20; r{c:64} age=10; q{d:64} tenant=u")
    story.log.budget(-1, [TenantQuota(TENANT, 2)])
    story.sweep()
    assert story.kept("a,b,c") == "a,b,c"
    story.log.budget(-1, [TenantQuota(TENANT, 2)], division=1)
    story.sweep()
    assert story.kept("a,b,c") == "b,c"
    story.log.budget(1, [TenantQuota(TENANT, 2)], division=2)
    story.sweep()
    assert (story.keys(), story.keys(tenant="u")) == (0, 1)


def test_a_part_of_an_earlier_division_comes_too_late(story: Story) -> None:
    story.log.budget(3, division=2)
    story.log.budget(1, division=1)
    story.given("r{a:64}; r{b:64}; r{c:64}; r{d:64}")
    assert story.keys() == 3
    story.log.claim(log_epoch="another")
    story.log.budget(1)
    story.given("r{a:64}; r{b:64}; r{c:64}; r{d:64}")
    assert story.keys() == 1


@pytest.mark.rule("IDX-06", "IDX-152", "IDX-158")
def test_ties_go_by_bytes(story: Story) -> None:
    story.capped(2)
    for replica in ("\U0001f600", "r10", "r2", "\uffee"):
        story.report(replica, stored([b"p"], [64]))
    assert story.holders("p") == {"\uffee", "\U0001f600"}


@pytest.mark.rule("IDX-188", "CTL-138")
def test_the_reserved_tenant_makes_no_room_and_takes_none(story: Story) -> None:
    story.given(f"p{{pp:16}} tenant={PROBE_TENANT} age=100; r{{a:64}} age=50").capped(0).given("r{b:64}")
    assert (story.keys(), story.keys(tenant=PROBE_TENANT)) == (0, 1)


@pytest.mark.rule("IDX-190")
def test_a_probe_run_leaves_nothing_behind(story: Story) -> None:
    story.given(f"r{{a:64}}; p{{pp:16}} tenant={PROBE_TENANT}")
    story.report("p", Cleared(), tenant=PROBE_TENANT)
    assert (story.keys(), story.keys(tenant=PROBE_TENANT)) == (1, 0)


def _age(story: Story, seconds: int) -> None:
    for _ in range(seconds):
        story.log.tick()
    story.catch_up()


def test_an_alive_replica_keeps_what_it_holds_for_certain(story: Story) -> None:
    story.under(SHORT).log.sweep_interval_s = 1
    story.log.sidecar("r", "life", 1, Begin(), stored([b"before"], [64]), Gap(1), stored([b"after"], [64]))
    for sequence in range(2, 6):
        _age(story, 5)
        story.log.sidecar("r", "life", sequence, Alive())
    story.catch_up()
    assert story.kept("before,after") == "after"
    _age(story, 9)
    assert story.kept("after") == "after"
    _age(story, 1)
    assert story.keys() == 0


def test_an_alive_replica_is_the_younger_one_for_the_cap(story: Story) -> None:
    story.capped(2).log.sidecar("r", "life", 1, Begin(), stored([b"announced-once"], [64]))
    _age(story, 5)
    story.given("q{b:64}")
    _age(story, 5)
    story.log.sidecar("r", "life", 2, Alive())
    story.given("q{c:64}")
    assert story.kept("announced-once,b,c") == "announced-once,c"
