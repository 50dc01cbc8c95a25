"""How fast an index folds what sidecars report, and whether that depends on how much it holds.

Run it with `python -m benchmarks.fold_bench`. Messages are folded as the indexer does it, from their
subject and their encoded bytes, with every change kept for a delta and forgotten once that could be told.
An index holds from ten thousand to ten million entries while blocks that it does not know are folded, 64 a
batch; they are evicted again, untimed, so that it keeps its size. Sizes take turns. Times are those of the
calling thread.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from benchmarks.figures import hand_in, median_ratio
from benchmarks.programs import kept_to, measured_core
from benchmarks.targets import FOLD_SIZES
from inferencecache.core.index.fold import Fold
from inferencecache.core.log.subjects import control_subject, replica_subject
from inferencecache.core.partitions.messages import log_message
from inferencecache.schemas.ids import (
    AdapterId,
    HashScheme,
    Incarnation,
    LogEpoch,
    ModelId,
    OwnerId,
    ReplicaId,
    TenantId,
)
from inferencecache.schemas.positions import Position
from inferencecache.schemas.records import (
    AnyRecord,
    Batch,
    Begin,
    Claim,
    Evicted,
    Stored,
    Tick,
    encode_batch,
)
from inferencecache.schemas.senders import ReplicaSender

REPLICAS: Final = 16
BLOCKS: Final = 64
FILLING_BLOCKS: Final = 65_536
ROUNDS: Final = 7
MOST_A_ROUND: Final = 128_000
TENANT, MODEL, SCHEME = TenantId("team"), ModelId("model"), HashScheme("vllm")
ADAPTER: Final = AdapterId("")
START_NS: Final = 1_800_000_000_000_000_000
Message = tuple[str, bytes, Position]


class Partition:
    """A log and its fold."""

    def __init__(self, capacity: int) -> None:
        self.fold = Fold(capacity)
        self._sequence = 0
        self._batches = [0] * REPLICAS
        owner = control_subject(1, 0, "o")
        self.take([self._message(owner, Batch(records=(Claim(OwnerId("o"), LogEpoch("e")),)))])
        self.take([self._message(owner, Batch(records=(Tick(OwnerId("o"), 1, START_NS // 1000),)))])
        self.take([self.report(number, Begin(scheme=SCHEME)) for number in range(REPLICAS)])

    def _message(self, subject: str, batch: Batch) -> Message:
        self._sequence += 1
        return subject, encode_batch(batch), Position(self._sequence, START_NS + self._sequence, START_NS)

    def report(self, replica: int, record: AnyRecord) -> Message:
        """A batch of one of its replicas."""
        self._batches[replica] += 1
        subject = replica_subject(1, 0, ReplicaSender(TENANT, MODEL, ReplicaId(f"replica-{replica}")))
        batch = Batch(Incarnation(f"i{replica}"), self._batches[replica], 0, (record,))
        return self._message(subject, batch)

    def reports(self, keys: bytes, blocks: int, *, is_stored: bool) -> Iterator[Message]:
        """Batches of so many blocks, from one replica after the other."""
        tokens = (np.arange(1, blocks + 1, dtype="<i4") * 16).tobytes()
        for number, start in enumerate(range(0, len(keys), 8 * blocks)):
            part = keys[start : start + 8 * blocks]
            record: AnyRecord = (
                Stored(SCHEME, ADAPTER, 1, 8, part, tokens[: len(part) // 2])
                if is_stored
                else Evicted(ADAPTER, 8, part, len(part) // 8)
            )
            yield self.report(number % REPLICAS, record)

    def take(self, messages: Sequence[Message]) -> float:
        """Fold all of them; seconds that it took."""
        fold, start = self.fold, time.thread_time()
        for subject, payload, position in messages:
            folded = fold.fold(log_message(subject, payload, position))
            assert folded.dropped is None
            fold.changes.drop_through(position.sequence)
        return time.thread_time() - start


def filled(entries: int) -> Partition:
    """A partition that holds so many, with room for those of a round."""
    partition = Partition(entries + min(MOST_A_ROUND, max(entries // 8, 8 * BLOCKS)) + 1)
    rng = np.random.default_rng(entries)
    for start in range(0, entries, FILLING_BLOCKS):
        keys = rng.bytes(8 * min(FILLING_BLOCKS, entries - start))
        partition.take(list(partition.reports(keys, FILLING_BLOCKS, is_stored=True)))
    assert partition.fold.view.entries == entries
    return partition


def round_of(partition: Partition, entries: int, blocks: int, rng: np.random.Generator) -> float:
    """M entries a second of new blocks, of which the index has none afterwards."""
    at_once = min(MOST_A_ROUND, max(entries // 8, 8 * BLOCKS)) // blocks * blocks
    repeats = -(-MOST_A_ROUND // 4 // at_once)
    took_s = 0.0
    for _ in range(repeats):
        keys = rng.bytes(8 * at_once)
        took_s += partition.take(list(partition.reports(keys, blocks, is_stored=True)))
        partition.take(list(partition.reports(keys, blocks, is_stored=False)))
        assert partition.fold.view.entries == entries
    return repeats * at_once / took_s / 1e6


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(FOLD_SIZES))
    arguments = parser.parse_args()
    rng = np.random.default_rng(1)
    figures: dict[str, float] = {}
    with kept_to(measured_core()):
        partitions = {entries: filled(entries) for entries in arguments.sizes}
        rounds = [
            [round_of(partition, entries, BLOCKS, rng) for entries, partition in partitions.items()]
            for _ in range(arguments.rounds)
        ]
        for entries, of_size in zip(partitions, zip(*rounds, strict=True), strict=True):
            figures[f"folded at {entries:,} entries"] = statistics.median(of_size)
        figures["rate at the largest over the smallest"] = median_ratio(
            (each[0], each[-1]) for each in rounds
        )
        middle = list(partitions)[len(partitions) // 2]
        for blocks in (8, 512):
            rates = [round_of(partitions[middle], middle, blocks, rng) for _ in range(arguments.rounds)]
            figures[f"folded at {middle:,} entries, batches of {blocks}"] = statistics.median(rates)
    hand_in(figures)
    print(f"new entries of {REPLICAS} replicas from encoded batches of {BLOCKS}, million a second")
    for name, figure in figures.items():
        print(f"{name:>50} {figure:8.2f}")


if __name__ == "__main__":
    main()
