"""Assigned work: what the hints given lately will cost each replica, so that a hot prefix draws no herd.

W(r) is the sum, over the hints that named replica r first, of the prompt tokens it will have to compute
itself, each decayed by exp(-age / decay). It is an estimate of a queue that nobody has to report: the
score of a match is lowered by the extra work of its replica, and where nothing matched the replica with
the least work is taken. Routers share what they assign; a message lost is a little less balance. What
engines say of themselves corrects the estimate while it is fresh, and is not needed.

`now_s` is seconds of any clock that one table is always asked with, `now_us` log time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from inferencecache.core.index.request import MAX_TOKENS
from inferencecache.schemas.deltas import StatsRow
from inferencecache.schemas.ids import ModelId, ReplicaId, TenantId

DEFAULT_DECAY_S: Final = 10.0
NO_WORK: Final[Mapping[ReplicaId, float]] = {}
NEGLIGIBLE_TOKENS: Final = 0.5
"""Work below this is forgotten, so that the table holds what is busy and nothing else."""
LEAST_WITHIN: Final = 0.01
"""Members within this share of the least work count as equally idle."""
FRESH_US: Final = 30_000_000
"""Statistics of this age say nothing about load any more: three intervals of the sidecars' default."""
SAME_SCRAPE_US: Final = 100_000
"""Two times of one sample differ by less, where several lanes' log times are joined."""
MEAN_OVER: Final = 100
"""Hints that the mean size of an assignment remembers."""
MOST_A_HINT: Final = MAX_TOKENS
"""Tokens that one hint assigns at most. Callers say how long their prompts are, and one that says two
billion would else keep everybody from a replica for minutes."""
MOST_WORK: Final = float(1 << 40)
"""W is no larger than this, whatever other routers say."""


class Assigned(NamedTuple):
    """`tokens` of work given to a replica."""

    tenant: TenantId
    model: ModelId
    replica: ReplicaId
    tokens: float


class _Load:
    """Work of one replica at a time, and what its last statistics said."""

    __slots__ = ("at_s", "idle_scrapes", "scraped_us", "tokens")

    def __init__(self) -> None:
        self.tokens = 0.0
        self.at_s = 0.0
        self.scraped_us = 0
        self.idle_scrapes = 0

    def scraped(self, row: StatsRow) -> None:
        """Take note of a sample: at the second idle one in a row, and each after it, half of this is done."""
        if row.reported_us - self.scraped_us < SAME_SCRAPE_US:
            return
        self.scraped_us = row.reported_us
        is_idle = row.requests_running <= 0 and row.requests_waiting <= 0 and row.pressure <= 0
        self.idle_scrapes = self.idle_scrapes + 1 if is_idle else 0
        if self.idle_scrapes >= 2:
            self.tokens /= 2


class _Mean:
    """The running mean of what hints assigned."""

    __slots__ = ("count", "tokens")

    def __init__(self) -> None:
        self.count = 0
        self.tokens = 0.0

    def add(self, tokens: float) -> None:
        self.count = min(self.count + 1, MEAN_OVER)
        self.tokens += (tokens - self.tokens) / self.count


class AssignedWork:
    """W by (tenant, model) and replica. `decay_s` > 0 is the time in which work falls to 1/e.

    `on_assigned` is called when there is something to share.
    """

    def __init__(self, decay_s: float = DEFAULT_DECAY_S) -> None:
        self.on_assigned: Callable[[], None] = _nobody_cares
        self.decay_s = decay_s
        self._loads: dict[tuple[TenantId, ModelId], dict[ReplicaId, _Load]] = {}
        self._means: dict[tuple[TenantId, ModelId], _Mean] = {}
        self._unshared: dict[tuple[TenantId, ModelId, ReplicaId], float] = {}

    def assign(self, assigned: Assigned, now_s: float) -> None:
        """A hint of this process named the replica first; the work is kept for `take_unshared` too."""
        if assigned.tokens > 0:
            assigned = assigned._replace(tokens=min(assigned.tokens, MOST_A_HINT))
            self.hear(assigned, now_s)
            self._means.setdefault((assigned.tenant, assigned.model), _Mean()).add(assigned.tokens)
            key = assigned[:3]
            self._unshared[key] = self._unshared.get(key, 0.0) + assigned.tokens
            self.on_assigned()

    def take_back(self, assigned: Assigned, assigned_s: float, now_s: float) -> None:
        """What was assigned at `assigned_s` never began: the replica refused it, or another one took it."""
        tokens = min(assigned.tokens, MOST_A_HINT) * math.exp(min(0.0, assigned_s - now_s) / self.decay_s)
        if tokens >= NEGLIGIBLE_TOKENS:
            self.hear(assigned._replace(tokens=-tokens), now_s)
            key = assigned[:3]
            self._unshared[key] = self._unshared.get(key, 0.0) - tokens
            self.on_assigned()

    def hear(self, assigned: Assigned, now_s: float) -> None:
        """Another process assigned this, or took it back where it is below 0."""
        if not math.isfinite(assigned.tokens) or assigned.tokens == 0:
            return
        load = self._loads.setdefault((assigned.tenant, assigned.model), {}).setdefault(
            assigned.replica, _Load()
        )
        load.tokens = max(0.0, min(MOST_WORK, self._decayed(load, now_s) + assigned.tokens))
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
            self._means.pop((tenant, model), None)
        return work

    def believed(
        self,
        tenant: TenantId,
        model: ModelId,
        now_s: float,
        stats: Mapping[ReplicaId, StatsRow],
        now_us: int,
    ) -> Mapping[ReplicaId, float]:
        """W, corrected by what engines say: who was idle at two scrapes in a row has done half of its work,
        and who has requests waiting has that many of mean size to do. Old statistics correct nothing.
        """
        loads = self._loads.get((tenant, model))
        if not loads:
            return NO_WORK
        fresh = {replica: row for replica, row in stats.items() if now_us - row.reported_us < FRESH_US}
        for replica, row in fresh.items():
            if (load := loads.get(replica)) is not None:
                load.scraped(row)
        work = self.of(tenant, model, now_s)
        mean = self._means.get((tenant, model))
        waiting = {
            replica: row.requests_waiting for replica, row in fresh.items() if row.requests_waiting > 0
        }
        if mean is None or not waiting:
            return work
        more = {replica: work.get(replica, 0.0) + count * mean.tokens for replica, count in waiting.items()}
        return {**work, **more}

    def everything(self, now_s: float) -> Iterable[Assigned]:
        """All that is known, for a metric or an explanation."""
        for tenant, model in list(self._loads):
            for replica, tokens in self.of(tenant, model, now_s).items():
                yield Assigned(tenant, model, replica, tokens)

    def _decayed(self, load: _Load, now_s: float) -> float:
        return load.tokens * math.exp(min(0.0, load.at_s - now_s) / self.decay_s)


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


def _nobody_cares() -> None:
    """What is assigned is not shared."""
