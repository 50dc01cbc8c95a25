"""Asking routers where a prompt should go, as a gateway does: short deadline, never an error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from inferencecache.cli.stack.plan import HASH_SCHEME, TENANT, RouterAddress
from inferencecache.client import AsyncClient, Prompt

DEADLINE_S: Final = 1.0


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
        self._client = AsyncClient(
            address.grpc, tenant=TENANT, hash_scheme=HASH_SCHEME, deadline_s=DEADLINE_S
        )

    async def lookup(self, tokens: Sequence[int]) -> Hint:
        """Where a prompt should go; a reason of the client's own instead of an error."""
        hint = await self._client.lookup(self._model, Prompt.of_tokens(tokens))
        ranked = hint.replicas
        return Hint(hint.reason, tuple(each.id for each in ranked), ranked[0].matched_tokens if ranked else 0)

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()
