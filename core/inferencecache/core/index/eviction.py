"""What the fold evicts: expired holds on a tick, keys over a tenant's quota, holds over the global cap.

Policies, quotas and budgets come as records, so every fold of a log evicts the same. A policy decides when
it is applied: a new time to live or algorithm concerns everything that is held [IDX-54, IDX-155]. What is
evicted leaves through the writer and so reaches the next delta.

One record evicts at most `MOST_VICTIMS` holds for quota and cap, and as many more as it stored, so that its
cost does not grow with the index: an enforcement that has more to do is *begun*. It goes on, in the same
order, with the next updates (of the tenant; of anybody for the cap) and, for the index to get there
without any, at every tick, until the count equals the quota or the cap [IDX-151, IDX-157]. Ticks begin
none, so a lowered quota or cap still waits for the next update [IDX-162]. A part that a division lowers
is begun to be kept to at once: the update that this room is for comes to another partition. In steady
state nothing is ever left over: a batch evicts what it stored. What is begun is part of the fold's state,
so every fold evicts the same.

The age that a hold is evicted by counts, as everywhere, from the later of its last store and its replica's
last `Alive` if it is certain; hashes of different width classes are ordered by class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, Literal

import msgspec
import numpy as np

from inferencecache.core.index import kernels
from inferencecache.core.index.holders import Holder
from inferencecache.core.index.kernels import Difference
from inferencecache.core.index.labels import Labels
from inferencecache.core.index.policy import DEFAULT_TTL_US
from inferencecache.core.index.table import RemovedColumns
from inferencecache.core.index.victims import Removed
from inferencecache.core.index.writer import Writer
from inferencecache.schemas.deltas import HolderName
from inferencecache.schemas.ids import PROBE_TENANT, TenantId
from inferencecache.schemas.records import Budget, Credit, CreditedHolds, PolicyApplied, TenantPolicy

MOST_TTL_US: Final = 1 << 62
"""The sum of a time and a time to live is to fit 64 bits."""
DEFAULT_SWEEP_S: Final = 60
UNBOUNDED: Final = -1
MOST_VICTIMS: Final = 1 << 11
"""How many holds a record evicts for quota and cap besides as many as it stored, a quota's last key whole."""
_SWEPT: Final = 1 << 15

Algorithm = Literal["lru", "lfu"]


class Begun(msgspec.Struct, array_like=True, frozen=True):
    """Enforcements that were left with more to do: of the cap, and of tenants' quotas in their order."""

    cap: bool = False
    tenants: tuple[TenantId, ...] = ()


class Eviction:
    """The policies in force and what they evict; `evictions` counts holds by (algorithm, reason), and
    `tenant_evictions` keys over quota by tenant, since this process began [IDX-150, IDX-156, IDX-164].
    """

    def __init__(self, writer: Writer) -> None:
        self._write = writer
        self._view = writer.view
        self._victims = writer.victims
        self.evictions: Counter[tuple[str, str]] = Counter()
        self.tenant_evictions: Counter[str] = Counter()
        self._view.opened = self._opened
        self._view.closed = self._closed
        self.restart()

    def restart(self) -> None:
        """A log epoch begins: no policy, no quota, no cap."""
        self._policies: dict[str, TenantPolicy] = {}
        self._quotas: dict[str, int] = {}
        self._parts: dict[str, int] = {}
        self._cap = UNBOUNDED
        self.begun = Begun()
        self._spaces = Labels()
        self._replicas = Labels()
        self._victims.restart()

    # --------------------------------------------------------------------------------- policies

    def apply_policy(self, policy: PolicyApplied) -> None:
        """These policies and quotas replace those before [IDX-119]."""
        self._policies = {item.tenant: item for item in policy.policies}
        self._quotas = {item.tenant: item.max_keys for item in policy.quotas}
        self._victims.keep(self._quotas)
        self._refresh()

    def apply_budget(self, budget: Budget) -> None:
        """The partition's part of the cap and of quotas."""
        self._cap = budget.max_entries
        self._parts = {item.tenant: item.max_keys for item in budget.quotas}
        if budget.division:
            for item in budget.quotas:
                self._note_begun(item.tenant)
            self.begun = Begun(self._over_cap() > 0, self.begun.tenants)

    def ttl_us(self, tenant: str) -> int:
        """Time to live of what the tenant holds and of its statistics [IDX-54]."""
        policy = self._policies.get(tenant)
        if policy is None or policy.ttl_us <= 0:
            return DEFAULT_TTL_US
        return min(policy.ttl_us, MOST_TTL_US)

    def algorithm(self, tenant: str) -> Algorithm:
        """How the cap chooses among what the tenant holds [IDX-125]."""
        policy = self._policies.get(tenant)
        return "lfu" if policy is not None and policy.lfu else "lru"

    def quota(self, tenant: str) -> int | None:
        """How many distinct keys the tenant may have in this partition; None is unbounded [IDX-163]."""
        if tenant in {"", PROBE_TENANT} or tenant not in self._quotas:
            return None
        return max(0, self._parts.get(tenant, self._quotas[tenant]))

    # ---------------------------------------------------------------------------------- holders

    def _opened(self, holder: Holder) -> None:
        changed = self._spaces.take(holder.keyspace.name)
        if self._replicas.take(_replica_name(holder.name)) or changed:
            self._refresh()
        else:
            self._set(holder)

    def _closed(self, holder: Holder) -> None:
        self._spaces.give_back(holder.keyspace.name)
        self._replicas.give_back(_replica_name(holder.name))

    def _set(self, holder: Holder) -> None:
        tenant = holder.keyspace.domain.model.tenant
        self._view.table.set_eviction(
            holder.number,
            tenant=tenant.number,
            ttl_us=self.ttl_us(tenant.name),
            is_lfu=self.algorithm(tenant.name) == "lfu",
            space_label=self._spaces[holder.keyspace.name],
            replica_label=self._replicas[_replica_name(holder.name)],
        )

    def _refresh(self) -> None:
        """Tell the table about all holders anew."""
        for holder in self._view.holders.by_number.values():
            self._set(holder)
        self._victims.reset()
        self._view.table.all_due()

    # ------------------------------------------------------------------------------------ sweep

    def sweep(self, now_us: int, interval_s: int, remainder: int) -> None:
        """Remove the expired holds whose key is `remainder` modulo the interval [IDX-148]."""
        for removed in self._expired(now_us, interval_s, remainder):
            self._remove(removed, "ttl")

    def _expired(self, now_us: int, interval: int, remainder: int) -> Iterator[Removed]:
        table = self._view.table
        columns = RemovedColumns.room(_SWEPT)
        state = np.zeros(2, np.int64)
        while state[0] < table.stretches:
            difference: Difference = kernels.sweep(
                *table.arrays, now_us, interval, remainder, state, *columns
            )
            holds = int(state[1])
            if holds:
                yield Removed(columns.first(holds), difference, holds)

    # -------------------------------------------------------------------------------- enforcing

    def enforce(self, tenant: TenantId, stored: int) -> None:
        """An update of the tenant was applied, with so many holds: first its quota, then the cap
        [IDX-16, IDX-151, IDX-157].
        """
        left = self._enforce_quota(tenant, MOST_VICTIMS + stored)
        self._enforce_cap(left)

    def go_on(self) -> None:
        """A tick: go on with what was begun."""
        left = MOST_VICTIMS
        for tenant in self.begun.tenants:
            left = self._enforce_quota(tenant, left)
        if self.begun.cap:
            self._enforce_cap(left)

    def _enforce_quota(self, tenant: TenantId, most_holds: int) -> int:
        """Answers how many holds are left to go."""
        over = self._over_quota(tenant)
        if not over and tenant not in self.begun.tenants:
            return max(0, most_holds)
        if over:
            for removed in self._victims.keys(tenant, over, most_holds):
                self.tenant_evictions[tenant] += removed.victims
                self._write.remove(removed, "quota")
                most_holds -= len(removed.columns.keys)
        self._note_begun(tenant)
        return max(0, most_holds)

    def _over_quota(self, tenant: TenantId) -> int:
        """How many keys the tenant has over its quota."""
        quota, known = self.quota(tenant), self._view.holders.tenants.get(tenant)
        return 0 if quota is None or known is None else max(0, known.keys - quota)

    def _note_begun(self, tenant: TenantId) -> None:
        begun = self.begun.tenants
        is_begun = self._over_quota(tenant) > 0
        if is_begun != (tenant in begun):
            begun = (*begun, tenant) if is_begun else tuple(name for name in begun if name != tenant)
            self.begun = Begun(self.begun.cap, begun)

    def _enforce_cap(self, most: int) -> None:
        over = self._over_cap()
        if not over and not self.begun.cap:
            return
        if over:
            for removed in self._victims.holds(min(most, over)):
                self._remove(removed, "cap")
        is_begun = self._over_cap() > 0
        if is_begun != self.begun.cap:
            self.begun = Begun(is_begun, self.begun.tenants)

    def _over_cap(self) -> int:
        """How many holds there are over the cap."""
        return 0 if self._cap < 0 else max(0, self._view.entries - self._cap)

    def _remove(self, removed: Removed, reason: Literal["ttl", "cap"]) -> None:
        for name, holds in self._write.remove(removed, reason):
            self.evictions[self.algorithm(name.tenant), reason] += holds

    # ----------------------------------------------------------------------------------- credit

    def credit(self, credit: Credit) -> int:
        """Holds that served delivered hints; answers how many of the record's items made no sense."""
        return sum(not self._credit(holds) for holds in credit.holds)

    def _credit(self, holds: CreditedHolds) -> bool:
        if len(holds.keys) % 8 or len(holds.counts) * 2 != len(holds.keys):
            return False
        name = HolderName(holds.tenant, holds.model, holds.scheme, holds.adapter, holds.width, holds.replica)
        holder = self._view.holders.find(name)
        if holder is not None:
            self._write.credit(
                holder, np.frombuffer(holds.keys, np.uint64), np.frombuffer(holds.counts, np.uint32)
            )
        return True


def _replica_name(name: HolderName) -> tuple[str, str, str]:
    return name.replica, name.tenant, name.model
