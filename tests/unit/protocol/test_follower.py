"""A router's view is always whole, and finds its way back after a hole, damage or a new log epoch."""

from __future__ import annotations

from msgspec.structs import replace

from inferencecache.core.protocol.liveness import TELLING_WAIT_S
from inferencecache.core.protocol.position import Lost
from inferencecache.schemas.deltas import decode_delta, encode_delta
from inferencecache.schemas.ids import LogEpoch, OwnerId
from inferencecache.schemas.records import Batch, Claim, encode_batch
from tests.unit.protocol.harness import Indexer, Partition, Router, Stream


def started() -> tuple[Partition, Indexer]:
    partition = Partition()
    indexer = Indexer(partition, "a")
    partition.begin("r")
    partition.store("r", 1)
    indexer.claim()
    return partition, indexer


def test_no_reference_and_no_delta_is_an_empty_partition_caught_up() -> None:
    router = Router(Partition())
    assert router.is_complete()
    assert router.view.is_empty()


def test_a_follower_is_complete_once_it_has_the_delta_that_was_last_when_it_started() -> None:
    partition, _ = started()
    router = Router(partition)
    assert not router.is_complete()
    router.run()
    assert router.is_complete()


def test_a_late_follower_starts_from_the_snapshot() -> None:
    partition, indexer = started()
    indexer.snapshot()
    partition.store("r", 50)
    indexer.snapshot()
    partition.store("r", 90)
    indexer.run()
    assert partition.deltas.first > 1
    router = Router(partition)
    router.run()
    assert router.is_complete()
    assert router.view.digest == indexer.view.digest
    assert router.view.delta == partition.deltas.position(partition.deltas.last)
    assert len(router.loaded) == 1


def test_a_snapshot_that_is_out_of_reach_is_loaded_when_it_is_in_reach_again() -> None:
    partition, indexer = started()
    indexer.snapshot()
    partition.store("r", 50)
    current = indexer.snapshot().object
    router = Router(partition, unreachable=[current, current, current])
    router.run()
    assert router.loaded == [current]
    for wait_s in (1.0, 2.0, 4.0):
        router.run(after_s=wait_s - 0.1)
        asked = len(router.loaded)
        router.run(after_s=0.2)
        assert len(router.loaded) == asked + 1
    assert router.loaded == [current] * 4
    assert router.is_complete()
    assert router.view.digest == indexer.view.digest
    assert (router.follower.repairs, partition.asked) == (0, 0)


def test_an_unreadable_snapshot_is_replaced_by_the_previous_one() -> None:
    partition, indexer = started()
    indexer.snapshot()
    partition.store("r", 50)
    current = indexer.snapshot()
    del partition.objects[current.object]
    router = Router(partition)
    router.run()
    assert len(router.loaded) == 2
    assert router.view.digest == indexer.view.digest


def test_without_any_readable_snapshot_a_fresh_one_is_asked_for() -> None:
    partition, indexer = started()
    indexer.snapshot()
    partition.store("r", 50)
    indexer.snapshot()
    partition.objects.clear()
    router = Router(partition)
    assert partition.asked == 1
    router.run(1.5)
    assert partition.asked == 1
    assert not router.is_complete()
    indexer.snapshot()
    router.run(1.5)
    router.run()
    assert router.is_complete()
    assert router.view.digest == indexer.view.digest


def test_damage_is_repaired_from_the_snapshot_while_the_old_view_answers() -> None:
    partition, indexer = started()
    router = Router(partition)
    router.run()
    partition.store("r", 50)
    indexer.run()
    router.damage.add(partition.deltas.last)
    before = router.view.digest
    router.run()
    assert router.view.digest == before
    assert router.follower.repairs >= 1
    assert partition.asked == 1
    partition.store("r", 90)
    indexer.snapshot()
    router.run(1.5)
    router.run()
    assert router.view.digest == indexer.view.digest


def test_a_view_that_took_a_wrong_delta_is_not_proven_until_one_has_passed_it() -> None:
    partition, indexer = started()
    base = indexer.snapshot()
    router = Router(partition)
    router.run()
    partition.store("r", 50)
    indexer.run()
    wrong = partition.deltas.messages.pop()
    delta = decode_delta(wrong.payload)
    partition.deltas.messages.append(
        wrong._replace(payload=encode_delta(replace(delta, digest=delta.digest ^ 1)))
    )
    router.run()
    wronged = router.view
    assert not wronged.proven
    assert router.loaded == [base.object, base.object]
    assert partition.asked == 1
    indexer.snapshot()
    router.run(1.5)
    router.run()
    assert router.view.proven
    assert router.view.digest == indexer.view.digest


def test_a_base_from_before_the_damage_does_not_take_the_place_of_a_newer_view() -> None:
    partition, indexer = started()
    indexer.snapshot()
    router = Router(partition)
    partition.store("r", 50)
    indexer.run()
    router.run()
    seen = router.view.delta.sequence
    partition.store("r", 90)
    indexer.run()
    router.damage.add(partition.deltas.last)
    router.run()
    assert router.view.delta.sequence >= seen
    assert partition.asked == 1


def test_trouble_in_a_stream_that_was_created_anew_is_new_trouble() -> None:
    partition, indexer = started()
    router = Router(partition)
    router.run()
    for first in (50, 90, 130):
        partition.store("r", first)
        indexer.run()
    router.damage.add(partition.deltas.last)
    router.run()
    partition.deltas = Stream(created_ns=9)
    partition.store("r", 170)
    indexer.run(60)
    indexer.snapshot()
    base = indexer.snapshot()
    router.damage.clear()
    router.run(1.5)
    router.run()
    assert router.view.digest == indexer.view.digest
    router.loaded.clear()
    partition.store("r", 210)
    indexer.run()
    assert partition.deltas.last < 5
    router.damage.add(partition.deltas.last)
    router.run()
    assert base.object in router.loaded


def test_deltas_cut_below_a_sleeping_follower_lead_it_to_a_snapshot() -> None:
    partition, indexer = started()
    router = Router(partition)
    router.run()
    for first in (50, 90, 130):
        partition.store("r", first)
        indexer.snapshot()
    assert partition.deltas.first > router.read
    router._reading = False
    router.do(router.follower.lost(router.now, Lost("cut", "")))
    router.run()
    assert router.view.digest == indexer.view.digest


def test_time_goes_on_between_deltas() -> None:
    partition, indexer = started()
    for _ in range(3):
        indexer.run(60)
    router = Router(partition)
    router.run()
    time_us = router.view.time_us
    assert time_us > 0
    assert router.follower.now_us(router.now + 0.5) == time_us + 500_000


def test_the_old_view_answers_until_its_replicas_have_told_as_much_in_the_new_log_epoch() -> None:
    partition, indexer = started()
    indexer.run(60)
    router = Router(partition)
    router.run()
    old = router.view
    partition.log.append(encode_batch(Batch(records=(Claim(OwnerId("a"), LogEpoch("another")),))))
    indexer.run()
    router.run()
    assert router.view is old
    assert router.view.entries == 4
    partition.begin("r", "j")
    indexer.run()
    router.run()
    assert router.view is old, "the replica has begun, and told nothing yet"
    partition.store("r", 70, incarnation="j")
    indexer.run()
    router.run()
    assert router.view is not old
    assert router.view.log_epoch == "another"
    assert router.view.digest == indexer.view.digest
    assert router.is_complete()


def test_a_replica_that_has_begun_with_less_is_not_waited_for_long() -> None:
    partition, indexer = started()
    indexer.run(60)
    router = Router(partition)
    router.run()
    partition.log.append(encode_batch(Batch(records=(Claim(OwnerId("a"), LogEpoch("another")),))))
    partition.begin("r", "j")
    indexer.run()
    router.run()
    router.run(TELLING_WAIT_S - 1)
    assert router.view.log_epoch == "epoch-of-a"
    router.run(1.5)
    assert router.view.log_epoch == "another"


def test_the_old_view_does_not_answer_for_ever() -> None:
    partition, indexer = started()
    indexer.run(60)
    router = Router(partition)
    router.run()
    partition.log.append(encode_batch(Batch(records=(Claim(OwnerId("a"), LogEpoch("another")),))))
    indexer.run()
    router.run()
    assert router.view.log_epoch == "epoch-of-a"
    router.run(31.0)
    assert router.view.log_epoch == "another"


def test_lost_deltas_and_snapshots_leave_the_old_view_until_there_is_something_new() -> None:
    partition, indexer = started()
    indexer.run(60)
    router = Router(partition)
    router.run()
    old = router.view
    partition.deltas = Stream(created_ns=9)
    partition.refs = None
    router._reading = False
    router.do(router.follower.lost(router.now, Lost("storage_lost", "")))
    router.run()
    assert router.view is old


def test_deltas_of_another_log_epoch_are_skipped() -> None:
    partition, indexer = started()
    router = Router(partition)
    router.run()
    digest = router.view.digest
    stranger = Indexer(partition, "z")
    partition.store("r", 50)
    stranger.read_log()
    stranger.fold.view.log_epoch = LogEpoch("stray")
    piece = next(stranger.fold.changes.cut(router.view.log, 1 << 20))
    delta = piece._replace(mark=piece.mark._replace(log_epoch=LogEpoch("stray"))).delta(OwnerId("z"), 1)
    partition.deltas.append(encode_delta(delta))
    router.run()
    assert router.view.digest == digest
    indexer.run(40)
    router.run()
    assert router.view.digest == indexer.view.digest
    assert router.follower.repairs == 0


def test_a_follower_that_was_never_told_of_a_new_log_epoch_finds_it_by_the_references() -> None:
    partition, _ = started()
    router = Router(partition)
    router.run()
    claim = Claim(OwnerId("b"), LogEpoch("another"))
    partition.log.append(encode_batch(Batch(records=(claim,))))
    successor = Indexer(partition, "b")
    successor.read_log()
    successor.fold.changes.drop_through(successor.view.log.sequence)
    successor.claim()
    partition.begin("r", "j")
    partition.store("r", 70, incarnation="j")
    successor.run(120)
    assert partition.refs is not None
    router.run()
    assert router.view.log_epoch == "epoch-of-a"
    router.run(1.5)
    router.run()
    assert router.view.log_epoch == "another"
    assert router.view.digest == successor.view.digest


def test_a_stray_delta_of_a_former_log_epoch_changes_nothing() -> None:
    partition, indexer = started()
    indexer.snapshot()
    router = Router(partition)
    router.run()
    stray = decode_delta(partition.deltas.at(1).payload)
    partition.deltas.append(encode_delta(replace(stray, log_epoch=LogEpoch("old"), emptied=False)))
    router.run()
    router.run(1.5)
    assert router.follower.repairs == 0
    partition.store("r", 50)
    indexer.run(40)
    router.run()
    assert router.view.digest == indexer.view.digest
    assert router.follower.repairs == 0
