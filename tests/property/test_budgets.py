"""Whatever is late, lost or done by two at once: partitions together never hold more than the whole."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from inferencecache.core.protocol.budgets import Divider, budget_of
from inferencecache.schemas.budgets import Division, PartitionUse, Use
from inferencecache.schemas.ids import OwnerId, TenantId
from inferencecache.schemas.records import PolicyApplied, TenantQuota
from tests.unit.protocol.shared_whole import POLICY, SharedWhole

DIVIDERS = 2
STEPS = ["store", "expire", "replace"] + ["read", "append", "fold", "tell", "hear", "divide"] * 3


class Chaos:
    """Random steps: messages wait, overtake each other or are lost; owners and dividers are replaced."""

    def __init__(self, random: Random, whole: int, partitions: int) -> None:
        self.random = random
        self.shared = SharedWhole(whole, partitions)
        self._dividers = [self.shared.new_divider() for _ in range(DIVIDERS)]
        self._busy = 0
        """The partition that is stored to; the others are quiet, so they keep what they hold too much."""
        self._read: list[Division | None] = [None] * partitions
        """What each owner last read of the division."""
        self._read_by_dividers: list[Division | None] = [None] * DIVIDERS
        self._appended: list[list[Division | None]] = [[] for _ in range(partitions)]
        self._told: list[list[PartitionUse]] = [[] for _ in range(DIVIDERS * partitions)]

    def step(self) -> None:
        random = self.random
        number = random.randrange(len(self.shared.partitions))
        partition = self.shared.partitions[number]
        divider = random.randrange(DIVIDERS)
        match random.choice(STEPS):
            case "store":
                if random.random() < 0.05:
                    self._busy = number
                self.shared.partitions[self._busy].store(random.choice((0, 1, 5, self.shared.whole)))
            case "expire":
                partition.expire(random.choice((1, 5, self.shared.whole)))
            case "read":
                self._read[number] = self.shared.division
            case "append":
                self._appended[number].append(self._read[number])
            case "fold":
                self._fold_one(number)
            case "tell":
                for told in self._told[number :: len(self.shared.partitions)]:
                    told.append(partition.use())
            case "hear":
                self._hear_one(divider, number)
            case "divide":
                self._divide(divider)
            case "replace":
                self._replace(random.randrange(6), divider, number)

    def _fold_one(self, number: int) -> None:
        """Records of one owner may overtake each other, and are stored twice at worst."""
        waiting = self._appended[number]
        if waiting:
            division = self.random.choice(waiting)
            if self.random.random() < 0.8:
                waiting.remove(division)
            self.shared.partitions[number].append(division)

    def _hear_one(self, divider: int, number: int) -> None:
        told = self._told[divider * len(self.shared.partitions) + number]
        if told:
            skipped = self.random.randrange(len(told))
            self._dividers[divider].used(number, told[skipped])
            del told[: skipped + 1]

    def _divide(self, divider: int) -> None:
        """A write counts only if nobody has written since what it is made of was read."""
        before = self._read_by_dividers[divider]
        made = self._dividers[divider].divide(before, self.shared.whole, POLICY)
        if made is not None and before is self.shared.division:
            self.shared.division = made
        if self.random.random() < 0.5:
            self._read_by_dividers[divider] = self.shared.division
        if made is not None and self.random.random() < 0.1:
            self._lose()

    def _lose(self) -> None:
        """Somebody deletes the bucket, with a division that some owners may have read."""
        self.shared.division = None
        self._read_by_dividers = [None] * DIVIDERS
        for told in self._told:
            told.clear()
        for each in self._dividers:
            each.lost()

    def _replace(self, what: int, divider: int, number: int) -> None:
        if what == 0:
            self._dividers[divider] = Divider(len(self.shared.partitions))
        elif what == 1:
            self.shared.partitions[number].change_owner(self.random.randrange(100), self.random.randrange(2))
            self._appended[number].clear()
            self._read[number] = self.random.choice((None, self._read[number], self.shared.division))


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    whole=st.sampled_from([0, 3, 100, 2**62]),
    partitions=st.integers(2, 4),
)
def test_partitions_never_may_hold_more_than_the_whole(seed: int, whole: int, partitions: int) -> None:
    chaos = Chaos(Random(seed), whole, partitions)
    for _ in range(2000):
        chaos.step()
        assert sum(chaos.shared.parts) <= whole
        assert sum(chaos.shared.held) <= whole


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32), partitions=st.integers(2, 4))
def test_once_nothing_is_late_any_more_a_partition_that_needs_room_gets_it(
    seed: int, partitions: int
) -> None:
    chaos = Chaos(Random(seed), 1000, partitions)
    for _ in range(400):
        chaos.step()
    shared = chaos.shared
    for _ in range(120):
        shared.partitions[0].store(200)
        for idle in shared.partitions[1:]:
            idle.expire(50)
            idle.store(0)
        shared.second()
    assert shared.partitions[0].held >= 980


TENANT = TenantId("t")


class Limited:
    """One partition: the policy set and the division that it keeps to, and the tenant's keys."""

    def __init__(self, number: int, partitions: int, policy: PolicyApplied) -> None:
        self._place = (number, partitions)
        self.policy = policy
        self.division: Division | None = None
        self.held = 0
        self._evicted = 0

    @property
    def whole(self) -> int:
        [quota] = self.policy.quotas
        return quota.max_keys

    @property
    def part(self) -> int:
        [quota] = budget_of(self.policy, -1, self.division, *self._place).quotas
        return quota.max_keys

    def store(self, keys: int) -> None:
        over = max(0, self.held + keys - self.part)
        self.held += keys - over
        self._evicted += over

    def use(self) -> PartitionUse:
        number = self.division.number if self.division is not None else 0
        use = Use(self.held, self.part, self._evicted)
        return PartitionUse(1, number, self.policy.revision, Use(0, -1), {TENANT: use})


def quota(whole: int, revision: int) -> PolicyApplied:
    return PolicyApplied(OwnerId(""), 0, revision, (), (TenantQuota(TENANT, whole),))


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32), most=st.sampled_from([12, 1000, 2**62]), partitions=st.integers(2, 4))
def test_while_a_quota_changes_partitions_may_hold_no_more_than_the_largest_that_one_knows(
    seed: int, most: int, partitions: int
) -> None:
    """Partitions learn of quotas and of divisions in order, each in its own time."""
    random = Random(seed)
    policy = quota(random.randint(0, most), 1)
    limited = [Limited(number, partitions, policy) for number in range(partitions)]
    division: Division | None = None
    divider = Divider(partitions)
    for _ in range(600):
        number = random.randrange(partitions)
        match random.choice(("policy", "division", "division", "tell", "tell", "divide", "store", "expire")):
            case "policy":
                if random.random() < 0.2:
                    policy = quota(random.randint(0, most), policy.revision + 1)
                limited[number].policy = policy
            case "division":
                limited[number].division = division
            case "tell":
                divider.used(number, limited[number].use())
            case "divide":
                division = divider.divide(division, -1, limited[0].policy) or division
            case "store":
                limited[number].store(random.choice((1, most // 10, most)))
            case "expire":
                limited[number].held -= random.randint(0, limited[number].held)
        assert sum(each.part for each in limited) <= max(each.whole for each in limited)
