"""A worked case being told: reports arrive, time stands still, questions are asked."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from inferencecache.schemas.ids import AdapterId, HashScheme, ModelId, ReplicaId, TenantId
from inferencecache.schemas.policy import ResolvedPolicy
from inferencecache.schemas.records import (
    AnyRecord,
    Cleared,
    Credit,
    CreditedHolds,
    Event,
    TenantPolicy,
    TenantQuota,
)
from tests.oracle.indexes import Index
from tests.oracle.keys import key_of
from tests.oracle.logs import LogWriter, evicted
from tests.oracle.routing import Answer, Question
from tests.oracle.stories import names, write

REPLICA_UPDATED: Final = 3
TENANT: Final = TenantId("t")
NO_QUOTAS: Final[Mapping[TenantId, int]] = MappingProxyType({})


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
        policies = []
        if policy is not None:
            ttl_us, lfu = policy.eviction_ttl_ms * 1000, policy.eviction == "lfu"
            policies.append(TenantPolicy(TENANT, ttl_us, lfu))
        return self.apply(*policies, quotas={} if quota is None else {TENANT: quota})

    def apply(self, *policies: TenantPolicy, quotas: Mapping[TenantId, int] = NO_QUOTAS) -> Story:
        """The policies and quotas of all tenants, by the log alone."""
        named = [TenantQuota(tenant, keys) for tenant, keys in quotas.items()]
        self.log.apply_policy(policies, named)
        return self._fold()

    def capped(self, max_entries: int) -> Story:
        self.log.budget(max_entries)
        return self._fold()

    def credit(self, replica: str, hashes: str, count: int, *, tenant: str = "t") -> Story:
        """Accesses of the replica's holds, as a router counts them."""
        for hash_ in names(hashes):
            width, key = key_of(hash_)
            holds = CreditedHolds(
                TenantId(tenant),
                ModelId("m"),
                HashScheme("vllm"),
                AdapterId(""),
                width,
                ReplicaId(replica),
                struct.pack("<Q", key),
                struct.pack("<I", count),
            )
            self.log.control("r", Credit((holds,)))
        return self._fold()

    def sweep(self) -> Story:
        """One sweep of everything, while the clock stands."""
        self.log.sweep_interval_s = 1
        self.log.tick(0)
        return self._fold()

    def catch_up(self) -> Story:
        """Fold what was written to the log directly."""
        return self._fold()

    def ask(self, question: Question) -> Answer:
        return self.index.route(question, self.policy, self.now_us)

    def ask_index(self, question: Question) -> Answer:
        return self.index.index_level(question, self.policy, self.now_us)

    def kept(self, hashes: str) -> str:
        """Those of the named keys that anybody holds, as `a,b`."""
        return ",".join(hash_.decode() for hash_ in names(hashes) if self.holders(hash_.decode()))

    def keys(self, *, tenant: str = "t", model: str = "m") -> int:
        return self.index.distinct_keys(tenant, model)

    def holders(
        self, hash_: str, *, adapter: str = "", scheme: str = "vllm", model: str = "m", tenant: str = "t"
    ) -> set[str]:
        """Who holds a key, fresh, whatever the floors say."""
        question = Question(tenant, model, scheme, adapter, hash_.encode())
        answer = self.ask_index(question)
        return {hint.replica for hint in answer.hints if answer.reason == "PREFIX_MATCH"}

    def _fold(self) -> Story:
        self.index.fold(self.log.messages[self._folded :])
        self._folded = len(self.log.messages)
        return self
