"""What an engine keeps stays in the index for as long as its sidecar says so, however short the TTL."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from inferencecache.core.log import Bucket
from inferencecache.core.log.subjects import POLICY, POLICY_KEY
from inferencecache.core.policy import encode_policy_set
from inferencecache.router.following import IndexFollowing
from inferencecache.router.lookup import Lookup
from inferencecache.router.metrics import ServerMetrics
from inferencecache.schemas.policy import PolicySet, ResolvedPolicy
from inferencecache.v1alpha1.inferencecache_pb2 import LookupRouteRequest
from tests.support.dataplane import TENANT, DataPlane, fold_of
from tests.support.engine import BLOCK, Engine
from tests.support.sidecar import Running, keys, sidecars
from tests.support.waiting import a_moment, eventually

TTL_S = 5
SWEEP_S = 1
SLACK_S = 3
"""Deltas, ticks and a busy machine."""
WATCHED_S = 12
PROMPT = tuple(range(1, 1 + 16 * BLOCK))


def asked_of(following: IndexFollowing) -> Lookup:
    return Lookup(following, ServerMetrics(CollectorRegistry()), BLOCK)


async def hinted(lookup: Lookup) -> set[str]:
    """The replicas of a prefix match for the prompt."""
    answer = await lookup.answer(
        LookupRouteRequest(model_id="m", tenant_id=TENANT, hash_scheme="vllm", token_ids=PROMPT)
    )
    return {score.replica_id for score in answer.replica_scores if answer.reason_code == "PREFIX_MATCH"}


async def set_ttl(plane: DataPlane, ttl_s: int) -> int:
    """Apply a policy that gates no match; its revision."""
    policy = ResolvedPolicy(
        TENANT, eviction_ttl_ms=ttl_s * 1000, routing_floor_score=0.0, affinity_routing=False
    )
    policies = encode_policy_set(PolicySet(policies=(policy,)))
    return await Bucket(await plane.log(), POLICY).put(POLICY_KEY, policies)


async def test_a_prefix_that_is_never_stored_again_stays_while_its_sidecar_is_alive_and_else_goes(
    plane: DataPlane,
) -> None:
    indexer = await plane.owner(sweep_interval_s=SWEEP_S)
    following = await plane.follower()
    revision = await set_ttl(plane, TTL_S)
    folds = [fold_of(partition) for partition in indexer.partitions]
    await eventually(lambda: all(fold.policy.revision == revision for fold in folds))
    lookup = asked_of(following)
    blocks = keys(*PROMPT)
    async with Engine() as engine, sidecars(plane.server.url) as start:

        def beside(replica: str) -> Running:
            return start(
                f"--replica-id={replica}",
                "--hash-scheme=vllm",
                "--alive-interval=1s",
                f"--engine-endpoint={engine.live_endpoint}",
                f"--replay-endpoint={engine.replay_endpoint}",
                f"--engine-metrics-url={engine.metrics_url}",
            )

        await engine.store(list(range(1, 1 + len(blocks))), PROMPT)
        beside("watched")
        left = beside("left")
        await eventually(lambda: entries(following) == 2 * len(blocks))
        assert await hinted(lookup) == {"watched", "left"}

        assert await left.stop() == 0
        stopped_us = now_us(following)
        forgotten_us = swept_us = 0
        while (passed_us := now_us(following) - stopped_us) < WATCHED_S * 1_000_000:
            found = await hinted(lookup)
            assert "watched" in found, f"lost after {passed_us / 1e6:.1f} s"
            if found == {"watched"}:
                forgotten_us = forgotten_us or passed_us
            if entries(following) == len(blocks):
                swept_us = swept_us or passed_us
            await a_moment()
        assert TTL_S - SLACK_S <= forgotten_us / 1e6 <= TTL_S + SLACK_S
        assert TTL_S - SLACK_S <= swept_us / 1e6 <= TTL_S + SWEEP_S + SLACK_S


def entries(following: IndexFollowing) -> int:
    return sum(replica.view.entries for replica in following.replicas)


def now_us(following: IndexFollowing) -> int:
    return max(following.now_us(number) for number in range(len(following.replicas)))
