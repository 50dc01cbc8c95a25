"""Assigned work: what the hints given lately will cost each replica, so that a hot prefix draws no herd.

W(r) is the sum, over the hints that named replica r first, of the prompt tokens it will have to compute
itself, each decayed by exp(-age / decay). It is an estimate of a queue that nobody has to report: the
score of a match is lowered by the extra work of its replica, and where nothing matched the replica with
the least work is taken. Routers share what they assign; a message lost is a little less balance.

`now_s` is seconds of any clock that one table is always asked with.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from inferencecache.schemas.ids import ModelId, ReplicaId, TenantId

DEFAULT_DECAY_S: Final = 10.0
NO_WORK: Final[Mapping[ReplicaId, float]] = {}
NEGLIGIBLE_TOKENS: Final = 0.5
"""Work below this is forgotten, so that the table holds what is busy and nothing else."""
LEAST_WITHIN: Final = 0.01
"""Members within this share of the least work count as equally idle."""


class Assigned(NamedTuple):
    """`tokens` of work given to a replica."""

    tenant: TenantId
    model: ModelId
    replica: ReplicaId
    tokens: float


class _Load:
    __slots__ = ("at_s", "tokens")

    def __init__(self) -> None:
        self.tokens = 0.0
        self.at_s = 0.0


class AssignedWork:
    """W by (tenant, model) and replica. `decay_s` > 0 is the time in which work falls to 1/e."""

    def __init__(self, decay_s: float = DEFAULT_DECAY_S) -> None:
        self._decay_s = decay_s
        self._loads: dict[tuple[TenantId, ModelId], dict[ReplicaId, _Load]] = {}
        self._unshared: dict[tuple[TenantId, ModelId, ReplicaId], float] = {}

    def assign(self, assigned: Assigned, now_s: float) -> None:
        """A hint of this process named the replica first; the work is kept for `take_unshared` too."""
        if assigned.tokens > 0:
            self.hear(assigned, now_s)
            key = assigned[:3]
            self._unshared[key] = self._unshared.get(key, 0.0) + assigned.tokens

    def hear(self, assigned: Assigned, now_s: float) -> None:
        """Another process assigned this."""
        if not (math.isfinite(assigned.tokens) and assigned.tokens > 0):
            return
        load = self._loads.setdefault((assigned.tenant, assigned.model), {}).setdefault(
            assigned.replica, _Load()
        )
        load.tokens = self._decayed(load, now_s) + assigned.tokens
        load.at_s = now_s

    def take_unshared(self) -> list[Assigned]:
        """What this process assigned since the last call."""
        taken = [Assigned(*key, tokens) for key, tokens in self._unshared.items()]
        self._unshared.clear()
        return taken

    def of(self, tenant: TenantId, model: ModelId, now_s: float) -> Mapping[ReplicaId, float]:
        """W of the replicas of a (tenant, model) that have any, in tokens."""
        loads = self._loads.get((tenant, model))
        if not loads:
            return NO_WORK
        work = {replica: self._decayed(load, now_s) for replica, load in loads.items()}
        negligible = [replica for replica, tokens in work.items() if tokens < NEGLIGIBLE_TOKENS]
        for replica in negligible:
            del loads[replica], work[replica]
        if not loads:
            del self._loads[tenant, model]
        return work

    def halve(self, tenant: TenantId, model: ModelId, replica: ReplicaId) -> None:
        """The engine says that it is idle: half of what is believed of it is wrong."""
        load = self._loads.get((tenant, model), {}).get(replica)
        if load is not None:
            load.tokens /= 2

    def everything(self, now_s: float) -> Iterable[Assigned]:
        """All that is known, for a metric or an explanation."""
        for tenant, model in list(self._loads):
            for replica, tokens in self.of(tenant, model, now_s).items():
                yield Assigned(tenant, model, replica, tokens)

    def _decayed(self, load: _Load, now_s: float) -> float:
        return load.tokens * math.exp(min(0.0, load.at_s - now_s) / self._decay_s)


def penalties(
    work: Mapping[ReplicaId, float], members: Sequence[ReplicaId], weight: float
) -> Mapping[ReplicaId, float]:
    """What each member's score loses: weight x (W - least W of the members); empty when all are equal."""
    if not work or weight <= 0:
        return NO_WORK
    least = min(work.get(replica, 0.0) for replica in members)
    extra = {replica: work.get(replica, 0.0) - least for replica in members}
    return {replica: weight * tokens for replica, tokens in extra.items() if tokens > 0}


def least_busy(work: Mapping[ReplicaId, float], members: Sequence[ReplicaId]) -> Sequence[ReplicaId]:
    """The members with the least work, or so little more that it says nothing; in the order given."""
    if not work:
        return members
    bound = min(work.get(replica, 0.0) for replica in members) * (1 + LEAST_WITHIN)
    return [replica for replica in members if work.get(replica, 0.0) <= bound]
