"""The cap and quotas over partitions: by demand, noticed soon, and without going back and forth."""

from __future__ import annotations

from random import Random

import pytest

from inferencecache.core.index.fold import Fold
from inferencecache.core.protocol.budgets import Divider, budget_of, even_parts, part_of, use_of
from inferencecache.schemas.budgets import Division, PartitionUse, Share, Use
from inferencecache.schemas.ids import OwnerId, TenantId
from inferencecache.schemas.records import PolicyApplied, TenantQuota
from tests.oracle.logs import LogWriter
from tests.oracle.stories import write
from tests.unit.protocol.shared_whole import SharedWhole

TENANT = TenantId("t")


def policy(*quotas: tuple[str, int], revision: int = 1) -> PolicyApplied:
    return PolicyApplied(
        OwnerId(""), 0, revision, (), tuple(TenantQuota(TenantId(name), most) for name, most in quotas)
    )


def settled(whole: int, *parts: int) -> Share:
    """Nobody keeps to other parts."""
    return Share(whole, parts, parts, whole, parts)


def run(shared: SharedWhole, stored: list[int], seconds: int) -> int:
    """Every partition stores so much each second; answers how many divisions that took."""
    made = 0
    for _ in range(seconds):
        for partition, entries in zip(shared.partitions, stored, strict=True):
            partition.store(entries)
        made += shared.second()
        assert sum(shared.parts) <= shared.whole
        assert sum(shared.held) <= shared.whole
    return made


def test_the_first_parts_are_even_and_sum_up_to_the_whole() -> None:
    assert even_parts(10, 4) == (3, 3, 2, 2)
    assert even_parts(2, 3) == (1, 1, 0)
    assert [part_of(10, None, number, 4) for number in range(4)] == [3, 3, 2, 2]
    assert part_of(-1, None, 0, 4) == -1


def test_a_whole_that_was_lowered_lowers_the_parts_of_before_and_one_that_was_raised_waits() -> None:
    share = settled(100, 90, 10)
    assert [part_of(50, share, number, 2) for number in (0, 1)] == [45, 5]
    assert [part_of(300, share, number, 2) for number in (0, 1)] == [90, 10]


def test_of_a_lowered_whole_a_part_grows_only_by_what_earlier_parts_leave() -> None:
    """Earlier parts of 11 stay as they are while the whole is lowered from 20 to 12."""
    share = Share(20, (0, 0, 14), (0, 0, 20), 11, (3, 3, 3))
    assert [part_of(20, share, number, 3) for number in range(3)] == [0, 0, 14]
    assert [part_of(12, share, number, 3) for number in range(3)] == [0, 0, 6]
    assert part_of(12, Share(20, (0, 0, 14), (0, 0, 20)), 2, 3) == 4, "earlier ones are even"


def test_one_partition_has_everything_and_is_never_divided() -> None:
    budget = budget_of(policy(("t", 7)), 100, None, 0, 1)
    assert (budget.max_entries, budget.quotas) == (100, ())
    divider = Divider(1)
    divider.used(0, PartitionUse(1, 0, 1, Use(100, 100, 50)))
    assert divider.divide(None, 100, policy()) is None


def test_a_busy_partition_gets_the_room_that_idle_ones_do_not_use() -> None:
    shared = SharedWhole(1000, 4)
    run(shared, [50, 0, 0, 0], 60)
    assert shared.held[0] >= 990


def test_room_is_given_before_anything_is_evicted_while_there_is_enough() -> None:
    shared = SharedWhole(10_000, 4)
    run(shared, [100, 0, 0, 0], 80)
    assert shared.partitions[0].held == 8000
    assert shared.partitions[0].evicted == 0


def test_an_idle_partition_gives_way_to_one_that_stores() -> None:
    shared = SharedWhole(1000, 2)
    run(shared, [500, 0], 1)
    for _ in range(120):
        shared.partitions[0].store(0)
        run(shared, [0, 100], 1)
    assert shared.held[1] >= 900


@pytest.mark.parametrize("rates", [[10, 10], [10, 90], [300, 100, 100], [1, 2, 3, 4]])
def test_under_pressure_parts_come_to_be_in_proportion_to_what_is_stored(rates: list[int]) -> None:
    shared = SharedWhole(1000, len(rates))
    run(shared, rates, 2000)
    for part, rate in zip(shared.parts, rates, strict=True):
        assert 1000 * rate / sum(rates) - part <= part / 8 + 1, "lacks what it would notice"
    assert run(shared, rates, 500) <= 1


@pytest.mark.parametrize("whole", [3, 1000])
def test_demand_that_varies_by_chance_does_not_move_parts_for_long(whole: int) -> None:
    shared, random = SharedWhole(whole, 3), Random(5)
    for _ in range(1000):
        run(shared, [random.randrange(20) for _ in range(3)], 1)
    assert sum(run(shared, [random.randrange(20) for _ in range(3)], 1) for _ in range(1000)) <= 10


def test_a_partition_without_any_part_gets_one_when_something_is_stored_there() -> None:
    shared = SharedWhole(1000, 2)
    run(shared, [100, 0], 100)
    shared.partitions[1].append(Division(shared.partitions[1].division, Share(1000, (1000, 0), (1000, 0))))
    assert shared.parts[1] == 0
    run(shared, [100, 100], 200)
    assert shared.held[1] > 400


def test_a_part_grows_only_after_the_others_keep_to_theirs() -> None:
    divider, nothing = Divider(2), policy()
    divider.used(0, PartitionUse(1, 0, 1, Use(100, 100, 100)))
    divider.used(1, PartitionUse(1, 0, 1, Use(80, 100)))
    divider.used(0, PartitionUse(1, 0, 1, Use(100, 100, 200)))
    lowered = divider.divide(None, 200, nothing)
    assert lowered is not None
    assert lowered.cap is not None
    assert lowered.cap.parts == (100, lowered.cap.aims[1])
    assert lowered.cap.aims[1] < 80
    divider.used(0, PartitionUse(1, 1, 1, Use(100, 100, 220)))
    assert divider.divide(lowered, 200, nothing) is None, "partition 1 does not keep to it yet"
    divider.used(1, PartitionUse(1, 1, 1, Use(80, lowered.cap.aims[1])))
    given = divider.divide(lowered, 200, nothing)
    assert given is not None
    assert given.cap is not None
    assert sum(given.cap.parts) <= 200 - (80 - lowered.cap.aims[1]), "partition 1 still holds more"
    divider.used(0, PartitionUse(1, 2, 1, Use(100, given.cap.parts[0], 220)))
    divider.used(1, PartitionUse(1, 2, 1, Use(lowered.cap.aims[1], given.cap.parts[1])))
    rest = divider.divide(given, 200, nothing)
    assert rest is not None
    assert rest.cap is not None
    assert rest.cap.parts == rest.cap.aims


def test_a_new_divider_goes_on_with_the_division_it_finds() -> None:
    found = Division(7, Share(100, (50, 10), (90, 10)))
    divider = Divider(2)
    divider.used(0, PartitionUse(3, 7, 1, Use(50, 50, 5)))
    divider.used(1, PartitionUse(3, 7, 1, Use(4, 10)))
    assert divider.divide(found, 100, policy()) == Division(8, Share(100, (90, 10), (90, 10), 100, (50, 10)))


@pytest.mark.parametrize("found", [None, Division(3, Share(100, (50, 50), (50, 50)))])
def test_a_division_that_is_lost_or_an_earlier_one_is_followed_by_what_is_in_force(
    found: Division | None,
) -> None:
    """Owners would keep to the lost one for ever: to its parts of what the whole was, too."""
    divider = Divider(2)
    divider.used(0, PartitionUse(3, 7, 1, Use(60, 90)))
    divider.used(1, PartitionUse(3, 7, 1, Use(5, 10)))
    kept = Division(9, settled(100, 90, 10))
    assert divider.divide(found, 20, policy()) == kept, "an owner may know division 8"
    divider.used(0, PartitionUse(3, 9, 1, Use(18, 18)))
    divider.used(1, PartitionUse(3, 9, 1, Use(2, 2)))
    assert divider.divide(kept, 20, policy()) == Division(10, Share(20, (18, 2), (18, 2), 100, (90, 10)))


def test_what_was_told_before_the_bucket_was_lost_counts_no_longer() -> None:
    divider = Divider(2)
    divider.used(0, PartitionUse(3, 0, 1, Use(50, 50, 9)))
    divider.used(1, PartitionUse(3, 0, 1, Use(5, 50)))
    divider.lost()
    assert divider.divide(None, 100, policy()) is None
    divider.used(0, PartitionUse(3, 1, 1, Use(50, 90)))
    divider.used(1, PartitionUse(3, 1, 1, Use(5, 10)))
    assert divider.divide(None, 100, policy()) == Division(3, settled(100, 90, 10))


def test_parts_of_another_number_of_partitions_give_way_to_those_in_force() -> None:
    divider = Divider(2)
    divider.used(0, PartitionUse(3, 7, 1, Use(90, 60)))
    divider.used(1, PartitionUse(3, 7, 1, Use(5, 40)))
    assert divider.divide(Division(7, Share(100, (100,), (100,))), 100, policy()) is not None


@pytest.mark.parametrize("whole", [0, 1])
def test_of_a_whole_smaller_than_the_number_of_partitions_each_has_one_or_none(whole: int) -> None:
    shared = SharedWhole(whole, 3)
    run(shared, [0, 0, 5], 20)
    assert shared.held == [0, 0, whole]
    assert run(shared, [0, 0, 5], 20) == 0


def test_quotas_are_divided_by_tenant_and_even_ones_are_not_written() -> None:
    divider, quotas = Divider(2), policy(("t", 100), ("u", 100))
    divider.used(0, PartitionUse(1, 0, 1, Use(0, -1), {TENANT: Use(50, 50)}))
    divider.used(1, PartitionUse(1, 0, 1, Use(0, -1)))
    made = divider.divide(None, -1, quotas)
    assert made == Division(1, None, {TENANT: Share(100, (50, 25), (75, 25))})
    assert made is not None
    assert [each.max_keys for each in budget_of(quotas, -1, made, 1, 2).quotas] == [25, 50]


@pytest.mark.parametrize("found", [None, Division(3, None, {TENANT: Share(100, (60, 40), (60, 40))})])
def test_while_a_partition_knows_another_policy_the_cap_is_divided_and_quotas_stay(
    found: Division | None,
) -> None:
    divider, quotas = Divider(2), policy(("t", 100), revision=2)
    number = found.number if found is not None else 0
    divider.used(0, PartitionUse(1, number, 2, Use(10, 10), {TENANT: Use(60, 60, 9)}))
    divider.used(1, PartitionUse(1, number, 1, Use(0, 10)))
    made = divider.divide(found, 20, quotas)
    assert made is not None
    assert made.cap == Share(20, (10, 5), (15, 5))
    assert made.quotas == (found.quotas if found is not None else {})


@pytest.mark.parametrize("told", [{}, {TENANT: Use(60, 60)}])
def test_a_lost_division_is_followed_once_all_is_told_that_is_in_force_of_quotas(
    told: dict[TenantId, Use],
) -> None:
    divider = Divider(2)
    divider.used(0, PartitionUse(1, 1, 2, Use(10, 12), told))
    divider.used(1, PartitionUse(1, 1, 1, Use(0, 8)))
    kept = settled(20, 12, 8)
    quotas = policy(*(("t", 100) for _ in told), revision=2)
    assert divider.divide(None, 20, quotas) == (None if told else Division(3, kept))
    divider.used(1, PartitionUse(1, 1, 2, Use(0, 8), {each: Use(0, 40) for each in told}))
    shares = {each: settled(100, 60, 40) for each in told}
    assert divider.divide(None, 20, quotas) == Division(3, kept, shares)


def test_a_quota_that_was_changed_is_divided_anew() -> None:
    divider = Divider(2)
    before = Division(1, None, {TENANT: Share(100, (90, 10), (90, 10))})
    divider.used(0, PartitionUse(1, 1, 2, Use(0, -1), {TENANT: Use(90, 45)}))
    divider.used(1, PartitionUse(1, 1, 2, Use(0, -1), {TENANT: Use(0, 5)}))
    made = divider.divide(before, -1, policy(("t", 50), revision=2))
    assert made is not None
    assert made.quotas[TENANT].whole == 50
    assert sum(made.quotas[TENANT].parts) <= 50
    divider.used(0, PartitionUse(1, 2, 3, Use(0, -1), {TENANT: Use(45, 45)}))
    divider.used(1, PartitionUse(1, 2, 3, Use(0, -1)))
    assert divider.divide(made, -1, policy(revision=3)) is None, "a quota that is gone needs no division"


def test_a_partition_tells_what_it_holds_what_it_may_and_what_it_evicted() -> None:
    log, fold = LogWriter(), Fold()
    log.claim()
    log.tick()
    log.apply_policy(quotas=[TenantQuota(TENANT, 5), TenantQuota(TenantId("u"), 9)], revision=4)
    log.budget(3, [TenantQuota(TENANT, 4), TenantQuota(TenantId("u"), 5)])
    write(log, "r1{a:1,b:1}; r2{a:1,b:1,c:1,d:1,e:1}")
    for message in log.messages:
        fold.fold(message)
    use = use_of(fold, 0, 2)
    assert use == PartitionUse(1, 0, 4, Use(3, 3, 2), {TENANT: Use(3, 4, 1)}), (
        "an even part unused is not told"
    )
