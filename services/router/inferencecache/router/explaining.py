"""Why this router would answer a lookup as it does: a request on NATS, with an answer for people.

The request is a `LookupRouteRequest`. It changes nothing: no work is assigned, nothing credited or counted.
Prompts travel in it as they do over gRPC, and are not in the answer.
"""

from __future__ import annotations

import msgspec
from google.protobuf.message import DecodeError

from inferencecache.core.log import Log, Message
from inferencecache.core.log.subjects import EXPLAIN_SUBJECT, explain_subject
from inferencecache.router.answering import answer_requests
from inferencecache.router.views import Explain
from inferencecache.schemas.explanations import Explanation
from inferencecache.v1alpha1.inferencecache_pb2 import LookupRouteRequest


class Explaining:
    """Has lookups explained, as one of all routers and as the router `id_`."""

    def __init__(self, id_: str, explain: Explain) -> None:
        self._id = id_
        self._explain = explain

    async def serve_any(self, log: Log) -> None:
        """Answer as one of all routers, until cancelled."""
        await answer_requests(log, EXPLAIN_SUBJECT, lambda message: self._answer(log, message))

    async def serve_own(self, log: Log) -> None:
        """Answer those who ask this router, until cancelled."""
        await answer_requests(log, explain_subject(self._id), lambda message: self._answer(log, message))

    async def explained(self, payload: bytes) -> Explanation:
        """The answer to a request."""
        try:
            message = LookupRouteRequest.FromString(payload)
        except DecodeError:
            return Explanation(self._id, error="the request is no LookupRouteRequest")
        return msgspec.structs.replace(await self._explain(message), router=self._id)

    async def _answer(self, log: Log, message: Message) -> None:
        await log.send(message.reply, msgspec.json.encode(await self.explained(message.data)))
