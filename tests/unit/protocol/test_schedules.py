"""Whatever the schedule, routers end at the digest that the log leads to, and no delta is forked or lost."""

from __future__ import annotations

from random import Random

import pytest

from inferencecache.core.index.fold import Fold, LogMessage
from inferencecache.core.protocol.owner import Action, PublishDelta, PublishRecords, ReadLastDelta
from inferencecache.schemas.ids import LogEpoch
from inferencecache.schemas.records import Batch, Claim, decode_batch, encode_batch
from tests.unit.protocol.harness import Indexer, Partition, Router

SEEDS = 150
STEPS = 250


class Schedule:
    """One partition with several indexers and routers, scheduled by a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.partition = Partition()
        self.born = 0
        self.keys = 0
        self.indexers = [self._indexer() for _ in range(2)]
        self.late: list[tuple[Indexer, Action]] = []
        self.routers = [Router(self.partition)]
        self.partition.begin("r0")
        self.begun = {"r0"}

    def _indexer(self) -> Indexer:
        self.born += 1
        refs = self.partition.refs
        base = None
        if refs is not None and self.random.random() < 0.7:
            base = self.random.choice([ref for ref in (refs.current, refs.previous) if ref is not None])
        indexer = Indexer(self.partition, f"ix{self.born}", base=base)
        indexer.withhold = []
        indexer.deltas_read = max(indexer.deltas_read, self.partition.deltas.first - 1)
        return indexer

    def step(self) -> None:
        random = self.random
        indexer = random.choice(self.indexers)
        match random.choice(
            ["report"] * 4
            + ["read"] * 4
            + ["poll"] * 6
            + ["act"] * 8
            + ["deltas"] * 2
            + ["verdict", "verdict", "snapshot", "kill", "late", "router", "router", "new router"]
            + ["damage", "forget", "new epoch"]
        ):
            case "report":
                self.report()
            case "read":
                indexer.read_log(
                    min(self.partition.log.last, indexer.view.log.sequence + random.randint(1, 4))
                )
            case "poll":
                indexer.poll(random.choice([0.001, 0.02, 0.5, 4.0]))
            case "act":
                self.act(indexer)
            case "deltas":
                indexer.read_deltas()
            case "verdict":
                indexer.owner.should_own(random.random() < 0.7)
            case "snapshot":
                if indexer.owner.owning:
                    indexer.owner.want_snapshot()
            case "kill" if random.random() < 0.3:
                self.late += [(indexer, action) for action in indexer.withhold or ()]
                self.indexers[self.indexers.index(indexer)] = self._indexer()
            case "late" if self.late:
                dead, action = self.late.pop(random.randrange(len(self.late)))
                if isinstance(action, PublishDelta | PublishRecords):
                    dead.do(action)
            case "router":
                random.choice(self.routers).run(0.1)
            case "new router" if len(self.routers) < 4:
                self.routers.append(Router(self.partition))
            case "forget" if not indexer.owner.owning:
                indexer.fold.changes.drop_through(indexer.view.log.sequence)
            case "new epoch" if random.random() < 0.1:
                claim = Claim(indexer.id, LogEpoch(f"epoch-{self.partition.log.last}"))
                self.partition.log.append(encode_batch(Batch(records=(claim,))))
            case "damage" if random.random() < 0.2:
                random.choice(self.routers).damage.add(self.partition.deltas.last + 1)

    def report(self) -> None:
        replica = f"r{self.random.randrange(3)}"
        if replica not in self.begun:
            self.begun.add(replica)
            self.partition.begin(replica)
        self.keys += 10
        self.partition.store(replica, self.keys)

    def act(self, indexer: Indexer) -> None:
        """One action that was asked for takes place, its answer lost now and then."""
        held = indexer.withhold
        if not held:
            return
        action = held.pop(self.random.randrange(len(held)))
        indexer.withhold = None
        if isinstance(action, PublishDelta) and self.random.random() < 0.1:
            indexer.lose_acks = True
        if isinstance(action, ReadLastDelta) and self.random.random() < 0.1:
            indexer.owner.read_failed(action.number, indexer.now)
        else:
            indexer.do(action)
        indexer.lose_acks = False
        indexer.withhold = held

    def settle(self) -> None:
        """Everything works and one indexer should own."""
        for indexer in self.indexers:
            held, indexer.withhold = indexer.withhold or [], None
            for action in held:
                indexer.do(action)
            indexer.owner.should_own(False)
        chosen = self.random.choice(self.indexers)
        for _ in range(400):
            for indexer in self.indexers:
                indexer.read_log()
                indexer.read_deltas()
                indexer.owner.should_own(indexer is chosen)
                indexer.poll(0.1)
            for router in self.routers:
                router.damage.clear()
                router.run(0.1)
            is_told = chosen.owner.owning and not chosen.owner.untold
            if is_told and all(router.view.log == chosen.view.log for router in self.routers):
                return
            if chosen.owner.owning and self.random.random() < 0.05:
                chosen.owner.want_snapshot()
            if self.partition.asked and chosen.owner.owning:
                self.partition.asked = 0
                chosen.owner.want_snapshot()
        raise AssertionError("nothing settles")

    def fold_of_log(self) -> Fold:
        fold = Fold()
        for sequence in range(1, self.routers[0].view.log.sequence + 1):
            message = self.partition.log.at(sequence)
            position = self.partition.log.position(sequence)
            fold.fold(LogMessage(position, message.sender, decode_batch(message.payload)))
        return fold


@pytest.mark.parametrize("part", range(5))
def test_any_schedule_leads_to_the_digest_of_the_log(part: int) -> None:
    for seed in range(part, SEEDS, 5):
        schedule = Schedule(seed)
        for _ in range(STEPS):
            schedule.step()
        schedule.settle()
        expected = schedule.fold_of_log()
        for router in schedule.routers:
            assert router.view.digest == expected.view.digest, f"seed {seed}"
            assert router.view.log_epoch == expected.view.log_epoch, f"seed {seed}"
        ids = [message.message_id for message in schedule.partition.deltas.messages]
        assert len(set(ids)) == len(ids), f"seed {seed}"
