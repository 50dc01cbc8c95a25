"""A worked case being told: reports arrive, time stands still, questions are asked."""

from __future__ import annotations

from typing import Final

from inferencecache.schemas.ids import TenantId
from inferencecache.schemas.policy import ResolvedPolicy
from inferencecache.schemas.records import (
    AnyRecord,
    Cleared,
    Event,
    TenantPolicy,
    TenantQuota,
)
from tests.oracle.indexes import Index
from tests.oracle.logs import LogWriter, evicted
from tests.oracle.routing import Answer, Question
from tests.oracle.stories import write

REPLICA_UPDATED: Final = 3
TENANT: Final = TenantId("t")


class Story:
    """Everything happens at one moment, `now_us`; what is older says so by its age."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.log = LogWriter()
        self.policy: ResolvedPolicy | None = None
        self._folded = 0
        self.log.claim()
        self.log.tick()
        self._fold()

    @property
    def now_us(self) -> int:
        return self.log.stamp_us

    def given(self, state: str) -> Story:
        write(self.log, state)
        return self._fold()

    def report(self, replica: str, *records: AnyRecord, tenant: str = "t", model: str = "m") -> Story:
        self.log.report(replica, *records, tenant=tenant, model=model)
        return self._fold()

    def evict(self, replica: str, hash_: str, *, adapter: str = "", model: str = "m") -> Story:
        return self.report(replica, evicted(hash_.encode(), adapter=adapter), model=model)

    def clear(self, replica: str, *, model: str = "m") -> Story:
        return self.report(replica, Cleared(), model=model)

    def replica_updated(self, replica: str, *, age_s: float = 0) -> Story:
        return self.report(replica, Event(REPLICA_UPDATED, timestamp_us=self.now_us - round(age_s * 1e6)))

    def under(self, policy: ResolvedPolicy | None, quota: int | None = None) -> Story:
        """From here on tenant `t` has this policy and quota."""
        self.policy = policy
        policies, quotas = [], []
        if policy is not None:
            ttl_us, lfu = policy.eviction_ttl_ms * 1000, policy.eviction == "lfu"
            policies.append(TenantPolicy(TENANT, ttl_us, lfu))
        if quota is not None:
            quotas.append(TenantQuota(TENANT, quota))
        self.log.apply_policy(policies, quotas)
        return self._fold()

    def sweep(self) -> Story:
        """One sweep of everything, while the clock stands."""
        self.log.sweep_interval_s = 1
        self.log.tick(0)
        return self._fold()

    def ask(self, question: Question) -> Answer:
        return self.index.route(question, self.policy, self.now_us)

    def ask_index(self, question: Question) -> Answer:
        return self.index.index_level(question, self.policy, self.now_us)

    def keys(self, *, tenant: str = "t", model: str = "m") -> int:
        return self.index.distinct_keys(tenant, model)

    def holders(self, hash_: str, *, adapter: str = "", scheme: str = "vllm", model: str = "m") -> set[str]:
        """Who holds a key, fresh, whatever the floors say."""
        question = Question(model=model, scheme=scheme, adapter=adapter, prefix_hash=hash_.encode())
        answer = self.ask_index(question)
        return {hint.replica for hint in answer.hints if answer.reason == "PREFIX_MATCH"}

    def _fold(self) -> Story:
        self.index.fold(self.log.messages[self._folded :])
        self._folded = len(self.log.messages)
        return self
