"""One index made from a log, by the naive model or by the product, under one face."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from inferencecache.schemas.deltas import StatsRow
from inferencecache.schemas.ids import ReplicaId
from inferencecache.schemas.policy import ResolvedPolicy
from tests.oracle.logs import LogMessage
from tests.oracle.model import NaiveFold
from tests.oracle.routing import Answer, Question, naive_route
from tests.oracle.view import NaiveView


class Index(Protocol):
    """What a worked case may do with an index."""

    def fold(self, messages: Sequence[LogMessage]) -> None: ...
    def route(self, question: Question, policy: ResolvedPolicy | None, now_us: int) -> Answer: ...
    def index_level(self, question: Question, policy: ResolvedPolicy | None, now_us: int) -> Answer:
        """The outcome before the policy's gates."""

    def stats(self, tenant: str, model: str) -> Mapping[ReplicaId, StatsRow]: ...
    def distinct_keys(self, tenant: str, model: str) -> int: ...


class NaiveIndex:
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
