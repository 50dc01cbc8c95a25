"""Credits of delivered hints, from lookups to the access counts of the fold."""

from __future__ import annotations

from typing import Any

import pytest

from inferencecache.router.crediting import Crediting
from inferencecache.schemas.policy import ResolvedPolicy
from inferencecache.schemas.records import Credit
from inferencecache.v1alpha1.inferencecache_pb2 import (
    CacheStateUpdate,
    LookupRouteRequest,
    PrefixEntry,
)
from tests.support.router import Router

SCOPE: dict[str, Any] = {"tenant_id": "t", "model_id": "m", "hash_scheme": "vllm"}


async def report(router: Router, replica: str, *blocks: bytes) -> None:
    entry = PrefixEntry(block_hashes=blocks, block_token_counts=[64] * len(blocks))
    update = CacheStateUpdate(**SCOPE, replica_id=replica, prefixes=[entry])
    assert (await router.stub.ReportCacheState(iter([update]))).accepted


async def look_up(router: Router, *blocks: bytes, **more: Any) -> str:
    chain = {"block_hashes": blocks, "block_token_counts": [64] * len(blocks)}
    return (await router.stub.LookupRoute(LookupRouteRequest(**SCOPE | chain | more))).reason_code


def credits_in_log(router: Router) -> list[Credit]:
    return [
        record
        for subject, batch in router.log.messages
        if subject.endswith("._.r")
        for record in batch.records
        if isinstance(record, Credit)
    ]


@pytest.mark.rule("WIRE-079", "IDX-144", "IDX-145", "IDX-146", "IDX-147")
async def test_delivered_matches_of_tenants_that_evict_by_use_reach_the_access_counts(router: Router) -> None:
    log = router.log
    await report(router, "r1", b"b1", b"b2", b"b3")
    await report(router, "r2", b"b1")
    await report(router, "r3", b"x")
    crediting = Crediting(log, "id", log.credited)
    before = [(fold.view.digest, fold.view.access_digest) for fold in log.folds]

    assert await look_up(router, b"b1", b"b2", b"b3") == "PREFIX_MATCH"
    await crediting.publish(log.layout)
    assert not credits_in_log(router), "the tenant evicts by age"

    # Blocks of r2 are few enough that the floor removes it from the answer.
    log.apply(ResolvedPolicy("t", eviction="LFU", minimum_matched_tokens=128))
    assert await look_up(router, b"b1", b"b2", b"b3") == "PREFIX_MATCH"
    assert await look_up(router, b"b1", b"b2") == "PREFIX_MATCH"
    assert await look_up(router, b"b1") == "AFFINITY_HINT"
    await crediting.publish(log.layout)
    (credit,) = credits_in_log(router)
    (holds,) = credit.holds
    assert (holds.tenant, holds.model, holds.scheme, holds.replica) == ("t", "m", "vllm", "r1")
    assert sum(int.from_bytes(holds.counts[at : at + 4], "little") for at in range(0, 12, 4)) == 5

    after = [(fold.view.digest, fold.view.access_digest) for fold in log.folds]
    assert [digest for digest, _ in before] == [digest for digest, _ in after]
    assert before != after, "accesses are counted"


async def test_credits_go_to_the_partition_of_their_replica_in_messages_that_fit(router: Router) -> None:
    log = router.log
    log.payload_limit = 8192
    log.apply(ResolvedPolicy("t", eviction="lfu"), ResolvedPolicy("u", eviction="lfu"))
    chain = [number.to_bytes(8, "big") for number in range(400)]
    for tenant in ("t", "u"):
        entry = PrefixEntry(block_hashes=chain, block_token_counts=[64] * 400)
        update = CacheStateUpdate(**SCOPE | {"tenant_id": tenant, "replica_id": "r1"}, prefixes=[entry])
        await router.stub.ReportCacheState(iter([update]))
        for model in ("m", "n"):
            await look_up(router, *chain, tenant_id=tenant, model_id=model)
    await Crediting(log, "id", log.credited).publish(log.layout)
    credited = [holds for credit in credits_in_log(router) for holds in credit.holds]
    assert sorted((holds.tenant, len(holds.keys) // 8) for holds in credited) == [("t", 400), ("u", 400)]


@pytest.mark.rule("IDX-147")
async def test_credits_that_the_log_does_not_store_are_given_up(router: Router) -> None:
    log = router.log
    log.apply(ResolvedPolicy("t", eviction="lfu"))
    await report(router, "r1", b"b1")
    await look_up(router, b"b1")
    log.is_storing = False
    crediting = Crediting(log, "id", log.credited)
    await crediting.publish(log.layout)
    log.is_storing = True
    await crediting.publish(log.layout)
    assert not credits_in_log(router)
