"""What a lookup may ask of an index: the seam between matching and everything above it.

One partition's `View`, a join over partitions and the tests' naive model all answer these questions,
so routing, ranking and diagnostics are written once, against this. One lookup asks one view that does
not change meanwhile, so all its answers fit together [IDX-86, IDX-113].

Times are microseconds of log time. A time that is handed out is *effective*: a certain hold is as
young as its replica's last `Alive`, if that is later than its own last store. A hold is stale, and
never handed out, when `now_us - time >= ttl_us` [IDX-53, IDX-56]. Orders are bytewise, which for
UTF-8 is the order Python gives `str`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from inferencecache.schemas.deltas import StatsRow
from inferencecache.schemas.ids import AdapterId, HashScheme, ModelId, ReplicaId, TenantId

SILENT_US: Final = 60_000_000
"""A sidecar speaks at least every 20 s: one that was silent for three times that is taken for gone."""


class Scope(NamedTuple):
    """An engine domain: adapters share it [IDX-11]."""

    tenant: TenantId
    model: ModelId
    scheme: HashScheme


class Hit(NamedTuple):
    """A replica that holds an exact key: the count and tier as stored, whatever they are [IDX-63..65]."""

    replica: ReplicaId
    token_count: int
    last_seen_us: int
    tier: int


class Run(NamedTuple):
    """A replica's leading run of a chain: at least one block, with its oldest time and coldest tier
    [IDX-67..76].
    """

    replica: ReplicaId
    blocks: int
    oldest_seen_us: int
    tier: int


class IndexView(Protocol):
    """The questions. An id that nobody reported gives an empty answer, never an error."""

    @property
    def time_us(self) -> int:
        """Log time of the state, 0 before the first tick."""
        ...

    def exact(self, scope: Scope, adapter: AdapterId, hash_: bytes, now_us: int, ttl_us: int) -> list[Hit]:
        """All replicas that hold the key and are not stale, in any order."""
        ...

    def leading_runs(
        self, scope: Scope, adapter: AdapterId, hashes: Sequence[bytes], now_us: int, ttl_us: int
    ) -> list[Run]:
        """All replicas that hold at least the first block and are not stale there, in any order."""
        ...

    def members(self, scope: Scope) -> Sequence[ReplicaId]:
        """Replicas with at least one hold in the scope, stale unswept ones included, ascending [IDX-14]."""
        ...

    def newcomers(self, scope: Scope, since_us: int) -> Sequence[ReplicaId]:
        """Replicas whose sidecars began for the scope and were heard since, but that hold nothing in it yet,
        ascending. No rule counts them; they are candidates where work decides.
        """
        ...

    def stats(self, tenant: TenantId, model: ModelId) -> Mapping[ReplicaId, StatsRow]:
        """Statistics of the replicas that have any."""
        ...

    def is_empty(self) -> bool:
        """Whether no tenant holds a key, the reserved one not counted."""
        ...

    def has_tenant(self, tenant: TenantId) -> bool:
        """Whether the tenant has at least one key, stale but unswept ones included [IDX-112]."""
        ...

    def has_model(self, tenant: TenantId, model: ModelId) -> bool:
        """Whether the tenant has at least one key of the model; `members` says it for a scope."""
        ...

    def distinct_keys(self, tenant: TenantId, model: ModelId) -> int:
        """Distinct keys over all schemes and adapters, each once however many hold it [IDX-172]."""
        ...
