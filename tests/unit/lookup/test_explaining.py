"""An explanation gives the answer of the lookup, and every factor that led to it."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from inferencecache.core.index.explaining import explain
from inferencecache.core.index.reason import Reason
from inferencecache.core.index.request import RouteRequest
from inferencecache.core.index.routing import route
from inferencecache.core.index.single import single
from inferencecache.schemas.explanations import ExplainedReplica, Explanation
from inferencecache.schemas.ids import HashScheme, ModelId, ReplicaId, TenantId
from inferencecache.schemas.policy import ResolvedPolicy
from inferencecache.schemas.records import Begin, Stats
from tests.oracle.indexes import request_of
from tests.oracle.logs import START_US, LogWriter, stored
from tests.oracle.model import NaiveFold
from tests.oracle.random_log import RandomLog
from tests.oracle.view import NaiveView


def domain() -> NaiveView:
    """r1 holds 640 tokens of `shared` under pressure, r2 64 of something else, r3 began and holds nothing."""
    log = LogWriter()
    log.claim()
    log.tick(0)
    log.report("r1", stored([b"shared"], [640]), Stats(pressure=0.25))
    log.report("r2", stored([b"a"], [64]))
    log.sidecar("r3", "i", 1, Begin(scheme=HashScheme("vllm")))
    fold = NaiveFold()
    for message in log.messages:
        fold.fold(message)
    return NaiveView(fold)


DOMAIN = domain()


def ask(
    work: dict[str, float], policy: ResolvedPolicy | None = None, now_us: int = START_US, **fields: Any
) -> Explanation:
    request = RouteRequest(TenantId("t"), ModelId("m"), HashScheme("vllm"), **fields)
    assigned = {ReplicaId(replica): tokens for replica, tokens in work.items()}
    return explain(DOMAIN, policy, request, now_us, assigned)


def test_every_factor_of_a_match_and_its_penalty_are_given() -> None:
    why = ask({"r1": 300.0, "r2": 100.0}, prefix_hash=b"shared", prefix_token_count=700, ttft_ms=100)
    assert (why.reason, why.gate, why.prompt_tokens, why.load_weight) == ("PREFIX_MATCH", "", 700, 0.5)
    assert (why.minimum_matched_tokens, why.routing_floor_score, why.ttl_ms) == (64, 0.1, 1_800_000)
    assert why.replicas[0] == ExplainedReplica(
        ReplicaId("r1"),
        rank=1,
        matched_tokens=640,
        tier=1,
        value=640,
        freshness=1.0,
        pressure_factor=0.75,
        slo_bias=2.0,
        distinguishing_power=0.5,
        unbalanced_score=480.0,
        work_tokens=300.0,
        penalty=150.0,
        score=330.0,
    )
    others = [
        (each.replica, each.member, each.rank, each.work_tokens, each.penalty) for each in why.replicas[1:]
    ]
    assert others == [("r2", True, 0, 100.0, 50.0), ("r3", False, 0, 0.0, 0.0)]


def test_the_setting_that_kept_a_match_back_is_named() -> None:
    swamped = ask({"r1": 9000.0}, prefix_hash=b"shared")
    assert (swamped.reason, swamped.gate) == ("AFFINITY_HINT", "routingFloorScore")
    (matching,) = [each for each in swamped.replicas if each.matched_tokens]
    assert (matching.replica, matching.rank, matching.penalty) == ("r1", 0, 4500.0)
    assert matching.score == matching.unbalanced_score - 4500.0
    assert swamped.replicas[0].rank == 1
    high = ResolvedPolicy("t", minimum_matched_tokens=641)
    assert ask({}, high, prefix_hash=b"shared").gate == "minimumMatchedTokens"
    small = ResolvedPolicy("t", minimum_prefix_tokens=701)
    assert ask({}, small, prefix_hash=b"shared", prefix_token_count=700).gate == "minimumPrefixTokens"
    assert ask({}, prefix_hash=b"new").gate == ""


def test_where_load_does_not_count_no_work_is_shown() -> None:
    off = ResolvedPolicy("t", load_balancing=False)
    why = ask({"r1": 9000.0}, off, prefix_hash=b"shared")
    assert not why.load_balancing
    assert [(each.replica, each.work_tokens, each.penalty) for each in why.replicas] == [
        ("r1", 0.0, 0.0),
        ("r2", 0.0, 0.0),
    ]


@settings(max_examples=12)
@given(random=st.randoms(use_true_random=False), messages=st.integers(0, 40))
def test_the_explained_answer_is_the_answer_and_its_factors_give_its_scores(
    random: Random, messages: int
) -> None:
    log = RandomLog(random)
    fold = NaiveFold()
    for _ in range(messages):
        fold.fold(log.message())
    view = NaiveView(fold)
    for _ in range(5):
        question = log.question()
        policy = log.policy(question.tenant)
        now_us = view.time_us + log.later_us()
        request = request_of(question, 8)
        work = {replica: random.uniform(0, 500) for replica in view.members(question.scope)}
        decision = route(view, policy, request, now_us, work)
        why = explain(view, policy, request, now_us, work)
        named = [each for each in why.replicas if each.rank]
        assert why.reason == decision.reason.value
        assert [each.replica for each in named] == [score.replica for score in decision.scores]
        if decision.reason is not Reason.AFFINITY_HINT:
            assert [each.score for each in named] == [score.score for score in decision.scores]
        for each in why.replicas:
            if each.value and why.reason != "TENANT_HOT":
                assert each.score == single(each.unbalanced_score - each.penalty)
