"""What a router itself adds to a `LookupRoute` call, from request bytes to answer bytes.

Run it with `python -m benchmarks.lookup_bench`. The view holds chains of 64 blocks of several replicas; each
call parses a request for one of them, decides, and serialises the answer. gRPC's own cost comes on top.
"""

from __future__ import annotations

import asyncio
import struct
import time
from random import Random
from typing import Any

from prometheus_client import CollectorRegistry

from inferencecache.core.index.fold import Fold, LogMessage
from inferencecache.core.index.reading import IndexView
from inferencecache.core.log.subjects import partition_of
from inferencecache.core.service import configure_logging
from inferencecache.router.lookup import Lookup
from inferencecache.router.metrics import ServerMetrics
from inferencecache.schemas.ids import AdapterId, HashScheme, ModelId, ReplicaId, TenantId
from inferencecache.schemas.layout import Layout
from inferencecache.schemas.policy import ResolvedPolicy
from inferencecache.schemas.positions import Position
from inferencecache.schemas.records import Batch, DecodedBatch, Stored
from inferencecache.schemas.senders import ReplicaSender
from inferencecache.v1alpha1.inferencecache_pb2 import LookupRouteRequest

BLOCKS = 64
CHAINS = 2000
REPLICAS = 16
HOLDERS = 4
CALLS = 5000
TENANT, MODEL = TenantId("team"), ModelId("Qwen/Qwen2.5-0.5B-Instruct")


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


def filled(chains: list[list[bytes]], random: Random) -> Still:
    """Each chain is held by a few of the replicas, to different depths."""
    folds = [Fold(CHAINS * BLOCKS * HOLDERS) for _ in range(Still.layout.partitions)]
    counts = struct.pack(f"<{BLOCKS}i", *range(16, 16 * BLOCKS + 1, 16))
    for sequence, chain in enumerate(chains, 1):
        for number in random.sample(range(REPLICAS), HOLDERS):
            replica = ReplicaId(f"engine-{number}")
            depth = random.randint(BLOCKS // 4, BLOCKS)
            stored = Stored(
                HashScheme("vllm"), AdapterId(""), 1, 8, b"".join(chain[:depth]), counts[: 4 * depth]
            )
            sender = ReplicaSender(TENANT, MODEL, replica, "g")
            partition = partition_of(TENANT, MODEL, replica, Still.layout)
            message = LogMessage(Position(sequence), sender, DecodedBatch(Batch(records=(stored,))))
            folds[partition].fold(message)
    return Still([fold.view for fold in folds])


async def main() -> None:
    """Print the best and the median microseconds a call, for chains and for token ids."""
    configure_logging("json", "info")
    random = Random(1)
    chains = [[random.randbytes(8) for _ in range(BLOCKS)] for _ in range(CHAINS)]
    lookup = Lookup(filled(chains, random), ServerMetrics(CollectorRegistry()), 16)
    keys: dict[str, Any] = {"tenant_id": TENANT, "model_id": MODEL, "hash_scheme": "vllm"}
    by_chain = [
        LookupRouteRequest(**keys, block_hashes=chain, block_token_counts=[16] * BLOCKS).SerializeToString()
        for chain in chains
    ]
    by_tokens = [
        LookupRouteRequest(
            **keys, token_ids=[random.randrange(150_000) for _ in range(16 * BLOCKS)]
        ).SerializeToString()
        for _ in range(100)
    ]
    for name, requests in (("64 block hashes", by_chain), ("1024 token ids", by_tokens)):
        times = []
        for number in range(CALLS):
            payload = requests[number % len(requests)]
            start = time.perf_counter()
            (await lookup.answer(LookupRouteRequest.FromString(payload))).SerializeToString()
            times.append(time.perf_counter() - start)
        times.sort()
        print(f"{name}: best {times[0] * 1e6:.1f} µs, median {times[CALLS // 2] * 1e6:.1f} µs")


if __name__ == "__main__":
    asyncio.run(main())
