"""The log has lost its tail, deltas have told it: what comes in its place is not taken for it."""

from __future__ import annotations

import pytest

from inferencecache.core.index.changes import ChangesMissingError
from inferencecache.schemas.positions import Position
from tests.unit.protocol.harness import Indexer, Partition, Router

MINUTE_NS = 60 * 10**9


def partition_that_lost_its_tail() -> tuple[Partition, Router]:
    """A router has seen 3 messages that the log has no more; the last snapshot is older than they are."""
    partition = Partition()
    partition.begin("r")
    partition.store("r", 100)
    owner = Indexer(partition, "a")
    owner.claim()
    owner.snapshot()
    for number in range(3):
        partition.store("r", 200 + 10 * number)
        owner.run()
    router = Router(partition)
    router.run()
    assert router.view.log == owner.view.log
    del partition.log.messages[-3:]
    partition.log.later_ns = MINUTE_NS
    return partition, router


def restored(partition: Partition) -> Indexer:
    assert partition.refs is not None
    return Indexer(partition, "a", base=partition.refs.current)


@pytest.mark.parametrize("appended", [1, 3, 6])
@pytest.mark.parametrize("reads_deltas", [True, False])
def test_an_owner_goes_on_from_a_snapshot_and_not_from_what_deltas_told(
    appended: int, reads_deltas: bool
) -> None:
    partition, router = partition_that_lost_its_tail()
    for number in range(appended):
        partition.store("r", 500 + 10 * number, incarnation="i")
    owner = restored(partition)
    if reads_deltas:
        owner.read_deltas()
    owner.read_log()
    owner.owner.should_own(True)
    owner.run()
    assert owner.owns()
    for _ in range(20):
        owner.run()
        router.run(after_s=0.24)
        assert router.view.proven
    assert router.view.log == owner.view.log
    assert router.view.digest == owner.view.digest


def test_a_claim_that_is_in_the_log_when_it_opens_is_not_that_of_the_state_that_follows() -> None:
    partition, _ = partition_that_lost_its_tail()
    owner = restored(partition)
    owner.owner.opened(partition.log.last)
    owner.read_log()
    assert not owner.owns()
    owner.claim()


def test_a_log_epoch_that_has_lost_something_is_ended_by_the_next_claim() -> None:
    partition, router = partition_that_lost_its_tail()
    before = router.view.log_epoch
    base = partition.refs.current if partition.refs is not None else None
    owner = Indexer(partition, "b", base=base, ended={before})
    owner.owner.opened(partition.log.last)
    owner.claim()
    assert owner.view.log_epoch != before
    assert owner.view.entries == 0
    router.run(after_s=60.0)
    router.run(after_s=60.0)
    assert router.view.log_epoch == owner.view.log_epoch


def test_changes_are_not_cut_behind_a_message_that_another_one_has_replaced() -> None:
    partition, _ = partition_that_lost_its_tail()
    owner = restored(partition)
    owner.read_log()
    log = owner.view.log
    with pytest.raises(ChangesMissingError):
        owner.fold.changes.cut(Position(log.sequence, log.time_ns + 1, log.created_ns), 1000)
    owner.fold.changes.drop_through(log.sequence)
    with pytest.raises(ChangesMissingError):
        owner.fold.changes.cut(Position(log.sequence, log.time_ns + 1, log.created_ns), 1000)
