"""An index as the targets describe it: prompts of 64 blocks, each held by 8 replicas to different depths.

`chains` of them are a million storage entries. They go round models, of which as many belong to each
partition, so that a table that is sized from the cap suffices. Producers report them as sidecars do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Final, NamedTuple

import numpy as np

from inferencecache.core.log import Log
from inferencecache.core.log.subjects import partition_of, replica_subject
from inferencecache.schemas.ids import AdapterId, HashScheme, Incarnation, ModelId, ReplicaId, TenantId
from inferencecache.schemas.layout import Layout
from inferencecache.schemas.records import AnyRecord, Batch, Begin, Stored, encode_batch
from inferencecache.schemas.senders import ReplicaSender
from inferencecache.v1alpha1.inferencecache_pb2 import LookupRouteRequest
from tests.support.waiting import eventually

BLOCKS: Final = 64
HOLDERS: Final = 8
MODELS: Final = 4
ENTRIES: Final = 1_000_000
ENTRIES_A_CHAIN: Final = sum(range(BLOCKS // HOLDERS, BLOCKS + 1, BLOCKS // HOLDERS))
TENANT: Final = TenantId("team")
SCHEME: Final = HashScheme("vllm")
LAYOUT: Final = Layout()
BATCH_BLOCKS: Final = 4096
LIMIT_S: Final = 600.0
_TOKENS: Final = 16


def models(layout: Layout = LAYOUT, each: int = MODELS) -> list[ModelId]:
    """So many of every partition, with lanes of one."""
    found: dict[int, list[ModelId]] = {number: [] for number in range(layout.partitions)}
    for number in count():
        model = ModelId(f"model-{number}")
        mine = found[partition_of(TENANT, model, ReplicaId(""), layout)]
        if len(mine) < each:
            mine.append(model)
        elif all(len(some) == each for some in found.values()):
            return [model for group in zip(*found.values(), strict=True) for model in group]
    raise AssertionError


class Chain(NamedTuple):
    """Keys of a prompt's blocks, of a model."""

    model: ModelId
    keys: bytes

    def hashes(self) -> list[bytes]:
        return [self.keys[at : at + 8] for at in range(0, len(self.keys), 8)]

    def request(self) -> bytes:
        """A serialised `LookupRoute` for the whole prompt."""
        return LookupRouteRequest(
            tenant_id=TENANT,
            model_id=self.model,
            hash_scheme=SCHEME,
            block_hashes=self.hashes(),
            block_token_counts=[_TOKENS] * BLOCKS,
        ).SerializeToString()


def chains(entries: int = ENTRIES) -> list[Chain]:
    """As many as that many entries are."""
    rng, names = np.random.default_rng(1), models()
    return [
        Chain(names[number % len(names)], rng.bytes(8 * BLOCKS))
        for number in range(entries // ENTRIES_A_CHAIN)
    ]


def depth(holder: int) -> int:
    """Blocks from the start that the holder of this number (from 0) has of a chain."""
    return BLOCKS // HOLDERS * (holder + 1)


def stored(keys: bytes, counts: bytes) -> Stored:
    """A record of keys with their cumulative token counts."""
    return Stored(SCHEME, AdapterId(""), 1, 8, keys, counts)


def counts(blocks: int) -> bytes:
    """Cumulative token counts of a chain."""
    return (np.arange(1, blocks + 1, dtype="<i4") * _TOKENS).tobytes()


def records(all_chains: Sequence[Chain]) -> Iterator[tuple[ReplicaSender, Stored]]:
    """What each replica reports, in large records."""
    for model in dict.fromkeys(chain.model for chain in all_chains):
        for holder in range(HOLDERS):
            sender = ReplicaSender(TENANT, model, ReplicaId(f"engine-{holder}"))
            mine = [chain.keys[: 8 * depth(holder)] for chain in all_chains if chain.model == model]
            step = -(-BATCH_BLOCKS // depth(holder))
            for start in range(0, len(mine), step):
                some = mine[start : start + step]
                yield sender, stored(b"".join(some), counts(depth(holder)) * len(some))


class Producer:
    """A sidecar of one replica, as far as the log sees it."""

    def __init__(self, sender: ReplicaSender, layout: Layout = LAYOUT) -> None:
        partition = partition_of(sender.tenant, sender.model, sender.replica, layout)
        self.partition = partition
        self.subject = replica_subject(layout.generation, partition, sender)
        self._life = Incarnation(f"life-{time.monotonic_ns()}-{sender.model}-{sender.replica}")
        self._sequence = 0

    def batch(self, *some: Stored) -> tuple[str, bytes]:
        """The next batch: its message id and its payload. The first one begins."""
        self._sequence += 1
        told: tuple[AnyRecord, ...] = some
        if self._sequence == 1:
            told = (Begin(scheme=SCHEME, block_size=_TOKENS), *some)
        return f"{self._life}.{self._sequence}", encode_batch(Batch(self._life, self._sequence, 0, told))


class Producers:
    """One a replica of a model."""

    def __init__(self, layout: Layout = LAYOUT) -> None:
        self._layout = layout
        self._known: dict[ReplicaSender, Producer] = {}

    def of(self, sender: ReplicaSender) -> Producer:
        return self._known.setdefault(sender, Producer(sender, self._layout))


async def fill(log: Log, all_chains: Sequence[Chain]) -> None:
    """Report all chains; returns when they are stored in the log."""
    producers = Producers()
    for sender, record in records(all_chains):
        producer = producers.of(sender)
        msg_id, payload = producer.batch(record)
        await log.publisher.publish(producer.subject, payload, msg_id=msg_id, timeout_s=LIMIT_S)


async def until_seen(entries: Callable[[], int], all_chains: Sequence[Chain]) -> None:
    """Wait until so many distinct prefixes are known as the chains have blocks."""
    wanted = BLOCKS * len(all_chains)
    await eventually(lambda: entries() >= wanted, within_s=LIMIT_S, what=f"{wanted} prefixes")


async def keep_storing(log: Log, entries_a_second: float) -> None:
    """Report new blocks evenly, in batches of 64 of 16 replicas, until cancelled."""
    rng = np.random.default_rng()
    senders = [
        ReplicaSender(TENANT, model, ReplicaId(f"busy-{number}")) for number in range(2) for model in models()
    ]
    producers = [Producer(sender) for sender in senders]
    due_s, number = time.monotonic(), 0
    while True:
        producer = producers[number % len(producers)]
        msg_id, payload = producer.batch(stored(rng.bytes(8 * BLOCKS), counts(BLOCKS)))
        await log.publisher.publish(producer.subject, payload, msg_id=msg_id, timeout_s=LIMIT_S)
        number += 1
        due_s += BLOCKS / entries_a_second
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
