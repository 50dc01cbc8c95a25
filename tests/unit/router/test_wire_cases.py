"""The worked cases of the wire contract, from request bytes through log, fold and view to the answer."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import grpc
import pytest

from inferencecache.core.fingerprint import prefix_digests
from inferencecache.core.index.ranking import HOT_MAXIMUM_AGE_US
from inferencecache.core.log.subjects import partition_of, replica_subject
from inferencecache.schemas.ids import PROBE_TENANT, AdapterId, HashScheme, ModelId, ReplicaId, TenantId
from inferencecache.schemas.policy import ResolvedPolicy
from inferencecache.schemas.records import Batch, Stats, Stored, encode_batch
from inferencecache.schemas.senders import ReplicaSender
from inferencecache.v1alpha1.inferencecache_pb2 import (
    CACHE_TIER_T1,
    CACHE_TIER_T2,
    CACHE_TIER_UNSPECIFIED,
    SLO,
    Ack,
    CacheEvent,
    CacheStateUpdate,
    GetCacheStateRequest,
    GetCacheStateResponse,
    LookupRouteRequest,
    LookupRouteResponse,
    PrefixEntry,
    ReplicaStats,
)
from tests.support.router import Router
from tests.support.waiting import eventually

MINUTE_US = 60_000_000
ACCEPTED = Ack(accepted=True)
SCOPE: dict[str, Any] = {"tenant_id": "t", "model_id": "m", "hash_scheme": "vllm"}


# ------------------------------------------------------------------------------------- sentences


def key(hash_: str, tokens: int, **more: Any) -> PrefixEntry:
    return PrefixEntry(prefix_hash=hash_.encode(), token_count=tokens, **more)


def chain(hashes: str, *counts: int, **more: Any) -> PrefixEntry:
    return PrefixEntry(block_hashes=hashes.encode().split(b","), block_token_counts=counts, **more)


def by_key(hash_: str, **more: Any) -> LookupRouteRequest:
    return LookupRouteRequest(**SCOPE | {"prefix_hash": hash_.encode()} | more)


def by_chain(hashes: str, *counts: int, **more: Any) -> LookupRouteRequest:
    blocks = {"block_hashes": hashes.encode().split(b","), "block_token_counts": counts}
    return LookupRouteRequest(**SCOPE | blocks | more)


def by_tokens(tokens: Iterable[int], **more: Any) -> LookupRouteRequest:
    return LookupRouteRequest(**SCOPE | {"token_ids": tokens} | more)


async def report(router: Router, replica: str, *entries: PrefixEntry, **more: Any) -> None:
    update = CacheStateUpdate(**SCOPE | {"replica_id": replica, "prefixes": entries} | more)
    assert await router.stub.ReportCacheState(iter([update])) == ACCEPTED


async def publish(router: Router, type_: int, replica: str, **more: Any) -> Ack:
    keys = {name: value for name, value in SCOPE.items() if name != "hash_scheme"}
    event: dict[str, Any] = keys | {"type": type_, "replica_id": replica} | more
    return await router.stub.PublishEvent(CacheEvent(**event))


async def ask(router: Router, request: LookupRouteRequest) -> LookupRouteResponse:
    return await router.stub.LookupRoute(request)


async def reason(router: Router, request: LookupRouteRequest) -> str:
    return (await ask(router, request)).reason_code


async def state(router: Router, tenant: str = "t", model: str = "m") -> GetCacheStateResponse:
    return await router.stub.GetCacheState(GetCacheStateRequest(tenant_id=tenant, model_id=model))


async def total(router: Router, tenant: str = "t", model: str = "m") -> int:
    return (await state(router, tenant, model)).summary.total_prefixes


def scores(answer: LookupRouteResponse) -> dict[str, Any]:
    return {score.replica_id: pytest.approx(score.score, abs=0.01) for score in answer.replica_scores}


def policy(**values: Any) -> ResolvedPolicy:
    return ResolvedPolicy(
        namespace="t", **{"minimum_matched_tokens": 64, "routing_floor_score": 0.1} | values
    )


NO_FLOORS = policy(minimum_matched_tokens=0, routing_floor_score=0.0)


async def warm(router: Router) -> None:
    """The state that the cases call warm."""
    await report(router, "r1", key("q", 64), stats=ReplicaStats(hit_rate=0.9))


# --------------------------------------------------------------------------------- exact and chain


@pytest.mark.rule("WIRE-C01", "WIRE-030", "WIRE-076", "WIRE-130")
async def test_a_held_key_is_a_prefix_match(router: Router) -> None:
    await report(router, "r1", key("p", 128))
    answer = await ask(router, by_key("p"))
    assert answer.reason_code == "PREFIX_MATCH"
    (score,) = answer.replica_scores
    assert (score.replica_id, score.score, score.matched_tokens) == ("r1", 128.0, 128)
    assert (score.estimated_cache_hit_prob, score.tier) == (1.0, CACHE_TIER_T1)
    assert not answer.token_ids
    assert not answer.adapter_id


@pytest.mark.rule("WIRE-C02")
async def test_a_tight_target_doubles_the_score_of_a_fresh_match(router: Router) -> None:
    await report(router, "r1", key("p", 128))
    for ttft_ms, score in ((50, 256), (199, 256), (200, 128), (0, 128)):
        assert scores(await ask(router, by_key("p", slo=SLO(ttft_ms=ttft_ms)))) == {"r1": score}


@pytest.mark.rule("WIRE-C03", "WIRE-139", "WIRE-232")
async def test_another_scheme_is_unknown_and_echoes_the_adapter(router: Router) -> None:
    await report(router, "r1", key("p", 128))
    answer = await ask(router, by_key("p", hash_scheme="vllm-v1", adapter_id="a"))
    assert (answer.reason_code, answer.adapter_id) == ("UNKNOWN_HASH_SCHEME", "a")
    assert not answer.replica_scores


@pytest.mark.rule("WIRE-C04", "WIRE-025", "WIRE-137", "WIRE-138", "WIRE-144")
async def test_the_outermost_wrong_key_is_reported(router: Router) -> None:
    await report(router, "r1", key("p", 128))
    wrong = {"model_id": "y", "hash_scheme": "z"}
    assert await reason(router, by_key("p", tenant_id="x", **wrong)) == "UNKNOWN_TENANT"
    assert await reason(router, by_key("p", **wrong)) == "UNKNOWN_MODEL"


@pytest.mark.rule("WIRE-C05", "WIRE-133", "IDX-193")
async def test_an_empty_index_gives_no_hint(router: Router) -> None:
    for request in (by_key("p"), by_chain("p,q", 16, 16), by_tokens(range(64))):
        assert await reason(router, request) == "NO_HINT"


@pytest.mark.rule("WIRE-C06", "WIRE-087", "WIRE-110")
async def test_what_is_reported_under_the_empty_tenant_is_counted_and_never_routed_to(router: Router) -> None:
    await report(router, "r1", key("p", 128), tenant_id="")
    answer = await ask(router, by_key("p", tenant_id=""))
    assert (answer.reason_code, len(answer.replica_scores)) == ("NO_HINT", 0)
    assert await total(router, tenant="") == 1


@pytest.mark.rule("WIRE-C07", "WIRE-068")
async def test_64_tokens_pass_the_default_floor_and_63_do_not(router: Router) -> None:
    await report(router, "r1", key("p", 64))
    assert await reason(router, by_key("p")) == "PREFIX_MATCH"
    await report(router, "r1", key("p", 63))
    answer = await ask(router, by_key("p"))
    assert (answer.reason_code, scores(answer)) == ("AFFINITY_HINT", {"r1": 0})


@pytest.mark.rule("WIRE-C08")
async def test_one_token_passes_when_the_floor_is_off(router: Router) -> None:
    router.log.apply(ResolvedPolicy(namespace="t", minimum_matched_tokens=0))
    await report(router, "r1", key("p", 1))
    answer = await ask(router, by_key("p"))
    assert (answer.reason_code, answer.replica_scores[0].matched_tokens) == ("PREFIX_MATCH", 1)
    assert scores(answer) == {"r1": 1}


@pytest.mark.rule("WIRE-C09")
async def test_a_chain_matches_as_far_as_it_leads(router: Router) -> None:
    await report(router, "r1", chain("b1,b2,b3", 64, 64, 64))
    answer = await ask(router, by_chain("b1,b2,b3,x4,x5", *[64] * 5))
    assert (answer.reason_code, answer.replica_scores[0].matched_tokens) == ("PREFIX_MATCH", 192)
    assert scores(answer) == {"r1": 192}


@pytest.mark.rule("WIRE-C10")
async def test_a_chain_counts_its_own_tokens_not_the_stored_ones(router: Router) -> None:
    router.log.apply(NO_FLOORS)
    await report(router, "r1", key("p", 64))
    answer = await ask(router, by_chain("p,x,y", 16, 16, 16))
    assert (answer.reason_code, answer.replica_scores[0].matched_tokens) == ("PREFIX_MATCH", 16)
    assert scores(answer) == {"r1": 16}


@pytest.mark.rule("WIRE-C11", "WIRE-075")
async def test_longer_and_fresher_runs_that_fewer_have_come_first(router: Router) -> None:
    now_us = router.log.now_us()
    for replica, blocks, minutes in (("A", 3, 1), ("B", 2, 2), ("C", 1, 4)):
        entry = chain(",".join(["h1", "h2", "h3"][:blocks]), *[64] * blocks)
        await report(router, replica, entry, timestamp_us=now_us - minutes * MINUTE_US)
    answer = await ask(router, by_chain("h1,h2,h3,h4,h5", *[64] * 5))
    assert answer.reason_code == "PREFIX_MATCH"
    assert [score.replica_id for score in answer.replica_scores] == ["A", "B", "C"]
    assert [score.matched_tokens for score in answer.replica_scores] == [192, 128, 64]
    assert scores(answer) == {"A": 123.733, "B": 39.822, "C": 0}


@pytest.mark.rule("WIRE-C12")
async def test_what_everybody_holds_tells_nobody_apart(router: Router) -> None:
    for replica in ("r0", "r1", "r2"):
        await report(router, replica, key("rag-corpus-header", 1500))
    answer = await ask(router, by_key("rag-corpus-header"))
    assert (answer.reason_code, scores(answer)) == ("AFFINITY_HINT", {"r0": 0})
    router.log.apply(policy(affinity_routing=False))
    assert await reason(router, by_key("rag-corpus-header")) == "NO_HINT"


@pytest.mark.rule("WIRE-C13")
async def test_a_match_that_few_have_is_worth_more(router: Router) -> None:
    await report(router, "r0", key("u", 64))
    await report(router, "r1", key("o", 32))
    await report(router, "r2", key("o", 32))
    answer = await ask(router, by_key("u"))
    assert (answer.reason_code, scores(answer)) == ("PREFIX_MATCH", {"r0": 42.667})


# ------------------------------------------------------------------------------ inputs and fallbacks


@pytest.mark.rule("WIRE-C14", "WIRE-060")
async def test_a_malformed_chain_never_degrades_to_another_input(router: Router) -> None:
    await report(router, "r1", key("p", 128))
    answer = await ask(router, by_chain("b1,b2", 16, prefix_hash=b"p", token_ids=range(64), adapter_id="a"))
    assert (answer.reason_code, answer.adapter_id, len(answer.replica_scores)) == ("NO_HINT", "", 0)


@pytest.mark.rule("WIRE-C15")
async def test_counts_without_hashes_find_no_hot_replica(router: Router) -> None:
    await warm(router)
    assert await reason(router, LookupRouteRequest(**SCOPE, block_token_counts=[16, 16])) == "NO_HINT"


@pytest.mark.rule("WIRE-C16", "WIRE-064", "WIRE-131")
async def test_an_exact_miss_finds_a_hot_replica_and_a_chain_does_not(router: Router) -> None:
    await warm(router)
    for request in (by_key("novel"), LookupRouteRequest(**SCOPE)):
        answer = await ask(router, request)
        assert (answer.reason_code, scores(answer)) == ("TENANT_HOT", {"r1": 0.9})
        (score,) = answer.replica_scores
        assert (score.matched_tokens, score.tier) == (0, CACHE_TIER_UNSPECIFIED)
        assert score.estimated_cache_hit_prob == pytest.approx(0.9)
    answer = await ask(router, by_chain("n1", 16))
    assert (answer.reason_code, scores(answer)) == ("AFFINITY_HINT", {"r1": 0})


@pytest.mark.rule("WIRE-C17", "WIRE-061")
async def test_less_than_a_block_of_tokens_gives_no_hint(router: Router) -> None:
    await warm(router)
    assert await reason(router, by_tokens(range(8))) == "NO_HINT"
    assert await reason(router, by_tokens(range(8), tenant_id="wrong")) == "NO_HINT"


@pytest.mark.rule("WIRE-C18", "WIRE-156")
async def test_tokens_are_the_chain_that_is_derived_from_them(router: Router) -> None:
    (hash_,) = prefix_digests(range(100, 120), 16)
    assert hash_.hex() == "9633b31c7a2562c7"
    router.log.apply(NO_FLOORS)
    entry = PrefixEntry(block_hashes=[hash_], block_token_counts=[16])
    await report(router, "r1", entry)
    by_hash = LookupRouteRequest(**SCOPE, block_hashes=[hash_], block_token_counts=[16])
    answers = [await ask(router, request) for request in (by_tokens(range(100, 120)), by_hash)]
    for answer in answers:
        answer.ClearField("lookup_latency_us")
    assert answers[0] == answers[1]
    assert (answers[0].reason_code, scores(answers[0])) == ("PREFIX_MATCH", {"r1": 16})
    assert not answers[0].token_ids


@pytest.mark.rule("WIRE-C19", "WIRE-050", "WIRE-200", "WIRE-031")
async def test_a_million_tokens_are_fingerprinted_and_one_more_are_not(router: Router) -> None:
    last = prefix_digests([5] * 2**20, 16)[-1]
    await report(router, "r1", PrefixEntry(prefix_hash=last, token_count=2**20))
    answer = await ask(router, by_tokens([5] * 2**20))
    assert answer.reason_code == "AFFINITY_HINT", "only a chain that was looked up can miss"
    assert await reason(router, by_tokens([5] * (2**20 + 1))) == "NO_HINT"
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await ask(router, by_tokens([2_097_152] * 2**20))
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.rule("WIRE-C20", "WIRE-062")
async def test_text_without_a_tokenizer_gives_no_hint_and_no_echo(router: Router) -> None:
    await warm(router)
    answer = await ask(router, LookupRouteRequest(**SCOPE, prompt_text="hello", adapter_id="a"))
    assert (answer.reason_code, len(answer.token_ids), answer.adapter_id) == ("NO_HINT", 0, "")


@pytest.mark.rule("WIRE-C22", "WIRE-057")
async def test_a_required_chain_is_asked_for_before_anything_else(router: Router) -> None:
    router.log.apply(policy(require_chain=True))
    await report(router, "r1", key("p", 128))
    text = LookupRouteRequest(**SCOPE, prompt_text="hello", adapter_id="a")
    for request in (
        by_key("p", adapter_id="a"),
        by_tokens(range(32), adapter_id="a"),
        by_chain("b1,b2", 16, adapter_id="a"),
        text,
    ):
        answer = await ask(router, request)
        assert (answer.reason_code, answer.adapter_id) == ("POLICY_REQUIRES_CHAIN", "")


@pytest.mark.rule("WIRE-C23", "WIRE-059")
async def test_without_chain_matching_only_exact_keys_are_looked_up(router: Router) -> None:
    router.log.apply(policy(enable_chain_matching=False, minimum_matched_tokens=0))
    derived = bytes.fromhex("3d5ff0dd2a93fd39")
    await report(router, "r1", key("p", 128), PrefixEntry(prefix_hash=derived, token_count=32))
    answer = await ask(router, by_tokens(range(1000, 1032)))
    assert (answer.reason_code, answer.replica_scores[0].matched_tokens) == ("PREFIX_MATCH", 32)
    assert await reason(router, by_chain("b1,b2", 16, 16)) == "NO_HINT"
    assert await reason(router, by_chain("b1,b2", 16, prefix_hash=b"p")) == "PREFIX_MATCH"


@pytest.mark.rule("WIRE-C24", "WIRE-071", "WIRE-132")
async def test_a_novel_chain_gets_the_replica_that_its_hash_maps_to(router: Router) -> None:
    for replica in ("r-1", "r-2", "r-3"):
        await report(router, replica, key(f"unrelated-{replica}", 64))
    answer = await ask(router, by_chain("prompt-block-1,prompt-block-2", 16, 16, adapter_id="a"))
    assert (answer.reason_code, answer.adapter_id) == ("AFFINITY_HINT", "a")
    (score,) = answer.replica_scores
    assert score.replica_id == "r-1"
    assert (score.score, score.matched_tokens) == (0, 0)
    assert (score.estimated_cache_hit_prob, score.tier) == (0, CACHE_TIER_UNSPECIFIED)


@pytest.mark.rule("WIRE-C25", "WIRE-066")
async def test_a_small_request_gets_affinity_or_nothing(router: Router) -> None:
    await report(router, "r-1", key("deep", 64))
    small = by_key("deep", prefix_token_count=1)
    other = by_key("deep", prefix_token_count=1, hash_scheme="sglang")
    router.log.apply(policy(minimum_prefix_tokens=1024))
    answer = await ask(router, small)
    assert (answer.reason_code, scores(answer)) == ("AFFINITY_HINT", {"r-1": 0})
    assert await reason(router, other) == "UNKNOWN_HASH_SCHEME"
    router.log.apply(policy(minimum_prefix_tokens=1024, affinity_routing=False))
    assert [await reason(router, request) for request in (small, other)] == ["NO_HINT", "NO_HINT"]


# ------------------------------------------------------------------------------ adapters and tiers


@pytest.mark.rule("WIRE-C26", "WIRE-072", "WIRE-078", "WIRE-232", "WIRE-233")
async def test_a_key_is_found_only_under_its_adapter(router: Router) -> None:
    await report(router, "r1", key("p", 128), adapter_id="sql-lora")
    answers = [await ask(router, by_key("p", adapter_id=name)) for name in ("sql-lora", "chat-lora", "")]
    assert [answer.reason_code for answer in answers] == ["PREFIX_MATCH", "AFFINITY_HINT", "AFFINITY_HINT"]
    assert [answer.adapter_id for answer in answers] == ["sql-lora", "chat-lora", ""]
    assert all(answer.replica_scores[0].replica_id == "r1" for answer in answers)


@pytest.mark.rule("WIRE-C27", "WIRE-089")
async def test_an_entry_has_its_own_adapter_or_the_updates(router: Router) -> None:
    await report(router, "r1", key("i", 128), key("o", 128, adapter_id="e"), adapter_id="d")
    found = {
        (hash_, adapter)
        for hash_ in ("i", "o")
        for adapter in ("", "d", "e")
        if await reason(router, by_key(hash_, adapter_id=adapter)) == "PREFIX_MATCH"
    }
    assert found == {("i", "d"), ("o", "e")}


@pytest.mark.rule("WIRE-C28", "WIRE-101", "WIRE-108")
async def test_an_eviction_names_one_adapter_or_means_all_in_every_scheme(router: Router) -> None:
    for adapter in ("sql-lora", "chat-lora"):
        for scheme in ("vllm", "sglang"):
            await report(router, "r1", key("p", 128), adapter_id=adapter, hash_scheme=scheme)

    async def held() -> set[tuple[str, str]]:
        return {
            (adapter, scheme)
            for adapter in ("sql-lora", "chat-lora")
            for scheme in ("vllm", "sglang")
            if await reason(router, by_key("p", adapter_id=adapter, hash_scheme=scheme)) == "PREFIX_MATCH"
        }

    evicted = {"prefix_hash": b"p"}
    assert len(await held()) == 4
    ack = await publish(router, CacheEvent.PREFIX_EVICTED, "r1", **evicted, adapter_id="sql-lora")
    assert ack == ACCEPTED
    assert await held() == {("chat-lora", "vllm"), ("chat-lora", "sglang")}
    assert await publish(router, CacheEvent.PREFIX_EVICTED, "r1", **evicted) == ACCEPTED
    assert await held() == set()
    assert await total(router) == 0


@pytest.mark.rule("WIRE-C29")
@pytest.mark.parametrize("tiers", [(2, 1), (1, 2)], ids=["coldest first", "coldest last"])
async def test_a_run_has_the_tier_of_its_coldest_block(router: Router, tiers: tuple[int, int]) -> None:
    entries = [
        PrefixEntry(block_hashes=[hash_], block_token_counts=[64], tier=tier)  # type: ignore[arg-type]
        for hash_, tier in zip((b"b1", b"b2"), tiers, strict=True)
    ]
    await report(router, "r1", *entries)
    (score,) = (await ask(router, by_chain("b1,b2", 64, 64))).replica_scores
    assert (score.matched_tokens, score.tier) == (128, CACHE_TIER_T2)


@pytest.mark.rule("WIRE-C30", "WIRE-095", "WIRE-077")
@pytest.mark.parametrize(("tier", "answered"), [(0, 1), (1, 1), (2, 2), (3, 3), (99, 0), (-1, 0)])
async def test_an_unknown_tier_is_kept_and_reported_as_unspecified(
    router: Router, tier: int, answered: int
) -> None:
    await report(router, "r1", key("p", 128, tier=tier))
    (score,) = (await ask(router, by_key("p"))).replica_scores
    assert (score.tier, score.score) == (answered, 128)


# -------------------------------------------------------------------------------- reports and state


@pytest.mark.rule("WIRE-C31", "WIRE-091", "WIRE-112")
async def test_a_chain_with_a_key_of_its_own_is_four_keys(router: Router) -> None:
    await report(router, "r1", chain("b1,b2,b3", 16, 16, 16, prefix_hash=b"full", token_count=128))
    assert await total(router) == 4
    (score,) = (await ask(router, by_key("full"))).replica_scores
    assert score.matched_tokens == 128
    router.log.apply(NO_FLOORS)
    (score,) = (await ask(router, by_key("b2"))).replica_scores
    assert score.matched_tokens == 32


@pytest.mark.rule("WIRE-C32", "WIRE-091")
async def test_an_entry_with_unequal_arrays_is_dropped_as_a_whole(router: Router) -> None:
    broken = PrefixEntry(prefix_hash=b"p", token_count=64, block_token_counts=[16, 16])
    await report(router, "r1", broken)
    assert await total(router) == 0
    await report(router, "r1", broken, key("q", 64))
    assert await total(router) == 1


@pytest.mark.rule("WIRE-C33", "WIRE-111", "WIRE-112", "WIRE-113", "IDX-172", "IDX-174")
async def test_keys_are_counted_once_and_replicas_by_their_statistics(router: Router) -> None:
    await report(router, "r1", key("p", 64))
    await report(router, "r2", key("p", 64), stats=ReplicaStats(hit_rate=0.5))
    await report(router, "r1", key("p", 64), hash_scheme="sglang")
    await report(router, "r1", key("p", 64), adapter_id="a")
    answer = await state(router)
    assert (answer.summary.total_prefixes, answer.summary.hot_prefixes) == (3, 0)
    assert [replica.replica_id for replica in answer.replicas] == ["r2"]


@pytest.mark.rule("WIRE-C34", "WIRE-088", "WIRE-096", "IDX-39", "IDX-40", "IDX-41")
async def test_statistics_are_taken_without_a_scheme_and_cleaned(router: Router) -> None:
    stats = ReplicaStats(replica_id="x", hit_rate=math.nan, pressure=1.7, client_version="lib==0.4.2")
    await report(router, "r1", key("p", 64), hash_scheme="", stats=stats)
    answer = await state(router)
    assert answer.summary.total_prefixes == 0
    (replica,) = answer.replicas
    assert (replica.replica_id, replica.hit_rate, replica.client_version) == ("r1", 0, "")
    assert replica.pressure == pytest.approx(1.7)


@pytest.mark.rule("WIRE-C35", "WIRE-094")
async def test_a_match_is_worth_less_the_older_its_report(router: Router) -> None:
    now_us = router.log.now_us()
    for minutes, prob in ((10, 1.0), (0, 1.0), (-15, 0.5)):
        await report(router, "r1", key("p", 100), timestamp_us=now_us + minutes * MINUTE_US)
        (score,) = (await ask(router, by_key("p"))).replica_scores
        assert score.estimated_cache_hit_prob == pytest.approx(prob, abs=1e-6)
        assert score.score == pytest.approx(100 * prob, abs=1e-3)
    await report(router, "r1", key("p", 100), timestamp_us=now_us - 30 * MINUTE_US)
    assert await reason(router, by_key("p")) == "AFFINITY_HINT"
    assert await total(router) == 1
    router.log.pass_time(60)
    assert await reason(router, by_key("p")) == "NO_HINT", "swept"
    assert await total(router) == 0


@pytest.mark.rule("WIRE-C36", "WIRE-092")
async def test_the_last_report_wins_even_with_an_older_time(router: Router) -> None:
    now_us = router.log.now_us()
    await report(router, "r1", key("p", 100), timestamp_us=now_us)
    await report(router, "r1", key("p", 100), timestamp_us=now_us - 31 * MINUTE_US)
    assert await reason(router, by_key("p")) == "AFFINITY_HINT"


@pytest.mark.rule("WIRE-C37", "WIRE-028")
async def test_token_sums_wrap_around(router: Router) -> None:
    counts = (2_147_483_647, 1)
    await report(router, "r1", chain("b1,b2", *counts))
    answer = await ask(router, by_chain("b1,b2", *counts))
    assert (answer.reason_code, scores(answer)) == ("AFFINITY_HINT", {"r1": 0})
    (score,) = (await ask(router, by_chain("b1", counts[0]))).replica_scores
    assert score.matched_tokens == 2_147_483_647


@pytest.mark.rule("WIRE-C38", "WIRE-044", "WIRE-085", "IDX-187")
async def test_the_reserved_tenant_is_skipped_in_a_stream(router: Router) -> None:
    updates = [
        CacheStateUpdate(**SCOPE | {"replica_id": "r1", "prefixes": [key("p", 128)]}),
        CacheStateUpdate(**SCOPE | {"tenant_id": PROBE_TENANT, "prefixes": [key("q", 128)]}),
    ]
    assert await router.stub.ReportCacheState(iter(updates)) == ACCEPTED
    assert await total(router) == 1
    assert all(not fold.view.has_tenant(PROBE_TENANT) for fold in router.log.folds)


@pytest.mark.rule("WIRE-C39", "WIRE-086", "WIRE-034")
async def test_what_a_broken_stream_brought_stays(router: Router) -> None:
    call = router.stub.ReportCacheState()
    await call.write(CacheStateUpdate(**SCOPE | {"replica_id": "r1", "prefixes": [key("p", 128)]}))
    await eventually(lambda: total(router))
    assert call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert call.cancelled()
    assert await reason(router, by_key("p")) == "PREFIX_MATCH"


@pytest.mark.rule("WIRE-C40", "WIRE-042", "WIRE-043", "WIRE-045", "IDX-175", "IDX-187", "IDX-189", "CTL-138")
async def test_the_reserved_tenant_reads_as_empty_and_cannot_be_changed(router: Router) -> None:
    sender = ReplicaSender(PROBE_TENANT, ModelId("m"), ReplicaId("__probe-x"), "g")
    partition = partition_of(PROBE_TENANT, "m", "__probe-x", router.log.layout)
    stored = Stored(HashScheme("vllm"), AdapterId(""), 1, 1, b"p", (16).to_bytes(4, "little"))
    subject = replica_subject(router.log.layout.generation, partition, sender)
    router.log.append(subject, encode_batch(Batch(records=(stored,))))
    view = router.log.folds[partition].view
    assert view.has_tenant(PROBE_TENANT)

    answer = await ask(router, by_key("p", tenant_id=PROBE_TENANT, adapter_id="a"))
    assert answer == LookupRouteResponse(reason_code="NO_HINT")
    counted = {"model": "m", "reason_code": "NO_HINT", "hint_used": "false"}
    assert router.metric("inferencecache_lookup_route_calls_total", **counted) == 1
    assert router.metric("inferencecache_lookup_route_latency_seconds_sum", model="m") == 0

    nothing = await state(router, tenant=PROBE_TENANT)
    assert (len(nothing.replicas), nothing.summary.total_prefixes) == (0, 0)
    assert nothing.HasField("summary")
    cleared = await publish(router, CacheEvent.ALL_CLEARED, "__probe-x", tenant_id=PROBE_TENANT)
    assert cleared == ACCEPTED
    assert view.has_tenant(PROBE_TENANT)


@pytest.mark.rule("WIRE-C41", "WIRE-102")
async def test_a_sign_of_life_does_not_make_statistics_young(router: Router) -> None:
    now_us = router.log.now_us()
    stats = ReplicaStats(hit_rate=0.9)
    await report(router, "r1", key("q", 64), stats=stats, timestamp_us=now_us - 6 * MINUTE_US)
    assert 6 * MINUTE_US > HOT_MAXIMUM_AGE_US
    assert await publish(router, CacheEvent.REPLICA_UPDATED, "r1") == ACCEPTED
    answer = await ask(router, by_key("novel"))
    assert (answer.reason_code, scores(answer)) == ("AFFINITY_HINT", {"r1": 0})


@pytest.mark.rule("WIRE-C42", "WIRE-097", "WIRE-100", "WIRE-104", "WIRE-105", "WIRE-142")
async def test_events_that_mean_nothing_are_accepted_and_change_nothing(router: Router) -> None:
    await report(router, "r1", key("p", 128))
    before = await state(router)
    for type_ in (CacheEvent.TYPE_UNSPECIFIED, 77, -3, CacheEvent.PREFIX_ADDED):
        assert await publish(router, type_, "r1", prefix_hash=b"new") == ACCEPTED
    assert await state(router) == before
    assert await reason(router, by_key("new")) == "AFFINITY_HINT"


@pytest.mark.rule("WIRE-103")
async def test_all_cleared_removes_entries_and_statistics_of_one_model(router: Router) -> None:
    for model in ("m", "n"):
        await report(router, "r1", key("p", 128), model_id=model, stats=ReplicaStats(hit_rate=0.5))
    await report(router, "r1", key("p", 128), hash_scheme="sglang", adapter_id="a")
    await report(router, "r2", key("p", 128))
    ack = await publish(router, CacheEvent.ALL_CLEARED, "r1", prefix_hash=b"x", adapter_id="y")
    assert ack == ACCEPTED
    assert scores(await ask(router, by_key("p"))) == {"r2": 128}
    assert len((await state(router)).replicas) == 0
    assert len((await state(router, model="n")).replicas) == 1


@pytest.mark.rule("WIRE-107", "WIRE-090", "WIRE-106")
async def test_the_empty_hash_is_a_key_like_any_other(router: Router) -> None:
    await report(router, "r1", key("", 128))
    request = LookupRouteRequest(**SCOPE)
    assert await reason(router, request) == "PREFIX_MATCH"
    await publish(router, CacheEvent.PREFIX_EVICTED, "r1", timestamp_us=1)
    assert await total(router) == 0


@pytest.mark.rule("WIRE-111", "IDX-172", "IDX-173")
async def test_replicas_are_listed_by_the_bytes_of_their_ids(router: Router) -> None:
    names = ["r-10", "r-2", "é", "z"]
    for name in names:
        await report(
            router, name, stats=ReplicaStats(cache_memory_bytes=1, t2_hit_tokens=2, t2_query_tokens=3)
        )
    listed = (await state(router)).replicas
    assert [replica.replica_id for replica in listed] == sorted(names, key=str.encode)
    assert all(a.replica_id.encode() < b.replica_id.encode() for a, b in pairwise(listed))
    assert {(r.cache_memory_bytes, r.t2_hit_tokens, r.t2_query_tokens) for r in listed} == {(1, 2, 3)}


async def test_a_sidecars_number_that_no_field_can_carry_is_the_largest_one(router: Router) -> None:
    sender = ReplicaSender(TenantId("t"), ModelId("m"), ReplicaId("r1"), "g")
    partition = partition_of("t", "m", "r1", router.log.layout)
    subject = replica_subject(router.log.layout.generation, partition, sender)
    router.log.append(subject, encode_batch(Batch(records=(Stats(cache_memory_bytes=2**64 - 1),))))
    (replica,) = (await state(router)).replicas
    assert replica.cache_memory_bytes == 2**63 - 1


@pytest.mark.rule("WIRE-110", "WIRE-114", "IDX-175")
async def test_a_pair_that_nobody_reported_reads_as_empty_with_a_summary(router: Router) -> None:
    await warm(router)
    for tenant, model in (("t", "n"), ("u", "m"), ("", "m"), ("t", "")):
        answer = await state(router, tenant, model)
        assert answer.HasField("summary")
        assert (len(answer.replicas), answer.summary.total_prefixes) == (0, 0)


@pytest.mark.rule("WIRE-022", "IDX-55", "IDX-146")
async def test_reading_changes_nothing_that_is_held(router: Router) -> None:
    await report(router, "r1", chain("b1,b2", 64, 64, prefix_hash=b"p", token_count=128))
    before = [(fold.view.digest, fold.view.entries) for fold in router.log.folds]
    for request in (by_key("p"), by_key("new"), by_chain("b1,b2,b3", 64, 64, 64), by_tokens(range(64))):
        await ask(router, request)
    await state(router)
    assert [(fold.view.digest, fold.view.entries) for fold in router.log.folds] == before


@pytest.mark.rule("WIRE-065", "IDX-112")
async def test_statistics_make_no_tenant_known_and_stale_entries_do(router: Router) -> None:
    await report(router, "r1", key("p", 128), tenant_id="other")
    await report(router, "r1", stats=ReplicaStats(hit_rate=0.9))
    assert await reason(router, by_key("p")) == "UNKNOWN_TENANT"
    await report(router, "r1", key("p", 128), timestamp_us=router.log.now_us() - 31 * MINUTE_US)
    assert await reason(router, by_key("p", adapter_id="nobody's")) == "TENANT_HOT"
    assert await reason(router, by_chain("p", 128)) == "AFFINITY_HINT"


@pytest.mark.rule("WIRE-160", "WIRE-161", "WIRE-021")
async def test_equal_tokens_under_two_schemes_or_adapters_are_different_keys(router: Router) -> None:
    hashes = prefix_digests(range(64), 16)
    entry = PrefixEntry(block_hashes=hashes, block_token_counts=[16] * 4)
    await report(router, "r1", entry)
    await report(router, "r2", entry, hash_scheme="sglang")
    await report(router, "r3", entry, adapter_id="a")
    for more, replica in (({}, "r1"), ({"hash_scheme": "sglang"}, "r2"), ({"adapter_id": "a"}, "r3")):
        answer = await ask(router, by_tokens(range(64), **more))
        assert (answer.reason_code, list(scores(answer))) == ("PREFIX_MATCH", [replica])


@pytest.mark.rule("IDX-84", "IDX-85", "WIRE-083")
async def test_latency_targets_are_no_deadlines_and_that_between_tokens_has_no_effect(router: Router) -> None:
    await report(router, "r1", key("p", 128))
    for slo in (SLO(tbt_ms=1), SLO(tbt_ms=-1)):
        assert scores(await ask(router, by_key("p", slo=slo))) == {"r1": 128}
    assert await reason(router, by_key("p", slo=SLO(ttft_ms=1, tbt_ms=1))) == "PREFIX_MATCH"


@pytest.mark.rule("IDX-W62", "IDX-117")
async def test_another_namespaces_policy_does_not_apply(router: Router) -> None:
    router.log.apply(ResolvedPolicy(namespace="team-a", minimum_prefix_tokens=200, affinity_routing=False))
    await report(router, "r1", key("p", 128), tenant_id="team-b")
    answer = await ask(router, by_key("p", tenant_id="team-b", prefix_token_count=1))
    assert (answer.reason_code, scores(answer)) == ("PREFIX_MATCH", {"r1": 128})
