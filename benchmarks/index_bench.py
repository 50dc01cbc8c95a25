"""What the index costs: memory, ingest, lookups, snapshots and eviction.

Run it with `python -m benchmarks.index_bench`; `--entries` sets how many holds it works with, `--json` prints
the figures as one object. Times are those of the calling thread, so a busy machine disturbs them less.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import hand_in
from benchmarks.programs import kept_to, measured_core
from inferencecache.core.index import kernels
from inferencecache.core.index.fold import Fold, LogMessage
from inferencecache.core.index.keys import chain_keys
from inferencecache.core.index.reading import Scope
from inferencecache.core.index.snapshot import encode_snapshot, load_view
from inferencecache.core.index.view import View
from inferencecache.schemas.ids import AdapterId, HashScheme, LogEpoch, ModelId, OwnerId, ReplicaId, TenantId
from inferencecache.schemas.positions import Position
from inferencecache.schemas.records import (
    AnyRecord,
    Batch,
    Budget,
    Claim,
    Credit,
    CreditedHolds,
    DecodedBatch,
    PolicyApplied,
    Stored,
    TenantPolicy,
    TenantQuota,
    Tick,
)
from inferencecache.schemas.senders import ControlSender, ReplicaSender

BLOCKS = 64
REPLICAS = 16
LOOKUPS = 4000
TENANT, MODEL, SCHEME = TenantId("team"), ModelId("Qwen/Qwen2.5-0.5B-Instruct"), HashScheme("vllm")
ADAPTER = AdapterId("")
START_NS = 1_800_000_000_000_000_000
COUNTS = (np.arange(1, BLOCKS + 1) * 16).astype(np.int32).tobytes()

Keys = NDArray[np.uint64]


class Log:
    """Messages of one partition, a millisecond apart."""

    def __init__(self) -> None:
        self.sequence = 0
        self.stamp_ns = START_NS

    def position(self) -> Position:
        self.sequence += 1
        self.stamp_ns += 1_000_000
        return Position(self.sequence, self.stamp_ns, START_NS)

    def owner(self, *records: AnyRecord) -> LogMessage:
        return LogMessage(self.position(), ControlSender("o"), DecodedBatch(Batch(records=records)))

    def tick(self) -> LogMessage:
        self.stamp_ns += 999_000_000
        return self.owner(Tick(OwnerId("bench"), 1, self.stamp_ns // 1000))

    def credit(self, fold: Fold, rng: np.random.Generator) -> LogMessage:
        """Some accesses of everything that is held."""
        items = []
        for holder in fold.view.holders.by_number.values():
            keys = fold.view.table.keys_of(holder.number)
            counts = rng.integers(0, 50, len(keys)).astype(np.uint32)
            of = holder.name
            space = of.tenant, of.model, of.scheme, of.adapter, of.width
            items.append(CreditedHolds(*space, of.replica, keys.tobytes(), counts.tobytes()))
        return LogMessage(
            self.position(), ControlSender("r"), DecodedBatch(Batch(records=(Credit(tuple(items)),)))
        )

    def stored(self, keys: Keys) -> list[LogMessage]:
        """One batch for each chain of blocks, of one replica after the other."""
        messages = []
        for number, start in enumerate(range(0, len(keys), BLOCKS)):
            hashes = keys[start : start + BLOCKS].byteswap().tobytes()
            record = Stored(SCHEME, ADAPTER, 1, 8, hashes, COUNTS[: len(hashes) // 2])
            sender = ReplicaSender(TENANT, MODEL, ReplicaId(f"replica-{number % REPLICAS}"), "g")
            messages.append(LogMessage(self.position(), sender, DecodedBatch(Batch(records=(record,)))))
        return messages


def seconds(work: Callable[[], object]) -> float:
    """What the work took."""
    start = time.thread_time()
    work()
    return time.thread_time() - start


def fold_all(fold: Fold, messages: Iterable[LogMessage]) -> list[float]:
    """Fold, saying each message in a delta at once; answers what each took, in seconds."""
    times = []
    for message in messages:
        start = time.thread_time()
        fold.fold(message)
        times.append(time.thread_time() - start)
        fold.changes.drop_through(message.position.sequence)
    return times


def measure(entries: int) -> dict[str, float]:
    """All figures of an index of so many holds."""
    rng = np.random.default_rng(1)
    log, fold = Log(), Fold(entries + entries // 8)
    keys = rng.integers(0, 2**64, entries, dtype=np.uint64)
    fold_all(fold, [log.owner(Claim(OwnerId("bench"), LogEpoch("bench"))), log.tick()])
    figures: dict[str, float] = {}

    figures["ingest, M entries/s"] = entries / sum(fold_all(fold, log.stored(keys))) / 1e6
    again = [entries / sum(fold_all(fold, log.stored(keys))) / 1e6 for _ in range(3)]
    figures["ingest of known entries, M entries/s"] = max(again)
    figures["bytes an entry"] = memory(fold) / entries
    figures |= lookups(fold.view, keys, rng)
    figures |= snapshots(fold)
    figures |= evictions(fold, log, rng)
    del fold
    return figures | enforcements(entries, rng)


def memory(fold: Fold) -> int:
    """Bytes of the arrays that are in use, with a full heap of victims: one order in 32 holds."""
    return fold.view.table.used_bytes + len(fold.view.table) * kernels.ORDER.itemsize // 32


def lookups(view: View, keys: Keys, rng: np.random.Generator) -> dict[str, float]:
    """One replica's chain of 64 blocks, anywhere in the table: in the kernel and through the view."""
    starts = rng.integers(0, len(keys) // BLOCKS, LOOKUPS) * BLOCKS
    chains = [[key.tobytes() for key in keys[start : start + BLOCKS].byteswap()] for start in starts]
    scope, now_us = Scope(TENANT, MODEL, SCHEME), view.time_us
    packed = [chain_keys(chain)[1] for chain in chains]
    nothing = [keys[:0]] * LOOKUPS
    keyspace = view.holders.keyspaces[TENANT, MODEL, SCHEME, ADAPTER, 8]
    numbers, seeds = np.array([keyspace.number], np.int32), np.array([keyspace.seed], np.uint64)

    def in_kernel(chains: list[Keys]) -> None:
        for chain in chains:
            view.table.leading_runs(numbers, seeds, chain, 0)

    def through_view() -> None:
        for chain in chains:
            view.leading_runs(scope, ADAPTER, chain, now_us, 1_800_000_000)

    call = statistics.median(seconds(lambda: in_kernel(nothing)) for _ in range(5))
    kernel = statistics.median(seconds(lambda: in_kernel(packed)) for _ in range(5))
    whole = statistics.median(seconds(through_view) for _ in range(5))
    return {
        "lookup of 64 blocks, kernel, us": (kernel - call) / LOOKUPS * 1e6,
        "lookup of 64 blocks, view, us": whole / LOOKUPS * 1e6,
    }


def snapshots(fold: Fold) -> dict[str, float]:
    """Writing and loading the whole state."""
    chunks: list[bytes] = []
    chunks.extend(encode_snapshot(fold, Position()))
    writing = statistics.median(seconds(lambda: list(encode_snapshot(fold, Position()))) for _ in range(3))
    capacity = len(fold.view.table)
    loading = statistics.median(seconds(lambda: load_view(chunks, capacity)) for _ in range(3))
    size = sum(map(len, chunks)) / 1e6
    return {"snapshot, MB": size, "snapshot written, ms": writing * 1e3, "snapshot loaded, ms": loading * 1e3}


def evictions(fold: Fold, log: Log, rng: np.random.Generator) -> dict[str, float]:
    """Batches of new keys at the cap, ticks with nothing to do, and ticks after everything expired."""
    entries = len(fold.view.table)
    fold_all(fold, [log.owner(Budget(OwnerId("bench"), 1, entries))])
    new = rng.integers(0, 2**64, entries // 5, dtype=np.uint64)
    at_cap = fold_all(fold, log.stored(new))
    idle = [fold_all(fold, [log.tick()])[0] for _ in range(60)]
    fold_all(fold, [log.owner(PolicyApplied(OwnerId("bench"), 1, 1, (TenantPolicy(TENANT, 5_000_000),)))])
    expiring = [fold_all(fold, [log.tick()])[0] for _ in range(60)]
    return {
        "batch at the cap, median us": statistics.median(at_cap) * 1e6,
        "batch at the cap, worst ms": max(at_cap) * 1e3,
        "tick, nothing expires, worst ms": max(idle) * 1e3,
        "tick, everything expires, worst ms": max(expiring) * 1e3,
    }


def enforcements(entries: int, rng: np.random.Generator) -> dict[str, float]:
    """The worst record while a quota or a cap binds, and while one that was lowered to 40 % is enforced."""
    log, fold = Log(), Fold(entries + entries // 8)
    claim = log.owner(Claim(OwnerId("bench"), LogEpoch("bench")))
    fold_all(fold, [claim, log.tick(), *log.stored(rng.integers(0, 2**64, entries, dtype=np.uint64))])

    def worst(max_keys: int | None, max_entries: int, lfu: bool = False) -> float:
        """In ms, of batches and then of ticks."""
        policies = (TenantPolicy(TENANT, lfu=lfu),)
        quotas = () if max_keys is None else (TenantQuota(TENANT, max_keys),)
        applied = PolicyApplied(OwnerId("bench"), 1, 1, policies, quotas)
        messages = [log.owner(applied, Budget(OwnerId("bench"), 1, max_entries))]
        messages += log.stored(rng.integers(0, 2**64, entries // 10, dtype=np.uint64))
        return max(fold_all(fold, messages + [log.tick() for _ in range(60)])) * 1e3

    figures = {"record at a quota, worst ms": worst(entries, -1)}
    figures["record at the cap, LFU, worst ms"] = worst(None, entries, lfu=True)
    fold_all(fold, [log.credit(fold, rng)])
    figures["record at the cap, LFU, credited, worst ms"] = worst(None, entries, lfu=True)
    figures["record after a lowered quota, worst ms"] = worst(entries * 4 // 10, -1)
    fold_all(fold, log.stored(rng.integers(0, 2**64, entries, dtype=np.uint64)))
    figures["record after a lowered cap, worst ms"] = worst(None, entries * 4 // 10)
    return figures


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    arguments: Any = parser.parse_args()
    with kept_to(measured_core()):
        figures = measure(arguments.entries)
    hand_in(figures)
    if arguments.json:
        print(json.dumps({"entries": arguments.entries, **figures}))
        return
    print(f"{arguments.entries} entries of {REPLICAS} replicas in batches of {BLOCKS}")
    for name, figure in figures.items():
        print(f"{name:>45} {figure:10.2f}")


if __name__ == "__main__":
    main()
