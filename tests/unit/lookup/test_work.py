"""Assigned work spreads a hot prefix, and where all are equal it changes nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferencecache.core.index.pairs import Narrowed
from inferencecache.core.index.reading import Scope
from inferencecache.core.index.reason import Reason
from inferencecache.core.index.request import MAX_TOKENS, RouteRequest
from inferencecache.core.index.routing import Decision, route
from inferencecache.core.index.work import MEAN_OVER, Assigned, AssignedWork, least_busy, penalties
from inferencecache.schemas.deltas import StatsRow
from inferencecache.schemas.ids import HashScheme, ModelId, ReplicaId, TenantId
from inferencecache.schemas.policy import ResolvedPolicy
from inferencecache.schemas.records import Begin, Stats
from tests.oracle.logs import START_US, LogWriter, stored
from tests.oracle.model import NaiveFold
from tests.oracle.view import NaiveView

TENANT, MODEL = TenantId("t"), ModelId("m")
R1, R2, R3 = ReplicaId("r1"), ReplicaId("r2"), ReplicaId("r3")


def assigned(replica: ReplicaId, tokens: float) -> Assigned:
    return Assigned(TENANT, MODEL, replica, tokens)


def test_work_decays_to_a_share_of_1_over_e_in_one_decay_time() -> None:
    work = AssignedWork(10.0)
    work.assign(assigned(R1, 1000), 100.0)
    work.assign(assigned(R1, 1000), 110.0)
    assert work.of(TENANT, MODEL, 110.0)[R1] == pytest.approx(1000 + 1000 / math.e)


def test_another_model_has_work_of_its_own() -> None:
    work = AssignedWork()
    work.assign(assigned(R1, 1000), 0.0)
    assert work.of(TENANT, ModelId("other"), 0.0) == {}


def test_what_has_decayed_to_nothing_is_forgotten() -> None:
    work = AssignedWork(1.0)
    work.assign(assigned(R1, 1000), 0.0)
    assert work.of(TENANT, MODEL, 60.0) == {}
    assert list(work.everything(0.0)) == []


def test_only_what_this_process_assigned_is_shared_and_only_once() -> None:
    work = AssignedWork()
    work.assign(assigned(R1, 10), 0.0)
    work.assign(assigned(R1, 5), 0.0)
    work.hear(assigned(R2, 7), 0.0)
    assert work.take_unshared() == [assigned(R1, 15)]
    assert work.take_unshared() == []


@pytest.mark.parametrize("tokens", [0.0, -5.0, math.nan, math.inf])
def test_no_work_or_nonsense_from_another_router_is_ignored(tokens: float) -> None:
    work = AssignedWork()
    work.hear(assigned(R1, tokens), 0.0)
    assert work.of(TENANT, MODEL, 0.0) == {}


def test_however_long_a_caller_says_its_prompt_is_a_hint_assigns_a_bearable_amount() -> None:
    work = AssignedWork()
    work.assign(assigned(R1, 2.0**31), 0.0)
    assert work.of(TENANT, MODEL, 0.0) == {R1: MAX_TOKENS}
    assert work.take_unshared() == [assigned(R1, MAX_TOKENS)]
    assert believed(work, 0.0, r2=busy(waiting=1))[R2] == MAX_TOKENS


def test_work_stays_a_number_that_decays_whatever_other_routers_say() -> None:
    work = AssignedWork()
    for _ in range(3):
        work.hear(assigned(R1, 1.7e308), 0.0)
    assert math.isfinite(work.of(TENANT, MODEL, 0.0)[R1])
    assert work.of(TENANT, MODEL, 600.0) == {}


def test_the_penalty_is_the_weighted_extra_over_the_least_busy_member() -> None:
    work = {R1: 300.0, R2: 100.0}
    assert penalties(work, [R1, R2], 0.5) == {R1: 100.0}
    assert penalties(work, [R1, R2, R3], 0.5) == {R1: 150.0, R2: 50.0}
    assert penalties(work, [R1, R2], 0.0) == {}


@given(st.floats(0, 1e9), st.integers(1, 5))
def test_equal_work_changes_nothing(tokens: float, count: int) -> None:
    members = [ReplicaId(f"r{number}") for number in range(count)]
    work = dict.fromkeys(members, tokens)
    assert penalties(work, members, 0.5) == {}
    assert list(least_busy(work, members)) == members


def test_members_within_one_percent_of_the_least_work_are_equally_idle() -> None:
    assert least_busy({R1: 100.0, R2: 101.0, R3: 102.0}, [R1, R2, R3]) == [R1, R2]
    assert least_busy({R1: 100.0}, [R1, R2, R3]) == [R2, R3]


def busy(*, waiting: int = 0, running: int = 0, pressure: float = 0.0, reported_s: float = 0.0) -> StatsRow:
    return StatsRow(
        requests_waiting=waiting,
        requests_running=running,
        pressure=pressure,
        reported_us=START_US + round(reported_s * 1e6),
    )


def believed(work: AssignedWork, now_s: float, **stats: StatsRow) -> Mapping[ReplicaId, float]:
    """What is believed at `now_s`, which is also the log time since `START_US`."""
    rows = {ReplicaId(replica): row for replica, row in stats.items()}
    return work.believed(TENANT, MODEL, now_s, rows, START_US + round(now_s * 1e6))


def test_each_waiting_request_counts_as_one_of_mean_size() -> None:
    work = AssignedWork()
    for tokens in (100, 200, 600):
        work.assign(assigned(R1, tokens), 0.0)
    assert believed(work, 0.0, r2=busy(waiting=2)) == {R1: 900, R2: 2 * 300}
    assert believed(work, 0.0, r1=busy(waiting=3), r2=busy(running=5)) == {R1: 900 + 3 * 300}


def test_the_mean_is_of_what_this_router_assigned_lately() -> None:
    work = AssignedWork()
    work.hear(assigned(R1, 5000), 0.0)
    assert believed(work, 0.0, r1=busy(waiting=1)) == {R1: 5000}
    for _ in range(MEAN_OVER):
        work.assign(assigned(R2, 1), 0.0)
    for _ in range(10 * MEAN_OVER):
        work.assign(assigned(R2, 101), 0.0)
    more = believed(work, 0.0, r1=busy(waiting=1))[R1] - 5000
    assert more == pytest.approx(101, abs=0.1)


def test_a_replica_that_is_idle_at_two_scrapes_in_a_row_has_half_its_work_done() -> None:
    work = AssignedWork(math.inf)
    work.assign(assigned(R1, 800), 0.0)
    assert believed(work, 10.0, r1=busy(reported_s=10)) == {R1: 800}, "once is chance"
    assert believed(work, 11.0, r1=busy(reported_s=10)) == {R1: 800}, "the same scrape again"
    assert believed(work, 20.0, r1=busy(reported_s=20)) == {R1: 400}
    assert believed(work, 21.0, r1=busy(reported_s=20)) == {R1: 400}
    assert believed(work, 30.0, r1=busy(reported_s=30)) == {R1: 200}
    assert believed(work, 40.0, r1=busy(reported_s=40, running=1)) == {R1: 200}
    assert believed(work, 50.0, r1=busy(reported_s=50)) == {R1: 200}, "busy in between"


@pytest.mark.parametrize("row", [busy(running=1), busy(waiting=1), busy(pressure=0.1)], ids=str)
def test_a_replica_with_any_load_is_not_idle(row: StatsRow) -> None:
    work = AssignedWork(math.inf)
    work.hear(assigned(R1, 800), 0.0)
    for scrape in (1, 2, 3):
        at_us = START_US + scrape * 10_000_000
        assert believed(work, 10.0 * scrape, r1=msgspec.structs.replace(row, reported_us=at_us)) == {R1: 800}


def test_statistics_that_are_absent_or_old_change_nothing() -> None:
    work = AssignedWork(math.inf)
    work.assign(assigned(R1, 800), 0.0)
    assert believed(work, 0.0) == {R1: 800}
    assert believed(work, 30.0, r1=busy(waiting=9), r2=busy(waiting=9)) == {R1: 800}
    for scrape in (40, 50, 60):
        assert believed(work, scrape + 30.0, r1=busy(reported_s=scrape)) == {R1: 800}


def test_without_assigned_work_statistics_make_none() -> None:
    assert believed(AssignedWork(), 0.0, r1=busy(waiting=9)) == {}


def test_whoever_shares_work_is_told_that_there_is_some() -> None:
    told: list[str] = []
    work = AssignedWork()
    work.on_assigned = lambda: told.append("assigned")
    work.hear(assigned(R1, 10), 0.0)
    assert told == []
    work.assign(assigned(R1, 10), 0.0)
    assert told == ["assigned"]


def fleet() -> NaiveView:
    """Three replicas; `shared`, 640 tokens, is on r1 alone."""
    log = LogWriter()
    log.claim()
    log.tick(0)
    log.report("r1", stored([b"shared"], [640]))
    log.report("r2", stored([b"a"], [64]))
    log.report("r3", stored([b"b"], [64]))
    fold = NaiveFold()
    for message in log.messages:
        fold.fold(message)
    return NaiveView(fold)


FLEET = fleet()


def ask(work: dict[ReplicaId, float], policy: ResolvedPolicy | None = None, **fields: Any) -> Decision:
    request = RouteRequest(TENANT, MODEL, HashScheme("vllm"), **fields)
    return route(FLEET, policy, request, START_US, work)


def test_a_match_wins_while_its_replica_is_not_much_busier_than_the_rest() -> None:
    assert ask({}, prefix_hash=b"shared").scores[0].score == pytest.approx(640 * 2 / 3, abs=0.01)
    answer = ask({R1: 200.0}, prefix_hash=b"shared")
    assert (answer.reason, answer.scores[0].replica) == (Reason.PREFIX_MATCH, R1)
    assert answer.scores[0].score == pytest.approx(640 * 2 / 3 - 100, abs=0.01)


def test_a_match_on_a_swamped_replica_gives_way_to_the_least_busy_one() -> None:
    for least, other in ((R2, R3), (R3, R2)):
        answer = ask({R1: 5000.0, other: 800.0, least: 10.0}, prefix_hash=b"shared")
        assert (answer.reason, [score.replica for score in answer.scores]) == (Reason.AFFINITY_HINT, [least])
        assert answer.scores[0].score == 0


def test_a_policy_may_switch_balancing_off_or_weigh_it() -> None:
    busy = {R1: 5000.0}
    off = ResolvedPolicy("t", load_balancing=False)
    assert ask(busy, off, prefix_hash=b"shared") == ask({}, off, prefix_hash=b"shared")
    light = ResolvedPolicy("t", load_weight=0.01)
    assert ask(busy, light, prefix_hash=b"shared").scores[0].score == pytest.approx(
        640 * 2 / 3 - 50, abs=0.01
    )


def test_a_hint_costs_the_tokens_that_its_first_replica_does_not_hold() -> None:
    chain: dict[str, Any] = {"block_hashes": [b"shared", b"new"], "block_token_counts": [640, 360]}
    assert ask({}, **chain).uncached_tokens == 360
    assert ask({R1: 50_000.0}, **chain).uncached_tokens == 1000
    assert ask({}, prefix_hash=b"new", prefix_token_count=70).uncached_tokens == 70
    assert ask({}, token_ids=range(3)).uncached_tokens == 0


def cold_domain() -> NaiveView:
    """r1 alone holds; r2 began for the same scheme, r3 for another, r4 long ago, r5 speaks gRPC."""
    log = LogWriter()
    log.claim()
    log.tick(0)
    log.sidecar("r4", "i", 1, Begin(scheme=HashScheme("vllm")))
    for _ in range(60):
        log.tick()
    log.report("r1", stored([b"shared"], [640]))
    log.sidecar("r2", "i", 1, Begin(scheme=HashScheme("vllm")))
    log.sidecar("r3", "i", 1, Begin(scheme=HashScheme("sglang")))
    log.report("r5", Stats())
    fold = NaiveFold()
    for message in log.messages:
        fold.fold(message)
    return NaiveView(fold)


COLD = cold_domain()
COLD_US = START_US + 60_000_000


def ask_cold(work: dict[ReplicaId, float], hash_: bytes) -> Decision:
    return route(
        COLD, None, RouteRequest(TENANT, MODEL, HashScheme("vllm"), prefix_hash=hash_), COLD_US, work
    )


def test_the_only_member_of_a_domain_is_compared_with_those_that_began_and_hold_nothing() -> None:
    assert [score.score for score in ask_cold({R1: 400.0}, b"shared").scores] == [640 - 200]
    swamped = ask_cold({R1: 4000.0}, b"shared")
    assert (swamped.reason, swamped.scores[0].replica) == (Reason.AFFINITY_HINT, R2)
    assert ask_cold({R1: 1.0}, b"new").scores[0].replica == R2


@pytest.mark.rule("IDX-86", "IDX-104")
def test_without_work_those_that_hold_nothing_are_no_candidates() -> None:
    assert [score.score for score in ask_cold({}, b"shared").scores] == [640]
    assert ask_cold({}, b"new").scores[0].replica == R1
    assert ask_cold({R3: 400.0}, b"new") == ask_cold({}, b"new"), "r3 is of another domain"


def test_of_a_pool_only_its_own_newcomers_count() -> None:
    scope = Scope(TENANT, MODEL, HashScheme("vllm"))
    assert COLD.newcomers(scope, START_US) == [R2]
    assert Narrowed(COLD, [R1, R2]).newcomers(scope, START_US) == [R2]
    assert Narrowed(COLD, [R1, R3]).newcomers(scope, START_US) == []
    assert Narrowed(COLD, [R2]).members(scope) == [R2], "none of the pool holds anything, so all are members"
    assert Narrowed(COLD, [R2]).newcomers(scope, START_US) == []


def hot_fleet() -> NaiveView:
    """r1 serves nine tenths of its prompts from its cache, r2 half, r3 says nothing."""
    log = LogWriter()
    log.claim()
    log.tick(0)
    log.report("r1", stored([b"a"], [64]), Stats(hit_rate=0.9))
    log.report("r2", stored([b"b"], [64]), Stats(hit_rate=0.5))
    log.report("r3", stored([b"c"], [64]))
    fold = NaiveFold()
    for message in log.messages:
        fold.fold(message)
    return NaiveView(fold)


HOT = hot_fleet()


def ask_hot(work: dict[ReplicaId, float], tokens: int = 1000) -> Decision:
    request = RouteRequest(TENANT, MODEL, HashScheme("vllm"), prefix_hash=b"new", prefix_token_count=tokens)
    return route(HOT, None, request, START_US, work)


def test_a_good_hit_rate_is_worth_its_share_of_the_prompt() -> None:
    assert [score.replica for score in ask_hot({}).scores] == [R1, R2]
    loaded = ask_hot({R1: 1000.0})
    assert [score.replica for score in loaded.scores] == [R2, R1]
    assert loaded.scores[1].score == pytest.approx(0.9 - 0.5 * 1000 / 1000)


@pytest.mark.rule("IDX-98")
def test_where_load_outweighs_every_good_hit_rate_the_least_busy_replica_is_taken() -> None:
    swamped = ask_hot({R1: 9000.0, R2: 9000.0})
    assert (swamped.reason, swamped.scores[0].replica) == (Reason.AFFINITY_HINT, R3)
    unknown_size = ask_hot({R1: 9000.0, R2: 9000.0}, tokens=0)
    assert unknown_size == ask_hot({}, tokens=0), "what a prompt of no known size loses cannot be weighed"
