"""A whole over partitions in memory: owners that keep to parts, and dividers, step by step.

The cap stands for every whole: quotas are divided by the same code.
"""

from __future__ import annotations

from inferencecache.core.protocol.budgets import Divider, budget_of
from inferencecache.schemas.budgets import Division, PartitionUse, Use
from inferencecache.schemas.ids import OwnerId
from inferencecache.schemas.records import PolicyApplied

POLICY = PolicyApplied(OwnerId(""), 0, 0)


class Holding:
    """One partition as its log says: entries, its part, and the division that this is of."""

    def __init__(self, number: int, whole: int, partitions: int) -> None:
        self._number = number
        self._partitions = partitions
        self._whole = whole
        self.division = 0
        self.part = budget_of(POLICY, whole, None, number, partitions).max_entries
        self.held = 0
        self.evicted = 0
        self.owner_epoch = 1
        self.policy = POLICY.revision

    def store(self, entries: int) -> None:
        """An update: the part is kept to, also when it was lowered before."""
        self.held += entries
        over = max(0, self.held - self.part)
        self.held -= over
        self.evicted += over

    def expire(self, entries: int) -> None:
        self.held -= min(entries, self.held)

    def append(self, division: Division | None) -> None:
        """A budget record is folded."""
        budget = budget_of(POLICY, self._whole, division, self._number, self._partitions)
        if budget.division >= self.division:
            self.division, self.part = budget.division, budget.max_entries

    def change_owner(self, evicted: int, policy: int) -> None:
        """Another process owns it; what it counted before is its own affair, and the policy it knows."""
        self.owner_epoch += 1
        self.evicted = evicted
        self.policy = policy

    def use(self) -> PartitionUse:
        cap = Use(self.held, self.part, self.evicted)
        return PartitionUse(self.owner_epoch, self.division, self.policy, cap)


class SharedWhole:
    """Partitions of one whole, and the bucket with the division."""

    def __init__(self, whole: int, partitions: int) -> None:
        self.whole = whole
        self.partitions = [Holding(number, whole, partitions) for number in range(partitions)]
        self.division: Division | None = None
        self.divider = self.new_divider()

    def new_divider(self) -> Divider:
        return Divider(len(self.partitions))

    @property
    def parts(self) -> list[int]:
        return [partition.part for partition in self.partitions]

    @property
    def held(self) -> list[int]:
        return [partition.held for partition in self.partitions]

    def second(self) -> bool:
        """Everybody does what is done each second, nothing is late; was a new division made?"""
        for partition in self.partitions:
            if self.division is not None:
                partition.append(self.division)
        for number, partition in enumerate(self.partitions):
            self.divider.used(number, partition.use())
        made = self.divider.divide(self.division, self.whole, POLICY)
        self.division = made or self.division
        return made is not None
