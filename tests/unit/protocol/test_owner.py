"""One owner tells a partition's changes in an unbroken line of deltas, whoever owned it before."""

from __future__ import annotations

from itertools import pairwise

from inferencecache.core.index.fold import Fold, LogMessage
from inferencecache.core.protocol.owner import (
    Owner,
    OwnerSettings,
    PublishDelta,
    PublishRecords,
    TakeSnapshot,
)
from inferencecache.core.protocol.position import Lost
from inferencecache.schemas.budgets import Division, Share
from inferencecache.schemas.deltas import Delta, decode_delta
from inferencecache.schemas.ids import LogEpoch, OwnerId, TenantId
from inferencecache.schemas.positions import Position
from inferencecache.schemas.records import (
    Batch,
    Budget,
    Claim,
    PolicyApplied,
    TenantPolicy,
    TenantQuota,
    Tick,
    decode_batch,
    encode_batch,
)
from inferencecache.schemas.senders import ControlSender
from tests.unit.protocol.harness import Indexer, Partition, Router, Stream


def told(partition: Partition) -> list[Delta]:
    return [decode_delta(message.payload) for message in partition.deltas.messages]


def assert_unbroken(partition: Partition) -> None:
    deltas = told(partition)
    for before, after in pairwise(deltas):
        assert after.emptied or after.from_ == before.to


def test_the_first_owner_claims_what_is_there_and_tells_it_from_nothing() -> None:
    partition = Partition()
    partition.begin("r")
    partition.store("r", 100)
    indexer = Indexer(partition, "a")
    indexer.claim()
    first = told(partition)[0]
    assert first.emptied
    assert first.from_ == Position()
    assert first.log_epoch == "epoch-of-a"
    router = Router(partition)
    router.run()
    assert router.view.digest == indexer.view.digest != 0
    assert router.view.log == indexer.view.log
    assert_unbroken(partition)


def test_nothing_is_claimed_without_being_wanted() -> None:
    indexer = Indexer(Partition(), "a")
    indexer.read_log()
    assert indexer.poll() == []
    assert indexer.owner.due(indexer.now) == float("inf")


def test_of_two_first_claims_only_one_is_stored() -> None:
    partition = Partition()
    partition.begin("r")
    partition.store("r", 1)
    first, second = Indexer(partition, "a"), Indexer(partition, "b")
    for indexer in (first, second):
        indexer.withhold = []
        indexer.read_log()
        indexer.owner.should_own(True)
        indexer.poll()
    for indexer in (first, second):
        held, indexer.withhold = indexer.withhold, None
        for action in held or ():
            indexer.do(action)
    first.run()
    second.read_log()
    assert first.owns()
    assert first.view.entries == second.view.entries == 4
    assert first.view.log_epoch == second.view.log_epoch == "epoch-of-a"


def test_a_claim_that_was_withheld_is_made_again_soon() -> None:
    indexer = Indexer(Partition(), "a")
    indexer.owner.should_own(True)
    indexer.withhold = []
    indexer.poll()
    indexer.owner.claim_withheld(indexer.now)
    assert indexer.poll(0.05) == []
    (again,) = indexer.poll(0.1)
    assert isinstance(again, PublishRecords)
    assert indexer.poll(1.0) == []


def test_an_owner_ticks_each_second_and_gives_its_part_of_the_cap_once() -> None:
    partition = Partition()
    indexer = Indexer(partition, "a")
    indexer.owner._settings = indexer.owner._settings._replace(max_entries=7)
    indexer.claim()
    before = partition.log.last
    for _ in range(100):
        indexer.read_log()
        indexer.poll(0.1)
    records = [r for m in partition.log.messages for r in decode_batch(m.payload).batch.records]
    assert 9 <= partition.log.last - before <= 11
    assert sum(isinstance(record, Budget) for record in records) == 1
    tick = next(record for record in records if isinstance(record, Tick))
    assert (tick.owner, tick.owner_epoch, tick.sweep_interval_s) == ("a", 1, 60)
    assert indexer.view.time_us > 0


def test_an_owner_appends_the_policy_whenever_the_fold_does_not_have_it() -> None:
    partition = Partition()
    indexer = Indexer(partition, "a")
    indexer.owner._settings = indexer.owner._settings._replace(max_entries=100, partitions=4)
    indexer.claim()
    quotas = (TenantQuota(TenantId("t"), 10), TenantQuota(TenantId("u"), 2), TenantQuota(TenantId("v"), 0))
    indexer.owner.policy_read(PolicyApplied(OwnerId(""), 0, 7, (TenantPolicy(TenantId("t"), 5),), quotas))
    for _ in range(3):
        indexer.poll(1.0)
        indexer.read_log()
    assert indexer.fold.policy == PolicyApplied(OwnerId("a"), 1, 7, (TenantPolicy(TenantId("t"), 5),), quotas)
    assert indexer.fold.budget.max_entries == 25
    assert [quota.max_keys for quota in indexer.fold.budget.quotas] == [3, 1, 0]
    records = [r for m in partition.log.messages for r in decode_batch(m.payload).batch.records]
    assert sum(isinstance(record, PolicyApplied) for record in records) == 1


def test_a_revision_that_a_new_bucket_gives_again_is_another_policy_set() -> None:
    indexer = Indexer(Partition(), "a")
    indexer.claim()
    for quota in (10, 20):
        quotas = (TenantQuota(TenantId("t"), quota),)
        indexer.owner.policy_read(PolicyApplied(OwnerId(""), 0, 1, (), quotas))
        indexer.poll(1.0)
        indexer.read_log()
        assert indexer.fold.policy.quotas == quotas


def test_an_owner_appends_its_part_of_a_division_and_goes_back_to_none_before() -> None:
    partition = Partition()
    indexer = Indexer(partition, "a")
    indexer.owner._settings = indexer.owner._settings._replace(max_entries=100, partition=1, partitions=2)
    indexer.owner.policy_read(PolicyApplied(OwnerId(""), 0, 7, (), (TenantQuota(TenantId("t"), 9),)))
    indexer.claim()
    assert indexer.fold.budget == Budget(OwnerId("a"), 1, 50, (TenantQuota(TenantId("t"), 4),))
    share = Share(100, (30, 70), (30, 70))
    indexer.owner.division_read(Division(2, share, {TenantId("t"): Share(9, (8, 1), (8, 1))}))
    indexer.poll(1.0)
    indexer.read_log()
    divided = Budget(OwnerId("a"), 1, 70, (TenantQuota(TenantId("t"), 1),), 2)
    assert indexer.fold.budget == divided
    for earlier in (None, Division(1, Share(100, (10, 90), (10, 90)))):
        indexer.owner.division_read(earlier)
        indexer.poll(1.0)
        indexer.read_log()
        assert indexer.fold.budget == divided


def test_an_owner_that_does_not_know_the_division_lowers_its_part_with_the_quota() -> None:
    partition = Partition()
    indexer = Indexer(partition, "a")
    indexer.owner._settings = indexer.owner._settings._replace(max_entries=100, partition=1, partitions=2)
    quotas = (TenantQuota(TenantId("t"), 20), TenantQuota(TenantId("u"), 20))
    indexer.owner.policy_read(PolicyApplied(OwnerId(""), 0, 7, (), quotas))
    indexer.owner.division_read(Division(3, None, {TenantId("t"): Share(20, (5, 15), (5, 15))}))
    indexer.claim()
    assert [each.max_keys for each in indexer.fold.budget.quotas] == [15, 10]
    indexer.owner.division_read(None)
    changed = (TenantQuota(TenantId("t"), 4), TenantQuota(TenantId("u"), 30), TenantQuota(TenantId("v"), 6))
    indexer.owner.policy_read(PolicyApplied(OwnerId(""), 0, 8, (), changed))
    indexer.poll(1.0)
    indexer.read_log()
    assert indexer.fold.policy.revision == 8
    assert indexer.fold.budget.division == 3
    assert [each.max_keys for each in indexer.fold.budget.quotas] == [3, 10, 3]


def test_small_deltas_cost_their_readers_more_than_their_bytes() -> None:
    partition = Partition()
    indexer = Indexer(partition, "a")
    indexer.claim()
    before = indexer.owner.reading_cost
    for number in range(10):
        partition.store("r", number)
        indexer.run(2)
    assert indexer.owner.deltas_stored > 10
    assert indexer.owner.reading_cost - before >= 10 * 4096
    assert indexer.owner.reading_cost == indexer.owner.bytes_stored + 4096 * indexer.owner.deltas_stored


def test_deltas_leave_at_once_and_then_not_more_often_than_the_interval() -> None:
    partition = Partition()
    indexer = Indexer(partition, "a")
    indexer.claim()
    count = partition.deltas.last
    partition.begin("r")
    indexer.read_log()
    assert indexer.owner.due(indexer.now) <= indexer.now + 0.01
    indexer.poll(0.02)
    partition.store("r", 1)
    indexer.read_log()
    indexer.poll(0.002)
    assert partition.deltas.last == count + 1
    indexer.poll(0.009)
    assert partition.deltas.last == count + 2


def test_one_delta_is_in_flight_at_a_time() -> None:
    partition = Partition()
    indexer = Indexer(partition, "a")
    indexer.claim()
    indexer.withhold = []
    partition.begin("r")
    indexer.read_log()
    indexer.poll()
    partition.store("r", 1)
    indexer.read_log()
    indexer.poll()
    assert sum(isinstance(action, PublishDelta) for action in indexer.withhold) == 1
    held, indexer.withhold = indexer.withhold, None
    for action in held:
        indexer.do(action)
    indexer.run()
    assert_unbroken(partition)


def test_a_lost_acknowledgement_neither_repeats_nor_skips_a_delta() -> None:
    partition = Partition()
    indexer = Indexer(partition, "a")
    indexer.claim()
    router = Router(partition)
    indexer.lose_acks = True
    partition.begin("r")
    partition.store("r", 1)
    indexer.run(20)
    indexer.lose_acks = False
    partition.store("r", 50)
    indexer.run(20)
    router.run()
    assert router.view.digest == indexer.view.digest
    assert router.follower.repairs == 0
    assert_unbroken(partition)


def test_after_a_delta_that_is_stored_and_gone_a_snapshot_bridges_what_nobody_knows() -> None:
    partition = Partition()
    indexer = Indexer(partition, "a")
    indexer.claim()
    indexer.lose_acks = True
    partition.begin("r")
    indexer.read_log()
    indexer.poll()
    partition.deltas.purge_below(partition.deltas.last + 1)
    indexer.lose_acks = False
    indexer.run(20)
    assert partition.refs is not None
    assert partition.refs.current is not None
    partition.store("r", 1)
    indexer.run(20)
    assert told(partition)[0].from_ == partition.refs.current.log
    assert_unbroken(partition)


def test_a_standby_continues_without_a_hole() -> None:
    partition = Partition()
    first, second = Indexer(partition, "a"), Indexer(partition, "b")
    partition.begin("r")
    partition.store("r", 1)
    first.claim()
    router = Router(partition)
    partition.store("r", 50)
    second.claim()
    partition.store("r", 90)
    second.run()
    router.run()
    assert router.view.digest == second.view.digest
    assert (router.view.owner, router.follower.repairs) == ("b", 0)
    assert_unbroken(partition)


def test_a_former_owner_that_wakes_up_does_no_harm() -> None:
    partition = Partition()
    first, second = Indexer(partition, "a"), Indexer(partition, "b")
    partition.begin("r")
    first.claim()
    partition.store("r", 1)
    first.read_log()
    first.withhold = []
    first.poll()
    second.claim()
    partition.store("r", 50)
    second.run()
    end = partition.deltas.last
    late, first.withhold = first.withhold, None
    for action in late:
        if isinstance(action, PublishDelta):
            first.do(action)
    first.poll()
    assert partition.deltas.last == end
    assert not first.owns()
    assert first.poll() == []
    first.run()
    assert first.view.digest == second.view.digest
    assert partition.deltas.last == end
    assert_unbroken(partition)


def test_a_delta_of_a_later_claim_ends_ownership_before_that_claim_is_folded() -> None:
    partition = Partition()
    first, second = Indexer(partition, "a"), Indexer(partition, "b")
    first.claim()
    partition.begin("r")
    first.read_log()
    second.claim()
    first.poll()  # its delta is refused
    assert first.owns()
    first.poll()  # it reads what is there instead
    assert first.view.owner == "a"
    assert not first.owns()
    end = partition.deltas.last
    for _ in range(10):
        first.poll(1.0)
    assert partition.deltas.last == end
    assert partition.log.last == second.view.log.sequence
    first.owner.should_own(False)
    first.run()
    assert first.view.owner == "b"
    assert_unbroken(partition)


def test_an_owner_that_is_not_deposed_continues_behind_what_it_finds() -> None:
    partition = Partition()
    first, second = Indexer(partition, "a"), Indexer(partition, "b")
    first.claim()
    second.read_log()
    second.read_deltas()
    partition.begin("r")
    first.read_log()
    second.owner.should_own(True)
    second.poll()
    second.read_log()
    first.poll()  # the former owner's last delta comes before the new owner's first
    second.run()
    assert second.owns()
    router = Router(partition)
    router.run()
    assert router.view.digest == second.view.digest
    assert router.follower.repairs == 0
    assert_unbroken(partition)


def test_an_owner_that_kept_too_little_bridges_with_a_snapshot() -> None:
    partition = Partition()
    first = Indexer(partition, "a")
    partition.begin("r")
    partition.store("r", 1)
    first.claim()
    base = first.snapshot()
    router = Router(partition)
    router.run()
    partition.store("r", 50)
    first.read_log()  # folded by an owner that dies before it tells
    second = Indexer(partition, "b", base=base)
    second.read_log()
    second.fold.changes.drop_through(second.view.log.sequence)
    second.claim()
    partition.store("r", 90)
    second.run()
    router.run()
    router.run(2.0)
    assert router.view.digest == second.view.digest
    late = Router(partition)
    late.run()
    assert late.view.digest == second.view.digest
    assert late.follower.repairs == 0


def test_lost_deltas_are_bridged_with_a_snapshot() -> None:
    partition = Partition()
    indexer = Indexer(partition, "a")
    partition.begin("r")
    partition.store("r", 1)
    indexer.claim()
    router = Router(partition)
    partition.deltas = Stream(created_ns=9)
    partition.store("r", 50)
    indexer.run(80)
    assert partition.refs is not None
    late = Router(partition)
    late.run()
    assert late.view.digest == indexer.view.digest
    router._reading = False
    router.do(router.follower.lost(router.now, Lost("storage_lost", "")))
    router.run()
    assert router.view.digest == indexer.view.digest


def test_a_delta_that_no_message_can_carry_is_bridged() -> None:
    partition = Partition()
    indexer = Indexer(partition, "a")
    indexer.claim()
    partition.begin("r")
    partition.store("r", 1)
    indexer.read_log()
    indexer.withhold = []
    indexer.poll()
    publish = next(action for action in indexer.withhold if isinstance(action, PublishDelta))
    indexer.withhold = None
    indexer.owner.failed(publish.message_id, indexer.now, too_large=True)
    partition.store("r", 50)
    indexer.run()
    router = Router(partition)
    router.run()
    assert router.view.digest == indexer.view.digest


def test_a_snapshot_stands_at_a_stored_delta_and_nothing_is_folded_meanwhile() -> None:
    partition = Partition()
    indexer = Indexer(partition, "a")
    partition.begin("r")
    indexer.claim()
    partition.store("r", 1)
    indexer.read_log()
    indexer.withhold = []
    indexer.owner.want_snapshot()
    indexer.poll()
    assert indexer.is_holding()
    partition.store("r", 50)
    indexer.read_log()
    assert indexer.view.log.sequence == partition.log.last - 1
    held, indexer.withhold = indexer.withhold, []
    for action in held:
        indexer.do(action)
    indexer.poll()
    (take,) = [action for action in indexer.withhold if isinstance(action, TakeSnapshot)]
    assert take.delta == partition.deltas.last
    assert told(partition)[-1].to == indexer.view.log
    indexer.withhold = None
    indexer.do(take)
    assert not indexer.is_holding()
    assert partition.refs is not None
    assert partition.refs.current is not None
    assert partition.refs.current.delta.sequence == take.delta


def test_a_restarted_indexer_goes_on_from_its_snapshot() -> None:
    partition = Partition()
    first = Indexer(partition, "a")
    partition.begin("r")
    partition.store("r", 1)
    first.claim()
    base = first.snapshot()
    partition.store("r", 50)
    first.run()
    router = Router(partition)
    second = Indexer(partition, "b", base=base)
    second.claim()
    partition.store("r", 90)
    second.run()
    router.run()
    assert router.view.digest == second.view.digest
    assert router.follower.repairs == 0
    assert_unbroken(partition)


def test_a_restarted_indexer_without_a_snapshot_goes_on_from_the_log() -> None:
    partition = Partition()
    first = Indexer(partition, "a")
    partition.begin("r")
    partition.store("r", 1)
    first.claim()
    router = Router(partition)
    second = Indexer(partition, "b")
    second.claim()
    partition.store("r", 90)
    second.run()
    router.run()
    assert router.view.digest == second.view.digest
    assert router.follower.repairs == 0
    assert second.view.log_epoch == "epoch-of-a"
    assert_unbroken(partition)


def test_a_new_log_epoch_is_told_from_nothing() -> None:
    partition = Partition()
    first = Indexer(partition, "a")
    partition.begin("r")
    partition.store("r", 1)
    first.claim()
    claim = Claim(OwnerId("b"), LogEpoch("another"))
    second = Indexer(partition, "b")
    second.read_log()
    partition.log.append(encode_batch(Batch(records=(claim,))))
    second.read_deltas()
    second.owner.should_own(True)
    partition.begin("r", "j")
    partition.store("r", 70, incarnation="j")
    second.run()
    assert second.owns()
    emptied = [delta for delta in told(partition) if delta.emptied]
    assert [delta.log_epoch for delta in emptied] == ["epoch-of-a", "another"]
    router = Router(partition)
    router.run()
    assert router.view.digest == second.view.digest
    assert router.view.log_epoch == "another"
    first.run()
    assert not first.owns()


def test_records_of_an_indexer_that_has_lost_its_state_have_ids_of_their_own() -> None:
    ids = []
    for log_epoch in ("first", "second"):
        fold = Fold(64)
        owner = Owner(fold, OwnerId("a"), LogEpoch(log_epoch), OwnerSettings())
        owner.opened(0)
        owner.should_own(True)
        for number in (1, 2):
            [appended] = [each for each in owner.poll(0.0, 0) if isinstance(each, PublishRecords)]
            ids.append(appended.message_id)
            batch = decode_batch(encode_batch(Batch(records=appended.records)))
            fold.fold(LogMessage(Position(number, number, 1), ControlSender("o"), batch))
        assert owner.owning
        assert fold.view.time_us
    assert len(set(ids)) == len(ids) == 4


def test_control_records_of_one_owner_have_ids_of_their_own() -> None:
    partition = Partition()
    indexer = Indexer(partition, "a")
    indexer.withhold = []
    indexer.owner.should_own(True)
    for _ in range(5):
        indexer.poll(4.0)
    ids = [action.message_id for action in indexer.withhold if isinstance(action, PublishRecords)]
    assert len(ids) == len(set(ids)) == 5


def test_changes_given_up_while_deltas_cannot_be_stored_are_bridged_by_a_snapshot() -> None:
    partition = Partition()
    indexer = Indexer(partition, "a", max_change_bytes=20_000)
    partition.begin("r")
    indexer.claim()
    router = Router(partition)
    router.run()
    indexer.deltas_full = True
    for first in range(0, 4000, 4):
        partition.store("r", first)
        indexer.run(1)
    assert indexer.fold.changes.pending < 200
    assert partition.refs is not None
    indexer.deltas_full = False
    partition.store("r", 8000)
    indexer.run()
    router.run()
    router.run(1.5)
    router.run()
    assert router.view.digest == indexer.view.digest
    assert router.view.entries == 4004


def test_a_standby_that_gave_changes_up_takes_over_by_a_snapshot() -> None:
    partition = Partition()
    first = Indexer(partition, "a")
    partition.begin("r")
    first.claim()
    second = Indexer(partition, "b", max_change_bytes=2_000)
    second.read_log()
    second.read_deltas()
    for number in range(0, 400, 4):
        partition.store("r", number)
    second.read_log()
    assert second.fold.changes.pending < 20
    second.claim()
    assert partition.refs is not None
    router = Router(partition)
    router.run()
    assert router.view.digest == second.view.digest
    assert router.view.entries == 400


def test_a_snapshot_that_is_due_does_not_stop_folding_while_deltas_cannot_be_stored() -> None:
    partition = Partition()
    indexer = Indexer(partition, "a")
    indexer.claim()
    indexer.deltas_full = True
    partition.begin("r")
    indexer.run(1)
    indexer.owner.want_snapshot()
    partition.store("r", 1)
    indexer.run()
    assert indexer.view.entries == 4
    indexer.deltas_full = False
    indexer.run(30)
    assert partition.refs is not None
    assert partition.refs.current is not None
    assert partition.refs.current.delta.sequence <= partition.deltas.last
    assert not indexer.owner.holding
