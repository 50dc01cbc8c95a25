"""A great many holds, put into the log as producers that speak gRPC would have them."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from inferencecache.cli.stack.plan import HASH_SCHEME, TENANT
from inferencecache.core.log.subjects import partition_of, replica_subject
from inferencecache.schemas.ids import AdapterId, HashScheme, ModelId, ReplicaId, TenantId
from inferencecache.schemas.records import Batch, Stored, encode_batch
from inferencecache.schemas.senders import ReplicaSender
from tests.support.fleet.injector import append
from tests.support.fleet.witness import Witness

KEYS_A_BATCH: Final = 10_000
TOKENS: Final = 1024
"""What every key is said to stand for, enough to count as a match."""
REPLICA: Final = ReplicaId("many")


class Held(NamedTuple):
    """Key number `first` + n of a model is the hash of that number, for n below `keys`."""

    model: ModelId
    first: int
    keys: int

    def hash_of(self, number: int) -> bytes:
        return (self.first + number).to_bytes(8, "big")


async def hold_many(witness: Witness, entries: int, *, models: int = 4) -> list[Held]:
    """Let one replica hold so many keys, spread evenly over all partitions."""
    layout = witness.layout
    names = (ModelId(f"model-{number}") for number in range(1000))
    held = []
    for number in range(models):
        wanted = number % layout.partitions
        model = next(name for name in names if partition_of(TENANT, name, REPLICA, layout) == wanted)
        held.append(Held(model, 1 << 40, entries // models))
        sender = ReplicaSender(TenantId(TENANT), model, REPLICA, "g")
        subject = replica_subject(layout.generation, wanted, sender)
        for first in range(0, held[-1].keys, KEYS_A_BATCH):
            count = min(KEYS_A_BATCH, held[-1].keys - first)
            hashes = np.arange(held[-1].first + first, held[-1].first + first + count, dtype=">u8").tobytes()
            counts = np.full(count, TOKENS, "<i4").tobytes()
            record = Stored(HashScheme(HASH_SCHEME), AdapterId(""), 1, 8, hashes, counts)
            await append(witness, subject, encode_batch(Batch(records=(record,))))
    return held
