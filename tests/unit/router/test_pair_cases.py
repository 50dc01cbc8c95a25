"""The worked cases of `LookupPDRoute` in docs/rpc-cases.md, through the served router."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from inferencecache.core.fingerprint import prefix_digests
from inferencecache.core.index.affinity import pick, seed_of
from inferencecache.core.index.request import Inputs
from inferencecache.core.index.work import AssignedWork
from inferencecache.core.policy import resolve_topology
from inferencecache.router import pair_lookup
from inferencecache.schemas.ids import PROBE_TENANT, ReplicaId
from inferencecache.schemas.policy import ResolvedPolicy
from inferencecache.v1alpha1.inferencecache_pb2 import (
    CacheStateUpdate,
    LookupPDRouteRequest,
    LookupPDRouteResponse,
    PrefixEntry,
    ReplicaStats,
)
from tests.support.resources import topology
from tests.support.router import FoldedLog, Router, served_router

SCOPE: dict[str, Any] = {"tenant_id": "t", "model_id": "m", "hash_scheme": "vllm"}
CHAIN = [f"b{number}".encode() for number in range(1, 9)]
PROMPT = [b"prompt-block-1", b"prompt-block-2"]


@pytest.fixture
async def router() -> AsyncIterator[Router]:
    """A served router that knows `serving/pd`, and `serving/half` whose decode pool has nobody in it."""
    log = FoldedLog()
    log.work = AssignedWork()
    prefill = [{"name": "p", "replicaIDs": ["p2", "p1"]}]
    decode = [{"name": "a", "replicaIDs": ["d2"]}, {"name": "b", "replicaIDs": ["d1"]}]
    nobody = [{"name": "d", "matchLabels": {"phase": "decode"}}]
    for ref, pools in (("serving/pd", decode), ("serving/half", nobody)):
        made = topology(ref, prefillPools=prefill, decodePools=pools, transport="NIXL")
        assert log.intent.set_topology(ref, msgspec.json.encode(resolve_topology(made)))
    async with served_router(log) as router:
        yield router


async def report(router: Router, replica: str, *blocks: bytes, **more: Any) -> None:
    entry = PrefixEntry(block_hashes=blocks, block_token_counts=[64] * len(blocks))
    update = CacheStateUpdate(**SCOPE | {"replica_id": replica, "prefixes": [entry] if blocks else []} | more)
    assert (await router.stub.ReportCacheState(iter([update]))).accepted


async def report_chains(router: Router) -> None:
    """The state of P4."""
    await report(router, "p1", *CHAIN[:4])
    await report(router, "p2", *CHAIN[:1])
    await report(router, "x", *CHAIN)


async def ask(router: Router, **more: Any) -> LookupPDRouteResponse:
    counts = [64] * len(more.get("block_hashes", CHAIN))
    fields = SCOPE | {"pd_topology_ref": "serving/pd", "block_hashes": CHAIN, "block_token_counts": counts}
    answer = await router.stub.LookupPDRoute(LookupPDRouteRequest(**fields | more))
    has_hint = answer.reason_code in {"PREFIX_MATCH", "TENANT_HOT", "AFFINITY_HINT"}
    assert bool(answer.prefill_replica_id) == bool(answer.decode_replica_id) == has_hint
    assert bool(answer.transport_hint) == has_hint
    return answer


@pytest.mark.rule("RPC-P1", "RPC-P2", "RPC-P3", "WIRE-121", "WIRE-145")
@pytest.mark.parametrize(
    ("ref", "reason"),
    [
        ("", "NO_HINT"),
        ("serving/other", "UNKNOWN_TOPOLOGY"),
        ("pd", "UNKNOWN_TOPOLOGY"),
        ("serving/half", "EMPTY_POOL"),
    ],
)
async def test_without_a_topology_with_both_phases_there_is_no_pair(
    router: Router, ref: str, reason: str
) -> None:
    await report_chains(router)
    assert (await ask(router, pd_topology_ref=ref)) == LookupPDRouteResponse(reason_code=reason)


@pytest.mark.rule("RPC-P4", "WIRE-121")
async def test_the_longest_match_in_the_prefill_pools_wins(router: Router) -> None:
    await report_chains(router)
    assert await ask(router) == LookupPDRouteResponse(
        prefill_replica_id="p1", decode_replica_id="d1", transport_hint="NIXL", reason_code="PREFIX_MATCH"
    )


@pytest.mark.rule("RPC-P5")
async def test_a_pool_that_holds_nothing_is_picked_from_by_the_seed(router: Router) -> None:
    await report(router, "x", *CHAIN)
    expected = pick(seed_of(Inputs(PROMPT, [16, 16])), [ReplicaId("p1"), ReplicaId("p2")])
    answer = await ask(router, block_hashes=PROMPT, block_token_counts=[16, 16])
    assert (answer.reason_code, answer.prefill_replica_id, answer.decode_replica_id) == (
        "AFFINITY_HINT",
        expected,
        "d1",
    )


@pytest.mark.rule("RPC-P6", "WIRE-121", "WIRE-144", "WIRE-145")
async def test_the_outermost_unknown_key_is_named(router: Router) -> None:
    assert (await ask(router)).reason_code == "NO_HINT"
    await report(router, "x", *CHAIN[:1])
    for keys, reason in (
        ({"tenant_id": "u", "model_id": "n"}, "UNKNOWN_TENANT"),
        ({"model_id": "n", "hash_scheme": "y"}, "UNKNOWN_MODEL"),
        ({"hash_scheme": "y"}, "UNKNOWN_HASH_SCHEME"),
    ):
        assert (await ask(router, **keys)).reason_code == reason


@pytest.mark.rule("RPC-P7")
async def test_decode_requests_spread_by_free_capacity(router: Router) -> None:
    await report_chains(router)
    await report(router, "d1", stats=ReplicaStats(pressure=0.6))
    assert [(await ask(router)).decode_replica_id for _ in range(4)] == ["d2", "d2", "d1", "d2"]


@pytest.mark.rule("RPC-P8")
async def test_saturated_decode_replicas_take_turns(router: Router) -> None:
    await report_chains(router)
    for replica in ("d1", "d2"):
        await report(router, replica, stats=ReplicaStats(pressure=1.0))
    assert [(await ask(router)).decode_replica_id for _ in range(4)] == ["d1", "d2", "d1", "d2"]


async def test_statistics_past_the_time_to_live_say_nothing_about_a_decode_replica(router: Router) -> None:
    await report_chains(router)
    old = router.log.now_us() - 31 * 60_000_000
    await report(router, "d1", stats=ReplicaStats(pressure=1.0), timestamp_us=old)
    assert (await ask(router)).decode_replica_id == "d1"


@pytest.mark.rule("RPC-P9")
async def test_a_policy_that_requires_a_chain_holds_here_as_well(router: Router) -> None:
    await report_chains(router)
    router.log.apply(ResolvedPolicy("t", require_chain=True))
    answer = await ask(router, block_hashes=[], block_token_counts=[], token_ids=range(64))
    assert answer.reason_code == "POLICY_REQUIRES_CHAIN"
    assert (await ask(router)).reason_code == "PREFIX_MATCH"


@pytest.mark.rule("RPC-P10")
async def test_a_hot_replica_of_the_prefill_pools_is_a_hint(router: Router) -> None:
    for replica, hit_rate in (("p2", 0.5), ("x", 0.9)):
        await report(router, replica, b"q", stats=ReplicaStats(hit_rate=hit_rate))
    answer = await ask(router, block_hashes=[], block_token_counts=[], prefix_hash=b"unknown")
    assert (answer.reason_code, answer.prefill_replica_id, answer.decode_replica_id) == (
        "TENANT_HOT",
        "p2",
        "d1",
    )


@pytest.mark.rule("RPC-P11", "WIRE-046", "WIRE-134", "WIRE-004")
@pytest.mark.parametrize("keys", [{"tenant_id": PROBE_TENANT}, {"hash_scheme": ""}])
async def test_the_reserved_tenant_and_callers_without_a_scheme_get_no_hint(
    router: Router, keys: dict[str, str]
) -> None:
    await report_chains(router)
    assert await ask(router, **keys) == LookupPDRouteResponse(reason_code="NO_HINT")


async def test_tokens_are_fingerprinted_and_adapters_kept_apart(router: Router) -> None:
    await report(router, "p1", b"other")
    await report(router, "p2", *prefix_digests(range(64), 16), adapter_id="a")
    by_tokens: dict[str, Any] = {"block_hashes": [], "block_token_counts": [], "token_ids": range(64)}
    assert (await ask(router, **by_tokens, adapter_id="a")).reason_code == "PREFIX_MATCH"
    assert (await ask(router, **by_tokens, adapter_id="b")).reason_code == "AFFINITY_HINT"


async def test_a_pair_that_cannot_be_decided_is_no_hint(
    router: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(pair_lookup, "route_pair", broken)
    assert await ask(router) == LookupPDRouteResponse(reason_code="NO_HINT")


@pytest.mark.rule("WIRE-079", "WIRE-022")
async def test_the_replica_that_was_named_is_credited_in_a_tenant_that_evicts_by_use(router: Router) -> None:
    await report_chains(router)
    await ask(router)
    assert not router.log.credited.take()
    router.log.work = None
    router.log.apply(ResolvedPolicy("t", eviction="lfu"))
    async with served_router(router.log) as fresh:
        await ask(fresh)
    ((holder, accesses),) = router.log.credited.take().items()
    assert (holder.replica, [len(keys) for keys in accesses]) == ("p1", [4])
