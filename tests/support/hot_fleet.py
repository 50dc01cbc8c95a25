"""Engines with real sidecars that hold one hot prompt, which lookups ask for, and store others meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from prometheus_client import CollectorRegistry

from inferencecache.core.log import Bucket
from inferencecache.core.log.subjects import POLICY, POLICY_KEY
from inferencecache.core.policy import encode_policy_set
from inferencecache.router.following import IndexFollowing
from inferencecache.router.lookup import Lookup
from inferencecache.router.metrics import ServerMetrics
from inferencecache.schemas.policy import PolicySet, ResolvedPolicy
from inferencecache.v1alpha1.inferencecache_pb2 import LookupRouteRequest
from tests.support.dataplane import MODEL, TENANT, DataPlane
from tests.support.engine import BLOCK, Engine, numbered_prompts
from tests.support.sidecar import keys, sidecars
from tests.support.waiting import a_moment, eventually

HOT = tuple(range(1_000_000, 1_000_000 + 32 * BLOCK))
HOT_HASHES = tuple(range(1_000_000, 1_000_000 + 32))
SCHEME = "vllm"


class Fleet:
    """`engines` of one tenant and model; `known` are the keys that each must be said to hold.

    A policy lets every replica that holds the hot prompt count.
    """

    def __init__(self, plane: DataPlane, engines: int = 3) -> None:
        self._plane = plane
        self._engines = {f"engine-{number}": Engine() for number in range(engines)}
        self.known: dict[str, set[bytes]] = {replica: set() for replica in self._engines}
        self.answers: Counter[tuple[str, int]] = Counter()
        """Answers of lookups so far, by reason and number of replicas."""
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        policy = ResolvedPolicy(TENANT, routing_floor_score=0.0, affinity_routing=False)
        policies = encode_policy_set(PolicySet(policies=(policy,)))
        await Bucket(await self._plane.log(), POLICY).put(POLICY_KEY, policies)
        start = await self._stack.enter_async_context(
            sidecars(self._plane.server.url, f"--hash-scheme={SCHEME}")
        )
        for replica, engine in self._engines.items():
            await self._stack.enter_async_context(engine)
            start(
                f"--replica-id={replica}",
                f"--engine-endpoint={engine.live_endpoint}",
                f"--replay-endpoint={engine.replay_endpoint}",
                f"--engine-metrics-url={engine.metrics_url}",
            )
            await engine.store(HOT_HASHES, HOT)
            self.known[replica] |= set(keys(*HOT))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @asynccontextmanager
    async def loaded(self) -> AsyncIterator[None]:
        """Every engine stores prompts, as fast as a socket is read, while entered."""
        loads = [
            asyncio.create_task(self._load(engine, self.known[replica]))
            for replica, engine in self._engines.items()
        ]
        try:
            yield
        finally:
            await ended(*loads)

    @asynccontextmanager
    async def asked(self, following: IndexFollowing) -> AsyncIterator[None]:
        """The hot prompt is looked up again and again while entered."""
        asking = asyncio.create_task(self._ask(following))
        try:
            yield
        finally:
            await ended(asking)

    def is_known_to(self, following: IndexFollowing) -> bool:
        """Does the view hold as much as the engines do?"""
        return sum(replica.view.entries for replica in following.replicas) == sum(
            map(len, self.known.values())
        )

    async def is_hot(self, following: IndexFollowing) -> None:
        """Wait until a lookup finds the hot prompt at every engine."""
        lookup = _lookup_of(following)
        await eventually(lambda: self._answer(lookup), within_s=30)

    async def _load(self, engine: Engine, known: set[bytes]) -> None:
        for hashes, tokens in numbered_prompts():
            await engine.store(hashes, tokens)
            known |= set(keys(*tokens))
            await a_moment()

    async def _ask(self, following: IndexFollowing) -> None:
        lookup = _lookup_of(following)
        while True:
            await self._answer(lookup)
            await a_moment()

    async def _answer(self, lookup: Lookup) -> bool:
        request = LookupRouteRequest(model_id=MODEL, tenant_id=TENANT, hash_scheme=SCHEME, token_ids=HOT)
        answer = await lookup.answer(request)
        self.answers[answer.reason_code, len(answer.replica_scores)] += 1
        return len(answer.replica_scores) == len(self._engines)


async def ended(*tasks: asyncio.Task[None]) -> None:
    """Cancel them; what they failed with is raised."""
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _lookup_of(following: IndexFollowing) -> Lookup:
    return Lookup(following, ServerMetrics(CollectorRegistry()), BLOCK)
