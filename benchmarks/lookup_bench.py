"""What a router itself adds to a `LookupRoute` call, from request bytes to answer bytes.

Run it with `python -m benchmarks.lookup_bench`. The view holds a million entries: prompts of 64 blocks,
each held by 8 replicas to different depths. A call parses a request for one of them, decides, and
serialises the answer; of that the kernel, which finds who holds how much, is measured alone as well. gRPC's
own cost comes on top. Times are those of the calling thread, medians of rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Sequence
from itertools import count
from random import Random
from typing import Final

import numpy as np
from prometheus_client import CollectorRegistry

from benchmarks.figures import hand_in
from benchmarks.million import BLOCKS, ENTRIES, SCHEME, TENANT, Chain, chains, records
from benchmarks.programs import kept_to, measured_core
from inferencecache.core.index.fold import Fold, LogMessage
from inferencecache.core.index.keys import chain_keys
from inferencecache.core.index.reading import IndexView
from inferencecache.core.index.view import View
from inferencecache.core.index.work import AssignedWork
from inferencecache.core.log.subjects import partition_of
from inferencecache.core.service import configure_logging
from inferencecache.router.lookup import Lookup
from inferencecache.router.metrics import ServerMetrics
from inferencecache.schemas.ids import AdapterId, ModelId, TenantId
from inferencecache.schemas.layout import Layout
from inferencecache.schemas.policy import ResolvedPolicy
from inferencecache.schemas.positions import Position
from inferencecache.schemas.records import Batch, DecodedBatch
from inferencecache.schemas.senders import ReplicaSender
from inferencecache.v1alpha1.inferencecache_pb2 import LookupRouteRequest

ROUNDS: Final = 7
CALLS: Final = 2000
TOKENS: Final = 16


class Still:
    """A replica of the index that does not move."""

    layout = newest_layout = Layout()
    complete = ready = True

    def serves(self, tenant: TenantId, model: ModelId) -> bool:
        return True

    def __init__(self, views: list[IndexView]) -> None:
        self.views = views

    def is_proven(self, partition: int) -> bool:
        return True

    def now_us(self, partition: int) -> int:
        return 0

    def policy(self, tenant: TenantId) -> ResolvedPolicy | None:
        return None


def filled(all_chains: Sequence[Chain]) -> tuple[Still, list[View]]:
    """A router's index, and the views in it."""
    partitions = Still.layout.partitions
    folds = [Fold(ENTRIES // partitions) for _ in range(partitions)]
    sequence = count(1)
    for sender, record in records(all_chains):
        partition = partition_of(sender.tenant, sender.model, sender.replica, Still.layout)
        told = ReplicaSender(sender.tenant, sender.model, sender.replica, "g")
        batch = DecodedBatch(Batch(records=(record,)))
        folds[partition].fold(LogMessage(Position(next(sequence)), told, batch))
    views = [fold.view for fold in folds]
    return Still(list(views)), views


def in_kernel(views: Sequence[View], all_chains: Sequence[Chain]) -> float:
    """Microseconds that the kernel takes for a chain; what a call of it costs without any is taken off."""
    asked = []
    for chain in all_chains[:CALLS]:
        for view in views:
            space = view.holders.keyspaces.get((TENANT, chain.model, SCHEME, AdapterId(""), 8))
            if space is not None:
                numbers, seeds = np.array([space.number], np.int32), np.array([space.seed], np.uint64)
                asked.append((view.table, numbers, seeds, chain_keys(chain.hashes())[1]))

    def seconds(blocks: int) -> float:
        some = [(table, numbers, seeds, keys[:blocks]) for table, numbers, seeds, keys in asked]
        start = time.thread_time()
        for table, numbers, seeds, keys in some:
            table.leading_runs(numbers, seeds, keys, 0)
        return time.thread_time() - start

    pairs = [(seconds(0), seconds(BLOCKS)) for _ in range(ROUNDS)]
    return statistics.median(whole - nothing for nothing, whole in pairs) / len(asked) * 1e6


async def whole_call(lookup: Lookup, requests: Sequence[bytes]) -> float:
    """Microseconds from the bytes of a request to those of its answer."""
    times = []
    for _ in range(ROUNDS):
        start = time.thread_time()
        for payload in requests:
            (await lookup.answer(LookupRouteRequest.FromString(payload))).SerializeToString()
        times.append((time.thread_time() - start) / len(requests) * 1e6)
    return statistics.median(times)


async def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=ENTRIES)
    arguments = parser.parse_args()
    configure_logging("json", "info")
    random = Random(1)
    all_chains = chains(arguments.entries)
    random.shuffle(all_chains)
    following, views = filled(all_chains)
    lookup = Lookup(following, ServerMetrics(CollectorRegistry()), TOKENS, AssignedWork())
    by_chain = [chain.request() for chain in all_chains[:CALLS]]
    answer = await lookup.answer(LookupRouteRequest.FromString(by_chain[0]))
    assert len({score.matched_tokens for score in answer.replica_scores}) == len(answer.replica_scores) == 8
    by_tokens = [
        LookupRouteRequest(
            tenant_id=TENANT,
            model_id=all_chains[0].model,
            hash_scheme=SCHEME,
            token_ids=[random.randrange(150_000) for _ in range(TOKENS * BLOCKS)],
        ).SerializeToString()
        for _ in range(100)
    ]
    with kept_to(measured_core()):
        figures = {
            "64 blocks of 8 holders, kernel, us": in_kernel(views, all_chains),
            "64 blocks, request to answer, us": await whole_call(lookup, by_chain),
            "1024 token ids, request to answer, us": await whole_call(lookup, by_tokens),
        }
    hand_in(figures)
    print(f"{sum(view.entries for view in views)} entries")
    for name, figure in figures.items():
        print(f"{name:>40} {figure:8.1f}")


if __name__ == "__main__":
    asyncio.run(main())
