"""The order of eviction in an index of many holds [IDX section 14]."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from random import Random

import pytest

from inferencecache.core.index.eviction import MOST_VICTIMS
from inferencecache.core.index.fold import Fold
from inferencecache.core.index.reading import Scope
from inferencecache.core.index.snapshot import encode_snapshot, load_fold
from inferencecache.schemas.ids import PROBE_TENANT, AdapterId, HashScheme, ModelId, ReplicaId, TenantId
from inferencecache.schemas.positions import Position
from inferencecache.schemas.records import (
    Alive,
    AnyRecord,
    Begin,
    Credit,
    CreditedHolds,
    Gap,
    Stats,
    TenantPolicy,
    TenantQuota,
)
from tests.oracle.keys import key_of
from tests.oracle.logs import SECOND_US, LogWriter, stored

TENANT, MODEL, SCHEME, ADAPTER = TenantId("t"), ModelId("m"), HashScheme("vllm"), AdapterId("")
SCOPE = Scope(TENANT, MODEL, SCHEME)
MANY = 20_000


class Filling:
    """An index of holds `number`, each of one of three replicas, some seconds old."""

    def __init__(self, ages_s: Iterable[int], tenant: str = "t") -> None:
        self.fold, self.log = Fold(1 << 16), LogWriter()
        self._folded = 0
        self.log.claim()
        self.log.tick()
        self.ages_s = list(ages_s)
        by_age: dict[tuple[int, int], list[bytes]] = {}
        for number, age_s in enumerate(self.ages_s):
            by_age.setdefault((number % 3, age_s), []).append(hash_of(number))
        for (replica, age_s), hashes in by_age.items():
            seen_us = self.log.stamp_us - age_s * SECOND_US
            record = stored(hashes, [16] * len(hashes), timestamp_us=seen_us)
            self.log.report(f"r{replica}", record, tenant=tenant)
        self.step()

    def step(self) -> None:
        for message in self.log.messages[self._folded :]:
            self.fold.fold(message)
        self._folded = len(self.log.messages)

    def left(self) -> list[int]:
        """The numbers that are still held."""
        now_us = self.fold.view.time_us
        return [
            number
            for number in range(len(self.ages_s))
            if self.fold.view.exact(SCOPE, ADAPTER, hash_of(number), now_us, 1 << 60)
        ]

    def evict_in_steps(self, *sizes: int) -> None:
        """Lower the cap step by step."""
        for size in sizes:
            self.log.budget(size)
            self.update("other")
        self.step()

    def update(self, replica: str) -> None:
        """Report as often as it takes to evict everything."""
        for _ in range(1 + len(self.ages_s) // MOST_VICTIMS):
            self.log.report(replica, Stats())


def hash_of(number: int) -> bytes:
    return struct.pack(">Q", number * 7919)


def ages(spread_s: int) -> list[int]:
    random = Random(spread_s)
    return [random.randrange(spread_s) for _ in range(MANY)]


@pytest.mark.rule("IDX-151", "IDX-152", "IDX-153", "IDX-154")
@pytest.mark.parametrize("spread_s", [1, 5, 1000, 1_000_000])
def test_the_cap_takes_the_oldest_first_and_equally_old_ones_by_hash(spread_s: int) -> None:
    filling = Filling(ages(spread_s))
    order = sorted(range(MANY), key=lambda number: (-filling.ages_s[number], number))
    filling.evict_in_steps(MANY - 1, MANY - 70, MANY - 5000, MANY - 5001, 900)
    assert filling.left() == sorted(order[-900:])
    assert filling.fold.evictions == {("lru", "cap"): MANY - 900}


@pytest.mark.rule("IDX-157", "IDX-158", "IDX-164")
@pytest.mark.parametrize("others", [0, 10 * MANY])
def test_a_quota_takes_the_oldest_keys_first_however_much_others_hold(others: int) -> None:
    filling = Filling(ages(1000))
    if others:
        hashes = [hash_of(number) for number in range(others)]
        filling.log.report("r", stored(hashes, [16] * others), tenant="other")
    order = sorted(range(MANY), key=lambda number: (-filling.ages_s[number], number))
    for quota in (MANY - 1, MANY - 70, 500):
        filling.log.apply_policy(quotas=[TenantQuota(TENANT, quota)])
        filling.update("r0")
    filling.step()
    assert filling.left() == sorted(order[-500:])
    assert filling.fold.tenant_evictions == {"t": MANY - 500}


def lower(filling: Filling, limit: str, to: int) -> None:
    """Lower the quota, or the cap, and begin to enforce it."""
    if limit == "quota":
        filling.log.apply_policy(quotas=[TenantQuota(TENANT, to)])
    else:
        filling.log.budget(to)
    filling.log.report("r0", Stats())


def evicted(filling: Filling) -> int:
    """How many holds go while the last messages are folded."""
    before = filling.fold.view.entries
    filling.step()
    return before - filling.fold.view.entries


@pytest.mark.rule("IDX-151", "IDX-157")
@pytest.mark.parametrize("limit", ["quota", "cap"])
def test_no_record_evicts_more_than_a_bounded_number_and_what_it_stored(limit: str) -> None:
    filling = Filling(ages(1000))
    lower(filling, limit, 100)
    assert evicted(filling) == MOST_VICTIMS
    hashes = [hash_of(number) for number in range(MANY, MANY + 50)]
    filling.log.report("r0", stored(hashes, [16] * 50))
    assert evicted(filling) == MOST_VICTIMS


@pytest.mark.rule("IDX-151", "IDX-157")
@pytest.mark.parametrize("limit", ["quota", "cap"])
def test_ticks_go_on_with_what_an_update_began_also_behind_a_snapshot(limit: str) -> None:
    filling = Filling(ages(1000))
    order = sorted(range(MANY), key=lambda number: (-filling.ages_s[number], number))
    lower(filling, limit, 100)
    steps = [evicted(filling)]
    while steps[-1]:
        filling.fold = load_fold(encode_snapshot(filling.fold, Position()))
        filling.log.tick()
        steps.append(evicted(filling))
    assert max(steps) == MOST_VICTIMS
    assert filling.left() == sorted(order[-100:])


@pytest.mark.rule("IDX-162")
@pytest.mark.parametrize("limit", ["quota", "cap"])
def test_ticks_begin_no_enforcement(limit: str) -> None:
    filling = Filling(ages(1000))
    lower(filling, limit, MANY)
    filling.log.apply_policy(quotas=[TenantQuota(TENANT, 100)])
    filling.log.budget(100)
    filling.log.tick()
    assert evicted(filling) == 0


@pytest.mark.rule("IDX-146", "IDX-152", "IDX-155")
def test_the_algorithm_in_force_decides_what_credits_count() -> None:
    filling = Filling(ages(1000))
    credited = Random(1).sample(range(MANY), MANY // 2)
    for replica in range(3):
        keys = [key_of(hash_of(number))[1] for number in credited if number % 3 == replica]
        columns = struct.pack(f"<{len(keys)}Q", *keys), struct.pack(f"<{len(keys)}I", *[1] * len(keys))
        holds = CreditedHolds(TENANT, MODEL, SCHEME, ADAPTER, 8, ReplicaId(f"r{replica}"), *columns)
        filling.log.control("r", Credit((holds,)))
    order = sorted(range(MANY), key=lambda number: (-filling.ages_s[number], number))
    filling.evict_in_steps(MANY - 1000)
    assert filling.left() == sorted(order[1000:])
    filling.log.apply_policy([TenantPolicy(TENANT, lfu=True)])
    filling.evict_in_steps(MANY - 6000)
    favoured = set(credited)
    order = sorted(order[1000:], key=lambda number: number in favoured)
    assert filling.left() == sorted(order[5000:])


@pytest.mark.rule("IDX-188")
def test_the_reserved_tenants_holds_are_no_victims() -> None:
    filling = Filling(ages(1000), tenant=PROBE_TENANT)
    filling.log.report("r", stored([b"1", b"2"], [1, 2]))
    filling.evict_in_steps(1, 0)
    assert (len(filling.fold.view.table), filling.fold.view.entries) == (MANY, 0)


def sidecars() -> Filling:
    """Two sidecars with two holds each, `young`'s stored last."""
    filling = Filling([])
    for age_s, replica, hashes in ((60, "old", [b"1", b"2"]), (30, "young", [b"3", b"4"])):
        filling.log.sidecar(replica, "i", 0, Begin(), stored(hashes, [8, 16]), age_ms=age_s * 1000)
    filling.evict_in_steps(4)
    return filling


@pytest.mark.parametrize(
    ("records", "stays"),
    [((), "young"), ((Alive(),), "old"), ((Alive(), Gap()), "young")],
)
def test_certain_holds_of_a_replica_that_is_alive_go_after_older_ones(
    records: tuple[AnyRecord, ...], stays: str
) -> None:
    filling = sidecars()
    filling.log.sidecar("old", "i", 1, *records)
    filling.evict_in_steps(3, 2)
    assert filling.fold.view.members(SCOPE) == (stays,)


def test_an_alive_that_is_older_than_the_one_before_counts() -> None:
    filling = sidecars()
    filling.log.sidecar("old", "i", 1, Alive())
    filling.evict_in_steps(3)
    filling.log.sidecar("old", "i", 2, Alive(), age_ms=59_000)
    filling.evict_in_steps(1)
    assert filling.fold.view.members(SCOPE) == ("young",)


@pytest.mark.rule("IDX-148", "IDX-150")
@pytest.mark.parametrize("interval_s", [1, 7, 60])
def test_a_sweep_finds_all_that_expired_within_an_interval_and_nothing_else(interval_s: int) -> None:
    filling = Filling(ages(3000))
    filling.log.sweep_interval_s = interval_s
    start_us = filling.fold.view.time_us
    for _ in range(interval_s):
        filling.log.tick()
    filling.step()
    passed_s = (filling.fold.view.time_us - start_us) // SECOND_US
    certainly = {number for number, age_s in enumerate(filling.ages_s) if age_s >= 1800}
    possibly = {number for number, age_s in enumerate(filling.ages_s) if age_s >= 1800 - passed_s}
    gone = set(range(MANY)) - set(filling.left())
    assert certainly <= gone <= possibly
    assert filling.fold.evictions == {("lru", "ttl"): len(gone)}


@pytest.mark.rule("IDX-54")
def test_a_shorter_time_to_live_concerns_what_is_there() -> None:
    filling = Filling(ages(1000))
    filling.log.sweep_interval_s = 1
    filling.log.tick()
    filling.step()
    assert len(filling.left()) == MANY
    filling.log.apply_policy([TenantPolicy(TENANT, 100 * SECOND_US)])
    filling.log.tick(0)
    filling.step()
    assert filling.left() == [number for number, age_s in enumerate(filling.ages_s) if age_s < 99]
