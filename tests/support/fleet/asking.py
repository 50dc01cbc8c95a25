"""A client that asks every router the same lookups again and again, and forgets no answer and no failure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

import grpc
import grpc.aio

from inferencecache.cli.stack.plan import HASH_SCHEME, TENANT, RouterAddress
from inferencecache.v1alpha1 import inferencecache_pb2 as pb
from inferencecache.v1alpha1.inferencecache_pb2_grpc import InferenceCacheStub
from tests.support.waiting import set_within

if TYPE_CHECKING:
    from inferencecache.v1alpha1.inferencecache_pb2_grpc import InferenceCacheAsyncStub  # of the types only

MODEL: Final = "demo-model"
PAUSE_S: Final = 0.02
LIMIT_S: Final = 5.0


class Answer(NamedTuple):
    """What a router said at a moment of the monotonic clock; `matched` are tokens by replica."""

    router: str
    at: float
    reason: str
    matched: dict[str, int]


class Failure(NamedTuple):
    router: str
    code: str
    at: float


class Asking:
    """Asks for one prompt, which `replica` holds, until `stop` is set."""

    def __init__(self, routers: Sequence[RouterAddress], prompt: Sequence[int], replica: str) -> None:
        self.stop = asyncio.Event()
        self.answers: list[Answer] = []
        self.failures: list[Failure] = []
        self.began = time.monotonic()
        self.replica = replica
        self._routers = routers
        self._prompt = prompt

    async def run(self) -> None:
        await asyncio.gather(*(self._ask_on(router) for router in self._routers))

    def found(self, answer: Answer) -> bool:
        """Did it say that the replica holds the prompt?"""
        return answer.reason == "PREFIX_MATCH" and self.replica in answer.matched

    def amiss(self, *routers: str) -> list[str]:
        """What was not answered, or without the replica: a line for each router and kind of failure.

        Of these routers, or of all.
        """
        began = self.began
        whole = [
            (answer.router, answer.reason, answer.at) for answer in self.answers if not self.found(answer)
        ]
        whole += self.failures
        times: dict[tuple[str, str], list[float]] = {}
        for router, what, at in whole:
            if router in (routers or {router}):
                times.setdefault((router, what), []).append(at - began)
        return [
            f"{router}: {len(at)} times {what}, from {at[0]:.2f} to {at[-1]:.2f} s"
            for (router, what), at in times.items()
        ]

    def last(self, router: str) -> Answer | None:
        """A router's latest answer."""
        return next((answer for answer in reversed(self.answers) if answer.router == router), None)

    def forget(self) -> None:
        """What was answered until now does not count."""
        self.answers.clear()
        self.failures.clear()
        self.began = time.monotonic()

    async def _ask_on(self, router: RouterAddress) -> None:
        options = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 500)]
        async with grpc.aio.insecure_channel(router.grpc, options=options) as channel:
            stub = InferenceCacheStub(channel)
            while not self.stop.is_set():
                try:
                    answer = await ask(stub, self._prompt)
                except grpc.aio.AioRpcError as error:
                    self.failures.append(Failure(router.name, error.code().name, time.monotonic()))
                else:
                    self.answers.append(
                        Answer(router.name, time.monotonic(), answer.reason_code, matched_by(answer))
                    )
                await set_within(self.stop, PAUSE_S)


async def ask(stub: InferenceCacheAsyncStub, prompt: Sequence[int]) -> pb.LookupRouteResponse:
    """One lookup. Raises AioRpcError."""
    request = pb.LookupRouteRequest(
        model_id=MODEL, tenant_id=TENANT, hash_scheme=HASH_SCHEME, token_ids=prompt
    )
    return await stub.LookupRoute(request, timeout=LIMIT_S)


def matched_by(answer: pb.LookupRouteResponse) -> dict[str, int]:
    """Tokens by replica, of those with any."""
    return {score.replica_id: score.matched_tokens for score in answer.replica_scores if score.matched_tokens}


@asynccontextmanager
async def answering(asking: Asking) -> AsyncIterator[Asking]:
    """Ask inside the block."""
    running = asyncio.create_task(asking.run())
    try:
        yield asking
    finally:
        asking.stop.set()
        await running
