"""Asking routers where a prompt should go, as a gateway does: short deadline, never an error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import grpc
import grpc.aio

from inferencecache.cli.stack.plan import HASH_SCHEME, TENANT, RouterAddress
from inferencecache.v1alpha1 import inferencecache_pb2 as pb
from inferencecache.v1alpha1.inferencecache_pb2_grpc import InferenceCacheStub

DEADLINE_S: Final = 1.0
UNREACHABLE: Final = "UNREACHABLE"
"""Our own reason: the router did not answer in time; the client routes as usual."""


@dataclass(frozen=True)
class Hint:
    """An answer of `LookupRoute`: reason code, replicas best first, tokens the first one holds."""

    reason: str
    replicas: tuple[str, ...] = ()
    matched_tokens: int = 0


class Router:
    """A connection to one router."""

    def __init__(self, address: RouterAddress, model: str) -> None:
        self.name = address.name
        self._model = model
        self._channel = grpc.aio.insecure_channel(
            address.grpc,
            options=(("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 1000)),
        )
        self._stub = InferenceCacheStub(self._channel)

    async def lookup(self, tokens: Sequence[int]) -> Hint:
        """Where a prompt should go; `UNREACHABLE` instead of an error."""
        request = pb.LookupRouteRequest(
            model_id=self._model, tenant_id=TENANT, hash_scheme=HASH_SCHEME, token_ids=tokens
        )
        try:
            answer = await self._stub.LookupRoute(request, timeout=DEADLINE_S)
        except grpc.aio.AioRpcError:
            return Hint(UNREACHABLE)
        scores = answer.replica_scores
        return Hint(
            answer.reason_code,
            tuple(score.replica_id for score in scores),
            scores[0].matched_tokens if scores else 0,
        )

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()
