"""Assigned work spreads a hot prefix, and where all are equal it changes nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferencecache.core.index.reason import Reason
from inferencecache.core.index.request import RouteRequest
from inferencecache.core.index.routing import Decision, route
from inferencecache.core.index.work import Assigned, AssignedWork, least_busy, penalties
from inferencecache.schemas.ids import HashScheme, ModelId, ReplicaId, TenantId
from inferencecache.schemas.policy import ResolvedPolicy
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
    answer = ask({R1: 5000.0, R2: 800.0, R3: 10.0}, prefix_hash=b"shared")
    assert (answer.reason, [score.replica for score in answer.scores]) == (Reason.AFFINITY_HINT, [R3])
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
