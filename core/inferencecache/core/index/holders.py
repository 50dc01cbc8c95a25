"""The names behind the table's numbers, and what is counted by name.

A holder is opened with its first hold and closed with its last; keyspaces, domains, models, tenants and
replicas follow it, and numbers are used again. So everything here is bounded by what is held now and by
the rows that are kept, however many names have come and gone.
"""

from __future__ import annotations

from inferencecache.core.index.digest import holder_identity, keyspace_identity, replica_identity
from inferencecache.core.index.kernels import RESERVED
from inferencecache.core.index.reading import Scope
from inferencecache.schemas.deltas import HolderName, ReplicaName, ReplicaRow, StatsRow
from inferencecache.schemas.ids import (
    PROBE_TENANT,
    AdapterId,
    HashScheme,
    ModelId,
    ReplicaId,
    TenantId,
)

KeyspaceName = tuple[str, str, str, str, int]
"""(tenant, model, scheme, adapter, width class)"""
HolderKind = tuple[HashScheme, AdapterId, int]
"""What tells the holders of one replica apart: (scheme, adapter, width class)."""


class Numbers:
    """Small numbers, the lowest free one first taken."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._used = 0

    def take(self) -> int:
        if self._free:
            return self._free.pop()
        self._used += 1
        return self._used - 1

    def give_back(self, number: int) -> None:
        self._free.append(number)


class Tenant:
    """Distinct keys and holds of one tenant."""

    __slots__ = ("entries", "holders", "keys", "models", "name", "number")

    def __init__(self, number: int, name: TenantId) -> None:
        self.number = number
        self.name = name
        self.holders: set[int] = set()
        self.models = 0
        self.keys = 0
        self.entries = 0


class Model:
    """Distinct keys of one (tenant, model), and the statistics of its replicas."""

    __slots__ = ("begun", "domains", "keys", "name", "stats", "tenant")

    def __init__(self, tenant: Tenant, name: ModelId) -> None:
        self.tenant = tenant
        self.name = name
        self.domains = 0
        self.keys = 0
        self.stats: dict[ReplicaId, StatsRow] = {}
        self.begun: dict[ReplicaId, ReplicaRow] = {}
        """Rows of the replicas whose sidecars said for which scheme they began."""


class Domain:
    """The replicas that hold anything in an engine domain [IDX-14]."""

    __slots__ = ("_ascending", "_holders", "keyspaces", "model", "scope")

    def __init__(self, model: Model, scope: Scope) -> None:
        self.model = model
        self.scope = scope
        self.keyspaces = 0
        self._holders: dict[ReplicaId, int] = {}
        self._ascending: tuple[ReplicaId, ...] | None = None

    def join(self, replica: ReplicaId) -> None:
        holders = self._holders.get(replica, 0)
        self._holders[replica] = holders + 1
        if not holders:
            self._ascending = None

    def leave(self, replica: ReplicaId) -> None:
        self._holders[replica] -= 1
        if not self._holders[replica]:
            del self._holders[replica]
            self._ascending = None

    def has(self, replica: ReplicaId) -> bool:
        """Whether the replica is a member."""
        return replica in self._holders

    @property
    def members(self) -> tuple[ReplicaId, ...]:
        """Ascending."""
        if self._ascending is None:
            self._ascending = tuple(sorted(self._holders))
        return self._ascending


class Keyspace:
    """Where hashes of one width class are compared: (tenant, model, scheme, adapter, width class)."""

    __slots__ = ("domain", "holders", "name", "number", "seed")

    def __init__(self, number: int, name: KeyspaceName, domain: Domain, seed: int) -> None:
        self.number = number
        self.name = name
        self.domain = domain
        self.seed = seed
        self.holders = 0


class Replica:
    """A replica, its row if there is one, and what it holds."""

    __slots__ = ("holders", "identity", "name", "number", "row", "row_hash")

    def __init__(self, number: int, name: ReplicaName) -> None:
        self.number = number
        self.name = name
        self.identity = replica_identity(name)
        self.row: ReplicaRow | None = None
        self.row_hash = 0
        self.holders: dict[HolderKind, Holder] = {}

    @property
    def alive_us(self) -> int:
        return self.row.alive_us if self.row is not None else 0

    @property
    def stats(self) -> StatsRow | None:
        return self.row.stats if self.row is not None else None


class Holder:
    """One keyspace of one replica, and how many keys it holds there. `number` is the table's."""

    __slots__ = ("entries", "identity", "keyspace", "name", "number", "replica")

    def __init__(self, name: HolderName, keyspace: Keyspace, replica: Replica) -> None:
        self.number = -1
        self.name = name
        self.identity = holder_identity(name)
        self.keyspace = keyspace
        self.replica = replica
        self.entries = 0

    @property
    def kind(self) -> HolderKind:
        return self.name.scheme, self.name.adapter, self.name.width


class Holders:
    """All that has a name, by name and by number."""

    def __init__(self) -> None:
        self.tenants: dict[str, Tenant] = {}
        self.models: dict[tuple[str, str], Model] = {}
        self.domains: dict[tuple[str, str, str], Domain] = {}
        self.keyspaces: dict[KeyspaceName, Keyspace] = {}
        self.replicas: dict[tuple[str, str, str], Replica] = {}
        self.by_number: dict[int, Holder] = {}
        self.replica_ids: list[ReplicaId] = []
        self._tenant_numbers = Numbers()
        self._keyspace_numbers = Numbers()
        self._replica_numbers = Numbers()

    # --------------------------------------------------------------------------------- replicas

    def replica(self, name: ReplicaName) -> Replica:
        """The replica of that name, which is known from now on until `forget` finds nothing of it."""
        key = (name.tenant, name.model, name.replica)
        replica = self.replicas.get(key)
        if replica is None:
            replica = self.replicas[key] = Replica(self._replica_numbers.take(), name)
            if replica.number == len(self.replica_ids):
                self.replica_ids.append(name.replica)
            else:
                self.replica_ids[replica.number] = name.replica
        return replica

    def forget(self, replica: Replica) -> None:
        """Drop a replica that neither holds anything nor has a row."""
        if replica.row is None and not replica.holders:
            name = replica.name
            del self.replicas[name.tenant, name.model, name.replica]
            self._replica_numbers.give_back(replica.number)

    # ---------------------------------------------------------------------------------- holders

    def find(self, name: HolderName) -> Holder | None:
        """The holder of that name, if it is open."""
        replica = self.replicas.get((name.tenant, name.model, name.replica))
        if replica is None:
            return None
        return replica.holders.get((name.scheme, name.adapter, name.width))

    def open(self, replica: Replica, kind: HolderKind) -> Holder:
        """A new holder of a replica; it gets the table's number by `enter`."""
        scheme, adapter, width = kind
        of = replica.name
        name = HolderName(of.tenant, of.model, scheme, adapter, width, of.replica)
        keyspace = self._keyspace(name)
        keyspace.holders += 1
        holder = replica.holders[kind] = Holder(name, keyspace, replica)
        return holder

    def enter(self, holder: Holder, number: int) -> None:
        """The table's number of a new holder."""
        holder.number = number
        self.by_number[number] = holder
        holder.keyspace.domain.model.tenant.holders.add(number)

    def close(self, holder: Holder) -> None:
        """Drop a holder that holds nothing, and what was known because of it."""
        del holder.replica.holders[holder.kind]
        del self.by_number[holder.number]
        holder.keyspace.domain.model.tenant.holders.remove(holder.number)
        self.forget(holder.replica)
        keyspace = holder.keyspace
        keyspace.holders -= 1
        if keyspace.holders:
            return
        del self.keyspaces[keyspace.name]
        self._keyspace_numbers.give_back(keyspace.number)
        domain = keyspace.domain
        domain.keyspaces -= 1
        if domain.keyspaces:
            return
        del self.domains[domain.scope]
        domain.model.domains -= 1
        self.forget_model(domain.model)

    def _keyspace(self, name: HolderName) -> Keyspace:
        key = (name.tenant, name.model, name.scheme, name.adapter, name.width)
        keyspace = self.keyspaces.get(key)
        if keyspace is None:
            scope = Scope(name.tenant, name.model, name.scheme)
            domain = self.domains.get(scope)
            if domain is None:
                model = self.model(name.tenant, name.model)
                model.domains += 1
                domain = self.domains[scope] = Domain(model, scope)
            domain.keyspaces += 1
            number = self._keyspace_numbers.take()
            keyspace = self.keyspaces[key] = Keyspace(number, key, domain, keyspace_identity(name))
        return keyspace

    # ----------------------------------------------------------------------------------- models

    def model(self, tenant: TenantId, name: ModelId) -> Model:
        """The model, which is known from now on until `forget_model` finds nothing of it."""
        model = self.models.get((tenant, name))
        if model is None:
            of = self.tenants.get(tenant)
            if of is None:
                number = RESERVED if tenant == PROBE_TENANT else self._tenant_numbers.take()
                of = self.tenants[tenant] = Tenant(number, tenant)
            of.models += 1
            model = self.models[tenant, name] = Model(of, name)
        return model

    def forget_model(self, model: Model) -> None:
        """Drop a model of which nothing is held, nobody began and no statistics are known, and its tenant
        likewise.
        """
        if model.domains or model.stats or model.begun:
            return
        tenant = model.tenant
        del self.models[tenant.name, model.name]
        tenant.models -= 1
        if not tenant.models:
            del self.tenants[tenant.name]
            if tenant.number != RESERVED:
                self._tenant_numbers.give_back(tenant.number)
