"""One fully filled sample of every struct that travels, for the golden files and the schema tests."""

from __future__ import annotations

from inferencecache.schemas.deltas import (
    Delta,
    Held,
    HolderCleared,
    HolderDoubted,
    HolderName,
    Released,
    ReplicaForgotten,
    ReplicaName,
    ReplicaRow,
    StatsRow,
    TimeStarted,
)
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
    Alive,
    AnyRecord,
    Batch,
    Begin,
    Budget,
    Claim,
    Cleared,
    Complete,
    Credit,
    CreditedHolds,
    Event,
    Evicted,
    Gap,
    Gone,
    PolicyApplied,
    Stats,
    Stored,
    TenantPolicy,
    TenantQuota,
    Tick,
)

TENANT = TenantId("team-a")
MODEL = ModelId("Qwen/Qwen2.5-0.5B-Instruct")
REPLICA = ReplicaId("vllm-0")
SCHEME = HashScheme("vllm")
ADAPTER = AdapterId("sql-lora")
OWNER = OwnerId("5f0c9d1b2a3e4f60")
INCARNATION = Incarnation("0123456789abcdef")
EPOCH = LogEpoch("fedcba9876543210")
KEYS = (2**64 - 1).to_bytes(8, "little") + (7).to_bytes(8, "little")
HASHES = bytes.fromhex("ea06fc71a5ee6e88ad01835a37dd294c")
COUNTS = (16).to_bytes(4, "little") + (32).to_bytes(4, "little")
TIME_US = 1_790_000_000_000_000

RECORDS: dict[str, AnyRecord] = {
    "Begin": Begin("uid-1", "1790000000.25", SCHEME, 16),
    "Stored": Stored(SCHEME, ADAPTER, 1, 8, HASHES, COUNTS, TIME_US),
    "Evicted": Evicted(ADAPTER, 8, HASHES, 2, TIME_US),
    "Cleared": Cleared(TIME_US),
    "Gap": Gap(3),
    "Complete": Complete(),
    "Stats": Stats(1 << 30, 0.5, 0.25, 110, 1110, 7, 3, 0.75, TIME_US),
    "Alive": Alive(),
    "Event": Event(3, HASHES[:8], ADAPTER, TIME_US),
    "Claim": Claim(OWNER, EPOCH),
    "Tick": Tick(OWNER, 42, TIME_US, 60),
    "PolicyApplied": PolicyApplied(
        OWNER, 42, 7, (TenantPolicy(TENANT, 900_000_000, True),), (TenantQuota(TENANT, 1000),)
    ),
    "Budget": Budget(OWNER, 42, 500_000, (TenantQuota(TENANT, 500),)),
    "Credit": Credit((CreditedHolds(TENANT, MODEL, SCHEME, ADAPTER, 8, REPLICA, KEYS, COUNTS),)),
    "Gone": Gone(TENANT, REPLICA, "uid-1"),
}

BATCHES: dict[str, Batch] = {
    **{name: Batch(INCARNATION, 5, 12, (record,)) for name, record in RECORDS.items()},
    "all": Batch(INCARNATION, 6, 0, tuple(RECORDS.values())),
    "empty": Batch(),
    "Budget of a division": Batch(
        records=(Budget(OWNER, 42, 500_000, (TenantQuota(TENANT, 500),), division=3),)
    ),
}

DELTA = Delta(
    format=1,
    log_epoch=EPOCH,
    owner=OWNER,
    owner_epoch=42,
    from_=Position(10, TIME_US * 1000, 1),
    to=Position(12, TIME_US * 1000 + 5, 1),
    time_us=TIME_US,
    digest=2**64 - 2,
    access_digest=3,
    emptied=True,
    holders=(HolderName(TENANT, MODEL, SCHEME, ADAPTER, 8, REPLICA),),
    changes=(
        Held(0, 1, TIME_US, KEYS, COUNTS),
        Released(0, KEYS[:8]),
        HolderCleared(0),
        HolderDoubted(0),
        ReplicaRow(
            ReplicaName(TENANT, MODEL, REPLICA),
            INCARNATION,
            9,
            TIME_US,
            TIME_US,
            StatsRow(1 << 30, 0.5, 0.25, 110, 1110, 7, 3, 0.75, TIME_US, TIME_US),
            SCHEME,
        ),
        ReplicaForgotten(ReplicaName(TENANT, MODEL, REPLICA)),
        TimeStarted(TIME_US),
    ),
)
