"""How requests reach engines: by a policy of the generator's own, or by asking the routers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import cycle
from typing import Final, Protocol

import grpc
import grpc.aio

from benchmarks.routing.baselines import RoundRobin
from benchmarks.routing.engine import Engine
from benchmarks.routing.figures import UNREACHABLE, Account
from benchmarks.routing.publishing import Clock, PublishingEngine
from benchmarks.routing.stack import MODEL
from benchmarks.routing.trace import Request
from inferencecache.cli.stack.plan import HASH_SCHEME, RouterAddress
from inferencecache.v1alpha1 import inferencecache_pb2 as pb
from inferencecache.v1alpha1.inferencecache_pb2_grpc import InferenceCacheStub

DEADLINE_S: Final = 1.0


class Chooser(Protocol):
    """A policy that needs no router."""

    def choose(self, now_s: float) -> Engine: ...


class Baseline:
    """Sends every request where a chooser says."""

    def __init__(self, account: Account, chooser: Chooser) -> None:
        self.account = account
        self._chooser = chooser

    def send(self, request: Request, now_s: float) -> None:
        served = self._chooser.choose(now_s).serve(request, now_s)
        self.account.count(request, served)


class Routers:
    """The routers, asked in turn."""

    def __init__(self, addresses: Sequence[RouterAddress]) -> None:
        self._channels = [grpc.aio.insecure_channel(address.grpc) for address in addresses]
        self._turn = cycle([InferenceCacheStub(channel) for channel in self._channels])
        self.took_s: list[float] = []

    async def ask(self, tenant: str, request: Request, hashes: Sequence[bytes]) -> tuple[str, str]:
        """Reason code and the first replica, empty when the answer names none."""
        question = pb.LookupRouteRequest(
            tenant_id=tenant,
            model_id=MODEL,
            hash_scheme=HASH_SCHEME,
            block_hashes=hashes,
            block_token_counts=request.counts,
        )
        began = time.perf_counter()
        try:
            answer = await next(self._turn).LookupRoute(question, timeout=DEADLINE_S)
        except grpc.aio.AioRpcError:
            return UNREACHABLE, ""
        self.took_s.append(time.perf_counter() - began)
        scores = answer.replica_scores
        return answer.reason_code, scores[0].replica_id if scores else ""

    async def close(self) -> None:
        await asyncio.gather(*(channel.close() for channel in self._channels))


class Gateway:
    """Follows the hints of one tenant, `AFFINITY_HINT` included, and goes round robin without one.

    `stored` is told of every store as it leaves the engine: who stores, and the store's last block.
    """

    def __init__(
        self,
        account: Account,
        routers: Routers,
        publishing: Mapping[str, PublishingEngine],
        clock: Clock,
        stored: Callable[[str, bytes], None] | None = None,
    ) -> None:
        self.account = account
        self._routers = routers
        self._publishing = publishing
        self._clock = clock
        self._stored = stored
        self._without_hint = RoundRobin(account.engines)

    async def send(self, request: Request, hashes: Sequence[bytes]) -> None:
        reason, replica = await self._routers.ask(self.account.policy, request, hashes)
        self.account.reasons[reason] += 1
        now_s = self._clock.now_s
        name = replica or self._without_hint.choose(now_s).name
        publishing = self._publishing[name]
        served = publishing.engine.serve(request, now_s)
        self.account.count(request, served)
        follow = partial(self._stored, name, hashes[-1]) if self._stored is not None else None
        publishing.tell(request.blocks, served, follow)
