"""The decision table, row by row, and against the naive model on random states."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inferencecache.core.fingerprint import prefix_digests
from inferencecache.core.index.joined import NOTHING
from inferencecache.core.index.reason import Reason
from inferencecache.core.index.request import RouteRequest
from inferencecache.core.index.routing import UNANSWERED, Decision, needs_tokens, route
from inferencecache.schemas.ids import PROBE_TENANT
from inferencecache.schemas.policy import ResolvedPolicy
from inferencecache.schemas.records import AnyRecord, Stats
from tests.oracle.indexes import product_route
from tests.oracle.logs import START_US, LogWriter, stored
from tests.oracle.model import NaiveFold
from tests.oracle.routing import Question, naive_route
from tests.oracle.view import NaiveView

NOW_US = START_US
TEXT = {"prompt_text": "hi", "prompt_tokens": range(32)}


def view_of(*reports: tuple[str, tuple[AnyRecord, ...]], **keys: str) -> NaiveView:
    log = LogWriter()
    log.claim()
    log.tick(0)
    for replica, records in reports:
        log.report(replica, *records, **keys)
    fold = NaiveFold()
    for message in log.messages:
        fold.fold(message)
    return NaiveView(fold)


WARM = view_of(
    ("r1", (stored([b"p"], [128]), stored(prefix_digests(range(32), 16), [16, 32]))),
    ("r2", (stored([b"q"], [64]), Stats(hit_rate=0.9))),
)


def ask(policy: ResolvedPolicy | None = None, **fields: Any) -> Decision:
    keys: dict[str, Any] = {"tenant": "t", "model": "m", "scheme": "vllm"}
    return route(WARM, policy, RouteRequest(**keys | fields), NOW_US)


def policy(**fields: Any) -> ResolvedPolicy:
    defaults: dict[str, Any] = {"minimum_matched_tokens": 64, "routing_floor_score": 0.1}
    return ResolvedPolicy(namespace="t", **defaults | fields)


@pytest.mark.rule("IDX-189", "WIRE-042")
def test_step_1_the_reserved_tenant_gets_no_hint_before_anything_else() -> None:
    assert ask(policy(require_chain=True), tenant=PROBE_TENANT, prefix_hash=b"p") == UNANSWERED


@pytest.mark.rule("WIRE-056", "WIRE-057", "WIRE-135")
@pytest.mark.parametrize(
    "fields",
    [{"prefix_hash": b"p"}, {"token_ids": range(32)}, TEXT, {"block_hashes": [b"x"]}, {"scheme": ""}],
)
def test_step_3_a_required_chain_must_be_sent_as_such(fields: dict[str, Any]) -> None:
    assert ask(policy(require_chain=True), **fields) == Decision(Reason.POLICY_REQUIRES_CHAIN)
    chain = {"block_hashes": [b"p"], "block_token_counts": [16]}
    assert ask(policy(require_chain=True), **fields | chain).reason is not Reason.POLICY_REQUIRES_CHAIN


@pytest.mark.rule("WIRE-042", "WIRE-056", "WIRE-057")
def test_text_is_tokenized_only_for_a_call_that_comes_to_its_input() -> None:
    def asks(under: ResolvedPolicy | None = None, **fields: Any) -> bool:
        keys: dict[str, Any] = {"tenant": "t", "model": "m", "scheme": "vllm", "prompt_text": "hi"}
        return needs_tokens(under, RouteRequest(**keys | fields))

    chain: dict[str, Any] = {"block_hashes": [b"p"], "block_token_counts": [16]}
    assert asks()
    assert not asks(**chain)
    assert asks(policy(enable_chain_matching=False), **chain)
    assert not asks(policy(require_chain=True))
    assert asks(policy(require_chain=True, enable_chain_matching=False), **chain)
    assert not asks(tenant=PROBE_TENANT)
    assert not asks(prompt_text="")


@pytest.mark.rule("IDX-135", "WIRE-060", "WIRE-061", "WIRE-C17")
def test_step_4_an_input_that_fails_gets_no_hint_and_no_diagnostic() -> None:
    assert ask(block_token_counts=[16], prefix_hash=b"p") == UNANSWERED
    assert ask(token_ids=range(8)) == UNANSWERED
    assert ask(token_ids=range(8), tenant="x") == UNANSWERED
    short = ask(prompt_text="hi", prompt_tokens=range(8), tenant="x")
    assert short == Decision(Reason.NO_HINT, echo_tokens=range(8))


@pytest.mark.rule("IDX-134", "WIRE-066")
def test_steps_5_and_8_a_small_request_gets_affinity_or_nothing() -> None:
    gate = {"minimum_prefix_tokens": 1024}
    no_affinity = policy(**gate, affinity_routing=False)
    small = {"prefix_hash": b"p", "prefix_token_count": 1023}
    assert ask(policy(**gate), **small).reason is Reason.AFFINITY_HINT
    assert ask(policy(**gate), **small, scheme="other").reason is Reason.UNKNOWN_HASH_SCHEME
    unanswered = UNANSWERED._replace(gate="minimumPrefixTokens")
    assert ask(no_affinity, **small) == unanswered
    assert ask(no_affinity, **small, scheme="other") == unanswered
    assert ask(no_affinity, **TEXT) == unanswered._replace(echo_tokens=range(32))
    enough = {"prefix_hash": b"p", "prefix_token_count": 1024}
    assert ask(no_affinity, **enough).reason is Reason.PREFIX_MATCH
    assert ask(policy(**gate), prefix_hash=b"new").reason is Reason.AFFINITY_HINT, (
        "a hot replica is gated too"
    )


@pytest.mark.rule("WIRE-063", "IDX-58")
@pytest.mark.parametrize("key", ["tenant", "model", "scheme"])
def test_step_6_without_a_contract_key_nothing_matches(key: str) -> None:
    keys: dict[str, Any] = {key: ""}
    decision = ask(prefix_hash=b"p", **keys)
    assert (decision.reason, decision.scores, decision.echo_adapter) == (Reason.NO_HINT, (), True)


@pytest.mark.rule("IDX-111", "IDX-114", "WIRE-144", "WIRE-C03", "WIRE-C04")
@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"tenant": "x", "model": "y", "scheme": "z"}, Reason.UNKNOWN_TENANT),
        ({"model": "y", "scheme": "z"}, Reason.UNKNOWN_MODEL),
        ({"scheme": "z", "adapter": "a"}, Reason.UNKNOWN_HASH_SCHEME),
        ({"adapter": "a"}, Reason.AFFINITY_HINT),
    ],
)
@pytest.mark.parametrize(
    "prefix", [{"block_hashes": [b"n"], "block_token_counts": [1]}, {"token_ids": range(50, 82)}]
)
def test_step_6_the_outermost_unknown_key_is_named(
    keys: dict[str, Any], reason: Reason, prefix: dict[str, Any]
) -> None:
    assert ask(**prefix, **keys).reason is reason


@pytest.mark.rule("IDX-95", "IDX-141", "WIRE-064", "WIRE-067")
def test_step_7_only_exact_misses_find_hot_replicas_if_the_policy_lets_them() -> None:
    assert ask(prefix_hash=b"new").reason is Reason.TENANT_HOT
    assert ask().reason is Reason.TENANT_HOT
    assert ask(block_hashes=[b"new"], block_token_counts=[16]).reason is Reason.AFFINITY_HINT
    assert ask(token_ids=range(50, 82)).reason is Reason.AFFINITY_HINT
    derived = ask(policy(enable_chain_matching=False), token_ids=range(50, 82))
    assert derived.reason is Reason.TENANT_HOT
    cold = policy(enable_tenant_hot=False)
    assert ask(cold, prefix_hash=b"new").reason is Reason.AFFINITY_HINT
    assert ask(cold).reason is Reason.NO_HINT


@pytest.mark.rule("IDX-136", "IDX-138", "IDX-139", "IDX-140", "WIRE-068", "WIRE-069", "WIRE-070")
@pytest.mark.parametrize(
    ("least", "floor", "reason"),
    [
        (128, 64.0, Reason.PREFIX_MATCH),
        (129, 0.0, Reason.AFFINITY_HINT),
        (0, 64.5, Reason.AFFINITY_HINT),
        (0, 0.0, Reason.PREFIX_MATCH),
    ],
)
def test_step_9_a_match_must_reach_both_floors_and_never_turns_hot(
    least: int, floor: float, reason: Reason
) -> None:
    floors = policy(minimum_matched_tokens=least, routing_floor_score=floor)
    assert ask(floors, prefix_hash=b"p").reason is reason


@pytest.mark.rule("IDX-103", "IDX-107", "WIRE-071")
def test_step_10_affinity_needs_a_seed_and_balanced_arrays() -> None:
    hint = ask(block_hashes=[b"new"], block_token_counts=[16])
    (score,) = hint.scores
    assert (score.score, score.matched_tokens, score.hit_prob, score.tier) == (0, 0, 0, 0)
    off = policy(enable_chain_matching=False, enable_tenant_hot=False)
    assert ask(off, prefix_hash=b"new").reason is Reason.AFFINITY_HINT
    assert ask(off, prefix_hash=b"new", block_hashes=[b"x"]).reason is Reason.NO_HINT
    assert ask(policy(affinity_routing=False), block_hashes=[b"n"], block_token_counts=[1]).scores == ()


@pytest.mark.rule("IDX-142", "WIRE-072", "WIRE-073")
def test_what_the_index_answered_names_the_adapter_and_the_tokens_made_from_text() -> None:
    match = ask(policy(minimum_matched_tokens=0), **TEXT)
    assert (match.reason, match.echo_adapter, match.echo_tokens) == (Reason.PREFIX_MATCH, True, range(32))
    assert ask(token_ids=range(32)).echo_tokens == ()
    assert ask(token_ids=range(32), tenant="x").echo_adapter
    assert ask(token_ids=range(32), scheme="").echo_adapter
    assert ask(token_ids=range(32), adapter="a").echo_adapter


@pytest.mark.rule("WIRE-027", "IDX-204", "IDX-193")
@pytest.mark.parametrize("fields", [{"prefix_hash": b"p"}, {"token_ids": tuple(range(32))}, {}])
def test_an_index_that_is_not_loaded_reads_as_an_empty_one(fields: dict[str, Any]) -> None:
    question = Question(adapter="a", **fields)
    assert product_route(NOTHING, None, question, 0) == naive_route(view_of(), None, question, NOW_US)


HASHES = [b"h0", b"h1", b"h2", b"h3", b""]
hashes = st.sampled_from(HASHES)
counts = st.sampled_from([0, 1, 16, 64, 100, -5, 2**31 - 1])
ages_us = st.sampled_from([0, 60, 299, 300, 900, 1799, 1800, 2000, -5]).map(lambda age: age * 10**6)


@st.composite
def records(draw: st.DrawFn) -> AnyRecord:
    stamp_us = NOW_US - draw(ages_us)
    if draw(st.integers(0, 3)) == 0:
        rates = st.sampled_from([0.0, 0.05, 0.1, 0.5, 1.0, 1.5, -0.5])
        return Stats(hit_rate=draw(rates), pressure=draw(rates), timestamp_us=stamp_us)
    width = draw(st.sampled_from([0, 2]))
    several = st.lists(hashes.filter(lambda hash_: len(hash_) == width), min_size=1, max_size=4)
    chosen = draw(several)
    return stored(
        chosen,
        [draw(counts) for _ in chosen],
        scheme=draw(st.sampled_from(["vllm", "sglang"])),
        adapter=draw(st.sampled_from(["", "a"])),
        tier=draw(st.sampled_from([0, 1, 2, 3, 7, -1])),
        timestamp_us=stamp_us,
    )


reports = st.tuples(
    st.sampled_from(["r0", "r1", "r2", "r10"]),
    st.lists(records(), max_size=5),
    st.sampled_from(["t", "u", PROBE_TENANT]),
    st.sampled_from(["m", "n"]),
)
questions = st.builds(
    Question,
    tenant=st.sampled_from(["t", "t", "u", "x", "", PROBE_TENANT]),
    model=st.sampled_from(["m", "m", "n", "x", ""]),
    scheme=st.sampled_from(["vllm", "vllm", "sglang", "x", ""]),
    adapter=st.sampled_from(["", "", "a", "x"]),
    prefix_hash=hashes,
    prefix_token_count=counts,
    block_hashes=st.lists(hashes, max_size=4).map(tuple),
    block_token_counts=st.lists(counts, max_size=4).map(tuple),
    token_ids=st.sampled_from([(), (), tuple(range(8)), tuple(range(40))]),
    ttft_ms=st.sampled_from([0, 50, 200]),
) | st.builds(Question, block_hashes=st.just(tuple(HASHES[:3])), block_token_counts=st.just((16, 64, 0)))
flags = st.sampled_from([None, True, False])
policies = st.none() | st.builds(
    ResolvedPolicy,
    namespace=st.just("t"),
    eviction_ttl_ms=st.sampled_from([0, 600_000, 3_600_000]),
    minimum_prefix_tokens=st.sampled_from([0, 0, 50]),
    minimum_matched_tokens=st.sampled_from([0, 64, 100]),
    routing_floor_score=st.sampled_from([None, 0.0, 20.0]),
    affinity_routing=flags,
    enable_chain_matching=flags,
    require_chain=st.sampled_from([None, None, True]),
    enable_tenant_hot=flags,
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(state=st.lists(reports, max_size=6), question=questions, policy=policies)
def test_every_answer_is_that_of_the_naive_model(
    state: list[tuple[str, list[AnyRecord], str, str]], question: Question, policy: ResolvedPolicy | None
) -> None:
    log = LogWriter()
    log.claim()
    log.tick(0)
    for replica, reported, tenant, model in state:
        log.report(replica, *reported, tenant=tenant, model=model)
    fold = NaiveFold()
    for message in log.messages:
        fold.fold(message)
    view = NaiveView(fold)
    assert product_route(view, policy, question, NOW_US) == naive_route(view, policy, question, NOW_US)
