"""A model spread over lanes is answered as if it were in one place."""

from __future__ import annotations

from typing import Any

from inferencecache.core.log.subjects import partition_of
from inferencecache.schemas.ids import ModelId, ReplicaId, TenantId
from inferencecache.schemas.layout import Lanes, Layout
from inferencecache.v1alpha1.inferencecache_pb2 import (
    CacheStateUpdate,
    GetCacheStateRequest,
    LookupRouteRequest,
    PrefixEntry,
    ReplicaStats,
)
from tests.support.router import FoldedLog, Router, served_router

SCOPE: dict[str, Any] = {"tenant_id": "t", "model_id": "m", "hash_scheme": "vllm"}
MODELS = ("m", "elsewhere")
CHAIN = [b"h1", b"h2", b"h3", b"h4"]
REPLICAS = [f"engine-{number}" for number in range(6)]


def updates(now_us: int) -> list[CacheStateUpdate]:
    """Replica n holds the first blocks of a chain and a key of its own, the later the younger."""
    return [
        CacheStateUpdate(
            **SCOPE,
            replica_id=replica,
            timestamp_us=now_us - number * 60_000_000,
            prefixes=[
                PrefixEntry(block_hashes=CHAIN[: 1 + number % 4], block_token_counts=[64] * (1 + number % 4)),
                PrefixEntry(prefix_hash=replica.encode(), token_count=200),
            ],
            stats=ReplicaStats(hit_rate=0.1 * number, pressure=0.05 * number),
        )
        for number, replica in enumerate(REPLICAS)
    ]


QUESTIONS: list[dict[str, Any]] = [
    {"block_hashes": CHAIN, "block_token_counts": [64] * 4},
    {"prefix_hash": b"engine-3"},
    {"prefix_hash": b"h1"},
    {"prefix_hash": b"new"},
    {"block_hashes": [b"prompt-block-1", b"prompt-block-2"], "block_token_counts": [16, 16]},
    {"prefix_hash": b"h1", "hash_scheme": "sglang"},
    {"prefix_hash": b"h1", "model_id": "other"},
    {"prefix_hash": b"h1", "tenant_id": "other"},
]


async def answers(router: Router) -> list[Any]:
    await router.stub.ReportCacheState(iter(updates(router.log.now_us())))
    given: list[Any] = []
    for question in QUESTIONS:
        fields: dict[str, Any] = SCOPE | question
        answer = await router.stub.LookupRoute(LookupRouteRequest(**fields))
        answer.ClearField("lookup_latency_us")
        given.append(answer)
    state = await router.stub.GetCacheState(GetCacheStateRequest(tenant_id="t", model_id="m"))
    given.append(list(state.replicas))
    return given


async def test_lookups_over_three_lanes_answer_as_over_one() -> None:
    lanes = (Lanes(TenantId("t"), ModelId("m"), 3),)
    async with (
        served_router() as plain,
        served_router(FoldedLog(Layout(partitions=4, lanes=lanes))) as spread,
    ):
        spread_answers = await answers(spread)
        assert spread_answers == await answers(plain)
        holding = [fold.view.entries for fold in spread.log.folds]
    assert sum(entries > 0 for entries in holding) >= 2, "the replicas are in different partitions"


async def test_a_lane_that_is_not_proven_gives_no_hint_and_other_models_answer_on() -> None:
    async with served_router(FoldedLog(Layout(partitions=4))) as router:
        for model in MODELS:
            update = CacheStateUpdate(
                tenant_id="t",
                model_id=model,
                hash_scheme="vllm",
                replica_id="r",
                prefixes=[PrefixEntry(prefix_hash=b"p", token_count=64)],
            )
            await router.stub.ReportCacheState(iter([update]))
        layout = router.log.layout
        mine, others = (partition_of(TenantId("t"), ModelId(m), ReplicaId("r"), layout) for m in MODELS)
        assert mine != others
        router.log.unproven.add(mine)
        given = [
            await router.stub.LookupRoute(
                LookupRouteRequest(tenant_id="t", model_id=model, hash_scheme="vllm", prefix_hash=b"p")
            )
            for model in MODELS
        ]
    assert [answer.reason_code for answer in given] == ["NO_HINT", "PREFIX_MATCH"]
