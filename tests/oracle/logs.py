"""Writing the log of one partition as its senders would."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final, Literal

from inferencecache.core.index.fold import LogMessage
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
    Budget,
    Claim,
    DecodedBatch,
    Evicted,
    PolicyApplied,
    Stored,
    TenantPolicy,
    TenantQuota,
    Tick,
)
from inferencecache.schemas.senders import ControlSender, ReplicaSender, Sender

START_US: Final = 1_800_000_000_000_000
"""Some day, in µs since the Unix epoch."""
SECOND_US: Final = 1_000_000


class LogWriter:
    """Appends messages; its clock stands still until `tick` or `wait` moves it."""

    def __init__(self) -> None:
        self.messages: list[LogMessage] = []
        self.stamp_us = START_US
        self.owner = OwnerId("owner")
        self.owner_epoch = 0
        self.sweep_interval_s = 60

    def append(self, sender: Sender, batch: Batch | None) -> LogMessage:
        position = Position(len(self.messages) + 1, self.stamp_us * 1000, START_US * 1000)
        message = LogMessage(position, sender, None if batch is None else DecodedBatch(batch))
        self.messages.append(message)
        return message

    def control(self, role: Literal["o", "c", "r"], *records: AnyRecord) -> LogMessage:
        return self.append(ControlSender(role), Batch(records=records))

    def claim(self, owner: str = "owner", log_epoch: str = "epoch") -> LogMessage:
        self.owner = OwnerId(owner)
        self.owner_epoch = len(self.messages) + 1
        return self.control("o", Claim(self.owner, LogEpoch(log_epoch)))

    def wait(self, seconds: float) -> None:
        self.stamp_us += round(seconds * SECOND_US)

    def tick(self, seconds: float = 1.0) -> LogMessage:
        """The owner's next tick, `seconds` later, by clocks that agree."""
        self.wait(seconds)
        tick = Tick(self.owner, self.owner_epoch, self.stamp_us, self.sweep_interval_s)
        return self.control("o", tick)

    def apply_policy(
        self, policies: Iterable[TenantPolicy] = (), quotas: Iterable[TenantQuota] = (), revision: int = 1
    ) -> LogMessage:
        record = PolicyApplied(self.owner, self.owner_epoch, revision, tuple(policies), tuple(quotas))
        return self.control("o", record)

    def budget(
        self, max_entries: int, quotas: Iterable[TenantQuota] = (), *, division: int = 0
    ) -> LogMessage:
        return self.control("o", Budget(self.owner, self.owner_epoch, max_entries, tuple(quotas), division))

    def report(self, replica: str, *records: AnyRecord, tenant: str = "t", model: str = "m") -> LogMessage:
        """What a gRPC producer sent, as a router appends it."""
        sender = ReplicaSender(TenantId(tenant), ModelId(model), ReplicaId(replica), "g")
        return self.append(sender, Batch(records=records))

    def sidecar(
        self,
        replica: str,
        incarnation: str,
        sequence: int,
        *records: AnyRecord,
        tenant: str = "t",
        model: str = "m",
        age_ms: int = 0,
    ) -> LogMessage:
        sender = ReplicaSender(TenantId(tenant), ModelId(model), ReplicaId(replica), "e")
        return self.append(sender, Batch(Incarnation(incarnation), sequence, age_ms, records))


def stored(
    hashes: Sequence[bytes],
    counts: Sequence[int],
    *,
    scheme: str = "vllm",
    adapter: str = "",
    tier: int = 0,
    timestamp_us: int = 0,
) -> Stored:
    """One record of hashes of one width."""
    (width,) = {len(hash_) for hash_ in hashes} or {0}
    packed = struct.pack(f"<{len(counts)}i", *counts)
    return Stored(HashScheme(scheme), AdapterId(adapter), tier, width, b"".join(hashes), packed, timestamp_us)


def evicted(*hashes: bytes, adapter: str = "", timestamp_us: int = 0) -> Evicted:
    (width,) = {len(hash_) for hash_ in hashes} or {0}
    return Evicted(AdapterId(adapter), width, b"".join(hashes), len(hashes), timestamp_us)
