"""Which endpoint a request goes to: its prompt, the lookup, the pick, and what is learned afterwards.

Time is bounded, and nothing here fails: a prompt that cannot be read or looked up in time is picked for
as one of unknown content. What a request will cost is assigned to whoever is picked, hint or no hint, so
that all routers see it; an endpoint that did not take it is spared again.
"""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry

from inferencecache.core.gateway import Endpoint, Endpoints, Prompt, Refusals, Unreadable, pick, read_prompt
from inferencecache.core.gateway.open_work import OpenWork
from inferencecache.core.gateway.refusals import REFUSING
from inferencecache.core.index.reason import Reason
from inferencecache.core.index.request import RouteRequest
from inferencecache.core.index.routing import UNANSWERED
from inferencecache.core.service import get_logger
from inferencecache.router.gateway.exchange import Answered, Asked, Chosen
from inferencecache.router.gateway.metrics import GatewayMetrics
from inferencecache.router.gateway.settings import GatewaySettings
from inferencecache.router.lookup import Consulted, Lookup
from inferencecache.router.tokenizing import Refusal, Tokenized, Tokenizing
from inferencecache.schemas.ids import TenantId

FOLLOWED: Final = frozenset({Reason.PREFIX_MATCH, Reason.AFFINITY_HINT})
"""Hints that name a replica for this prompt; one that is merely warm gives way to one that is idle."""
BYTES_A_TOKEN: Final = 4
"""What a token of a body is taken for whose tokens are not known."""
TOO_LARGE: Final = "BODY_TOO_LARGE"
UNSEEN: Final = "BODY_UNSEEN"
FAILED: Final = "FAILED"
NO_ENDPOINT: Final = "NO_ENDPOINT"

log = get_logger("gateway")


class _Sought(NamedTuple):
    """What is known of a request before the pick; `tokens` its length, 0 where it has no prompt."""

    consulted: Consulted
    reason: str
    tokens: int


class Visit:
    """A request that is under way."""

    def __init__(self, chosen: Chosen, sought: _Sought, endpoints: tuple[Endpoint, ...]) -> None:
        self.chosen = chosen
        self.sought = sought
        self.endpoints = endpoints
        self.at: Endpoint | None = endpoints[0] if endpoints else None
        """Where it is counted now, since `assigned_s`."""
        self.assigned_s = 0.0

    def tokens_at(self, endpoint: Endpoint) -> int:
        """Prompt tokens that the endpoint's replica will have to compute."""
        for score in self.sought.consulted.decision.scores:
            if score.replica == endpoint.replica:
                return max(0, self.sought.tokens - score.matched_tokens)
        return self.sought.tokens


class Choosing:
    """Picks for all requests of one router; `endpoints` is kept current by a source."""

    def __init__(
        self,
        settings: GatewaySettings,
        lookup: Lookup,
        tokenizing: Tokenizing,
        block_size: int,
        registry: CollectorRegistry,
    ) -> None:
        self.endpoints = Endpoints()
        self._settings = settings
        self._lookup = lookup
        self._tokenizing = tokenizing
        self._block_size = block_size
        self._refusals = Refusals()
        self._open = OpenWork()
        self._turn = 0
        self._metrics = GatewayMetrics(registry, self.endpoints, self._refusals, self._open)

    def told(self, endpoints: tuple[Endpoint, ...]) -> None:
        """A source says which endpoints there are now."""
        self._refusals.forget(self.endpoints.replace(endpoints))

    async def choose(self, asked: Asked) -> Visit:
        """Where the request goes. Never raises but for cancellation."""
        start_s = time.monotonic()
        try:
            sought = await self._seek(asked, start_s + self._settings.budget_s)
        except Exception:
            log.exception("gateway_lookup_failed")
            nothing = Consulted(self._request(asked), UNANSWERED)
            sought = _Sought(nothing, FAILED, asked.size // BYTES_A_TOKEN)
        visit = self._visit(asked, sought)
        self._metrics.picked(visit.chosen.reason, time.monotonic() - start_s)
        return visit

    def answered(self, visit: Visit, answer: Answered) -> None:
        """An engine's answer began. Who stood before the one that served could not be reached or refused."""
        now_s = time.monotonic()
        served = self.endpoints.at(answer.served) if answer.served else visit.at
        there = self.endpoints.ids
        if served is None or visit.at is None or served.id not in there:
            return
        named = [endpoint.id for endpoint in visit.endpoints]
        if served.id in named:
            for passed in there.intersection(named[: named.index(served.id)]):
                self._refusals.refused(passed, now_s)
        if served.id != visit.at.id:
            self._move(visit, served)
        self._refusals.answered(served.id, answer.status, now_s)
        if answer.status in REFUSING:
            self._metrics.refused()
        if answer.status >= HTTPStatus.BAD_REQUEST:
            # Nothing is left to compute: one prompt that is too long for all would else keep them busy here
            # for minutes, and hints away from who holds what.
            self._leave(visit, is_undone=True)

    def ended(self, visit: Visit) -> None:
        """The request is over, however it ended."""
        self._leave(visit)

    # -- before the pick ---------------------------------------------------------------------------

    def _request(self, asked: Asked, model: str = "") -> RouteRequest:
        """What is known of a request without its prompt; `model` is the name that it has there."""
        settings = self._settings
        tenant = asked.headers.get(settings.tenant_header, "") if settings.tenant_header else ""
        named = settings.names.of(model)
        return RouteRequest(
            TenantId(tenant or settings.tenant),
            named.model,
            settings.scheme,
            named.adapter,
            block_size=self._block_size,
        )

    async def _seek(self, asked: Asked, deadline_s: float) -> _Sought:
        guessed = asked.size // BYTES_A_TOKEN
        if not asked.is_whole:
            return self._unknown(self._request(asked), TOO_LARGE if asked.size else UNSEEN, guessed)
        try:
            prompt = read_prompt(asked.path, asked.body)
        except Unreadable as unreadable:
            return self._unknown(self._request(asked, unreadable.model), unreadable.why.value, guessed)
        request = self._request(asked, prompt.model)
        tokenized = await self._tokens(prompt, request, asked.size, deadline_s - time.monotonic())
        if tokenized.refusal is not None:
            is_late = tokenized.refusal is Refusal.TIMED_OUT
            reason = Reason.TIMEOUT.value if is_late else f"TOKENIZING_{tokenized.refusal.name}"
            return self._unknown(request, reason, guessed)
        request = request._replace(token_ids=tokenized.tokens)
        consulted = await self._lookup.consult(request, deadline_s - time.monotonic())
        return _Sought(consulted, consulted.decision.reason.value, len(tokenized.tokens))

    def _unknown(self, request: RouteRequest, reason: str, tokens: int) -> _Sought:
        return _Sought(self._lookup.unanswered(request), reason, tokens)

    async def _tokens(self, prompt: Prompt, request: RouteRequest, size: int, limit_s: float) -> Tokenized:
        """The ids that the engine will see; its tokenizer is that of the base model."""
        if prompt.token_ids:
            return Tokenized(prompt.token_ids)
        if prompt.chat is not None:
            return await self._tokenizing.chat(request.model, prompt.chat, size, limit_s)
        return await self._tokenizing.text(request.model, prompt.text, limit_s)

    # -- the pick ----------------------------------------------------------------------------------

    def _visit(self, asked: Asked, sought: _Sought) -> Visit:
        decision = sought.consulted.decision
        is_followed = decision.reason in FOLLOWED
        hinted = [score.replica for score in decision.scores] if is_followed else []
        self._turn += 1
        picked = pick(
            self.endpoints,
            hinted,
            sought.consulted.work,
            self._open.tokens,
            self._refusals,
            self._turn,
            time.monotonic(),
            asked.subset,
        )
        replicas = [endpoint.replica for endpoint in picked.endpoints]
        # A proxy that limits the choice is owed an answer from within its limits, or none.
        is_refused = picked.first is None and (asked.subset is not None or self._settings.refuses)
        reason = sought.reason if picked.first is not None else NO_ENDPOINT
        chosen = Chosen(picked.addresses, reason, replicas, is_refused)
        visit = Visit(chosen, sought, tuple(picked.endpoints))
        if visit.at is not None:
            self._begin(visit, visit.at)
            if picked.is_hinted:
                self._lookup.credit(sought.consulted)
        return visit

    def _begin(self, visit: Visit, endpoint: Endpoint) -> None:
        tokens = visit.tokens_at(endpoint)
        visit.at, visit.assigned_s = endpoint, time.monotonic()
        self._open.begin(endpoint.id, tokens)
        self._lookup.assign(visit.sought.consulted, endpoint.replica, tokens)

    def _move(self, visit: Visit, endpoint: Endpoint) -> None:
        self._leave(visit, is_undone=True)
        self._begin(visit, endpoint)

    def _leave(self, visit: Visit, *, is_undone: bool = False) -> None:
        endpoint, visit.at = visit.at, None
        if endpoint is None:
            return
        tokens = visit.tokens_at(endpoint)
        self._open.end(endpoint.id, tokens)
        if is_undone:
            self._lookup.take_back(visit.sought.consulted, endpoint.replica, tokens, visit.assigned_s)
