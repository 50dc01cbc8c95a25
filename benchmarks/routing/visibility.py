"""How long after an engine's store every router's view shows it, while the replay runs.

Now and then a store is followed: each router is asked, without being told to assign or count anything,
until it knows that the engine holds the store's last block.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from benchmarks.routing.stack import MODEL
from inferencecache.cli.load.probe import ASK_AGAIN_GROWTH, ASK_AGAIN_S
from inferencecache.cli.stack.plan import HASH_SCHEME
from inferencecache.core.log import Bucket, Log, NoAnswerError
from inferencecache.core.log.subjects import MEMBERS, explain_subject
from inferencecache.schemas.explanations import Explanation
from inferencecache.schemas.members import RouterMember
from inferencecache.v1alpha1.inferencecache_pb2 import LookupRouteRequest

EVERY_S: Final = 0.5
LIMIT_S: Final = 5.0


class Visibility:
    """Follows a store of one tenant at a time through a started connection."""

    def __init__(self, log: Log, routers: Sequence[str], tenant: str) -> None:
        self._log = log
        self._routers = routers
        self._tenant = tenant
        self._loop = asyncio.get_running_loop()
        self._following: asyncio.Task[None] | None = None
        self._next_at = 0.0
        self.seen_s: list[float] = []
        self.never = 0

    def stored(self, engine: str, last_block: bytes) -> None:
        """The store leaves the engine now; follow it unless another is followed or one was just now."""
        now = self._loop.time()
        if now < self._next_at or (self._following is not None and not self._following.done()):
            return
        self._next_at = now + EVERY_S
        self._following = asyncio.create_task(self._follow(engine, last_block, now))

    async def finish(self) -> None:
        """Let what is followed be seen."""
        if self._following is not None:
            await self._following

    async def _follow(self, engine: str, last_block: bytes, stored_at: float) -> None:
        payload = LookupRouteRequest(
            tenant_id=self._tenant, model_id=MODEL, hash_scheme=HASH_SCHEME, prefix_hash=last_block
        ).SerializeToString()
        asked = (self._seen_at(router, payload, engine, stored_at + LIMIT_S) for router in self._routers)
        for seen_at in await asyncio.gather(*asked):
            if seen_at is None:
                self.never += 1
            else:
                self.seen_s.append(seen_at - stored_at)

    async def _seen_at(self, router: str, payload: bytes, engine: str, give_up_at: float) -> float | None:
        pause_s = ASK_AGAIN_S
        while self._loop.time() < give_up_at:
            try:
                answer = await self._log.request(explain_subject(router), payload, timeout_s=LIMIT_S)
            except NoAnswerError:
                return None
            explanation = msgspec.json.decode(answer.data, type=Explanation)
            if any(each.replica == engine and each.matched_tokens for each in explanation.replicas):
                return self._loop.time()
            await asyncio.sleep(pause_s)
            pause_s *= ASK_AGAIN_GROWTH
        return None


async def router_ids(log: Log) -> list[str]:
    """The routers by their entries among the members."""
    entries = await Bucket(log, MEMBERS).entries(keys="router.*")
    return sorted(msgspec.json.decode(entry.value, type=RouterMember).id for entry in entries)
