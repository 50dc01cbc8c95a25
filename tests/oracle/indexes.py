"""One index made from a log, by the naive model or by the product, under one face."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from inferencecache.core.index.credits import Credits, summed
from inferencecache.core.index.fold import Fold, LogMessage
from inferencecache.core.index.policy import knobs_of
from inferencecache.core.index.ranking import Score
from inferencecache.core.index.reading import IndexView
from inferencecache.core.index.reason import Reason
from inferencecache.core.index.request import RouteRequest, resolve
from inferencecache.core.index.routing import look_up, route
from inferencecache.schemas.deltas import StatsRow
from inferencecache.schemas.ids import AdapterId, HashScheme, ModelId, ReplicaId, TenantId
from inferencecache.schemas.policy import ResolvedPolicy
from tests.oracle.model import HoldKey, NaiveFold
from tests.oracle.routing import Answer, Hint, Question, naive_route
from tests.oracle.view import NaiveView


class Index(Protocol):
    """What a worked case may do with an index."""

    def fold(self, messages: Sequence[LogMessage]) -> None: ...
    def route(self, question: Question, policy: ResolvedPolicy | None, now_us: int) -> Answer: ...
    def index_level(self, question: Question, policy: ResolvedPolicy | None, now_us: int) -> Answer:
        """The outcome before the policy's gates."""

    def stats(self, tenant: str, model: str) -> Mapping[ReplicaId, StatsRow]: ...
    def distinct_keys(self, tenant: str, model: str) -> int: ...
    def evictions(self) -> Mapping[tuple[str, str], int]:
        """Removed holds by (algorithm, reason)."""

    def tenant_evictions(self) -> Mapping[str, int]:
        """Keys removed for a quota, by tenant."""


class NaiveIndex:
    """The model alone."""

    def __init__(self) -> None:
        self.folded = NaiveFold()
        self.view = NaiveView(self.folded)

    def fold(self, messages: Sequence[LogMessage]) -> None:
        for message in messages:
            self.folded.fold(message)

    def route(self, question: Question, policy: ResolvedPolicy | None, now_us: int) -> Answer:
        return naive_route(self.view, policy, question, now_us)

    def index_level(self, question: Question, policy: ResolvedPolicy | None, now_us: int) -> Answer:
        return naive_route(self.view, policy, question, now_us, is_gated=False)

    def stats(self, tenant: str, model: str) -> Mapping[ReplicaId, StatsRow]:
        return self.view.stats(tenant, model)

    def distinct_keys(self, tenant: str, model: str) -> int:
        return self.view.distinct_keys(tenant, model)

    def evictions(self) -> Mapping[tuple[str, str], int]:
        return self.folded.evictions

    def tenant_evictions(self) -> Mapping[str, int]:
        return self.folded.tenant_evictions


class RoutedIndex(NaiveIndex):
    """The model's state, read by the product's routing."""

    def route(self, question: Question, policy: ResolvedPolicy | None, now_us: int) -> Answer:
        return product_route(self.view, policy, question, now_us)

    def index_level(self, question: Question, policy: ResolvedPolicy | None, now_us: int) -> Answer:
        return product_index_level(self.view, policy, question, now_us)


class ProductIndex:
    """The product alone."""

    def __init__(self) -> None:
        self.folded = Fold(1 << 8)
        self.view = self.folded.view

    def fold(self, messages: Sequence[LogMessage]) -> None:
        for message in messages:
            self.folded.fold(message)

    def route(self, question: Question, policy: ResolvedPolicy | None, now_us: int) -> Answer:
        return product_route(self.view, policy, question, now_us)

    def index_level(self, question: Question, policy: ResolvedPolicy | None, now_us: int) -> Answer:
        return product_index_level(self.view, policy, question, now_us)

    def stats(self, tenant: str, model: str) -> Mapping[ReplicaId, StatsRow]:
        return self.view.stats(TenantId(tenant), ModelId(model))

    def distinct_keys(self, tenant: str, model: str) -> int:
        return self.view.distinct_keys(TenantId(tenant), ModelId(model))

    def evictions(self) -> Mapping[tuple[str, str], int]:
        return self.folded.evictions

    def tenant_evictions(self) -> Mapping[str, int]:
        return self.folded.tenant_evictions


def product_route(
    view: IndexView, policy: ResolvedPolicy | None, question: Question, now_us: int, *, block_size: int = 16
) -> Answer:
    """The product's answer in the model's words."""
    decision = route(view, policy, request_of(question, block_size), now_us)
    adapter = question.adapter if decision.echo_adapter else ""
    return Answer(decision.reason.value, _hints(decision.scores), adapter)


def product_credits(
    view: IndexView, policy: ResolvedPolicy | None, question: Question, now_us: int, *, block_size: int = 16
) -> Counter[HoldKey]:
    """The accesses that the product counts for its answer, by hold."""
    credits_ = Credits()
    request = request_of(question, block_size)
    credits_.add(request, route(view, policy, request, now_us))
    accesses: Counter[HoldKey] = Counter()
    for holds in summed(credits_.take(), most_keys=2):
        count = len(holds.counts) // 4
        keys = struct.unpack(f"<{count}Q", holds.keys)
        space = holds.tenant, holds.model, holds.scheme, holds.adapter, holds.width
        for key, times in zip(keys, struct.unpack(f"<{count}I", holds.counts), strict=True):
            accesses[HoldKey(*space, key, holds.replica)] += times
    return accesses


def product_index_level(
    view: IndexView, policy: ResolvedPolicy | None, question: Question, now_us: int
) -> Answer:
    """As `product_route`, but before the policy's gates."""
    request, knobs = request_of(question, 16), knobs_of(policy)
    inputs = resolve(request, knobs.chain_matching).inputs
    assert inputs is not None
    outcome = look_up(view, request, inputs, knobs.ttl_us, now_us)
    reason = "NO_MATCH" if outcome.reason is Reason.NO_HINT else outcome.reason.value
    return Answer(reason, _hints(outcome.scores), question.adapter)


def request_of(question: Question, block_size: int) -> RouteRequest:
    """The question as the product takes it."""
    fields = msgspec.structs.asdict(question) | {
        "tenant": TenantId(question.tenant),
        "model": ModelId(question.model),
        "scheme": HashScheme(question.scheme),
        "adapter": AdapterId(question.adapter),
    }
    return RouteRequest(**fields, block_size=block_size)


def _hints(scores: Sequence[Score]) -> tuple[Hint, ...]:
    return tuple(Hint(s.replica, s.score, s.matched_tokens, s.hit_prob, s.tier) for s in scores)
