"""The records of the log: what producers append and indexers fold.

One JetStream message of an events stream is one `Batch`. Who sent it is in the subject, never in
the payload, so that NATS permissions can restrict it. A record is an array whose first element is
its tag; an unknown tag is skipped, missing trailing fields take their defaults.

Times: a sidecar sends ages (`Batch.age_ms`), the fold turns them into log time. `timestamp_us`
of gRPC producers is microseconds since the Unix epoch, 0 meaning the message's own time.
"""

from __future__ import annotations

from typing import Final

import msgspec

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

TIER_T1: Final = 1
TIER_T2: Final = 2
TIER_T3: Final = 3
TIER_COLDEST: Final = 2**31 - 1
"""Stored for a negative tier: colder than every known one, reported as unspecified [IDX-36]."""


class Record(msgspec.Struct, frozen=True, array_like=True, tag_field="t", gc=False, omit_defaults=False):
    """Base of every record; the tag numbers below never change and are never reused."""


class Begin(Record, frozen=True, tag=1):
    """A producer's first batch: everything this replica held before is void.

    `engine` identifies the engine process (its start time as its metrics state it), empty when it
    is not known. Holds of the earlier incarnation stay, as uncertain, only when both identities are
    known and equal. `block_size` is in tokens, 0 when it is not learned yet.
    """

    pod_uid: str = ""
    engine: str = ""
    scheme: HashScheme = HashScheme("")
    block_size: int = 0


class Stored(Record, frozen=True, tag=2):
    """The replica holds these keys: `width` bytes a hash in `hashes`, one int32 (little-endian) a hash
    in `token_counts`, which counts tokens from position 0 to the end of the block [WIRE-158].

    `width` 0 means empty hashes; their number is that of the counts.
    """

    scheme: HashScheme
    adapter: AdapterId
    tier: int
    width: int
    hashes: bytes
    token_counts: bytes
    timestamp_us: int = 0


class Evicted(Record, frozen=True, tag=3):
    """The replica no longer holds these keys, under every hash scheme [WIRE-101].

    An empty `adapter` means every adapter partition. `count` is needed only when `width` is 0.
    """

    adapter: AdapterId
    width: int
    hashes: bytes
    count: int = 0
    timestamp_us: int = 0


class Cleared(Record, frozen=True, tag=4):
    """The replica flushed its whole cache for this tenant and model; its statistics go too [WIRE-103]."""

    timestamp_us: int = 0


class Gap(Record, frozen=True, tag=5):
    """`missed` messages of the engine are lost for good: earlier holds become uncertain."""

    missed: int = 0


class Complete(Record, frozen=True, tag=6):
    """A resync that knows everything has ended: uncertain holds that it did not restate go."""


class Stats(Record, frozen=True, tag=7):
    """Latest statistics of the replica, engine totals. They replace the row as a whole [IDX-38].

    `hit_rate`, `pressure` and `kv_usage` are nominally 0..1; the token counters are cumulative
    since engine start.
    """

    cache_memory_bytes: int = 0
    hit_rate: float = 0.0
    pressure: float = 0.0
    t2_hit_tokens: int = 0
    t2_query_tokens: int = 0
    requests_running: int = 0
    requests_waiting: int = 0
    kv_usage: float = 0.0
    timestamp_us: int = 0


class Alive(Record, frozen=True, tag=8):
    """All that the producer reported and is certain of is still there: its holds stay young."""


class Event(Record, frozen=True, tag=9):
    """An event of a gRPC producer that changes no hold: `PREFIX_ADDED`, `REPLICA_UPDATED`, unknown
    numbers [IDX-43, IDX-48]. `type` is the number of `CacheEvent.Type`.
    """

    type: int
    prefix_hash: bytes = b""
    adapter: AdapterId = AdapterId("")
    timestamp_us: int = 0


class Claim(Record, frozen=True, tag=10):
    """`owner` takes the partition over; the log sequence of this record is its owner epoch.

    A claim of another log epoch than the folded one empties the partition.
    """

    owner: OwnerId
    log_epoch: LogEpoch


class Tick(Record, frozen=True, tag=11):
    """The owner's wall clock, once a second; drives log time and the sweep.

    Tick number n, counted since the log epoch began, sweeps the keys with
    key mod `sweep_interval_s` = n mod `sweep_interval_s`.
    """

    owner: OwnerId
    owner_epoch: int
    wall_us: int
    sweep_interval_s: int = 60


class TenantPolicy(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the fold needs of a tenant's policy: `ttl_us` 0 = default, `lfu` = least frequently used."""

    tenant: TenantId
    ttl_us: int = 0
    lfu: bool = False


class TenantQuota(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """At most `max_keys` distinct prefix keys of the tenant; 0 admits nothing [IDX-161]."""

    tenant: TenantId
    max_keys: int


class PolicyApplied(Record, frozen=True, tag=12):
    """The policy values in force from here on, as a whole; `revision` is that of the policy bucket."""

    owner: OwnerId
    owner_epoch: int
    revision: int
    policies: tuple[TenantPolicy, ...] = ()
    quotas: tuple[TenantQuota, ...] = ()


class Budget(Record, frozen=True, tag=13):
    """This partition's part of the global cap (-1 = unbounded) and of each tenant's quota.

    `division` is the number of the division that the parts are of, 0 for even parts; one with a lower
    number than the budget in force comes too late and does not count.
    """

    owner: OwnerId
    owner_epoch: int
    max_entries: int
    quotas: tuple[TenantQuota, ...] = ()
    division: int = 0


class CreditedHolds(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Holds of one replica that served delivered hints.

    `width` is a width class as in `HolderName`, `keys` are index keys (uint64 little-endian each),
    `counts` has one uint32 (little-endian) a key.
    """

    tenant: TenantId
    model: ModelId
    scheme: HashScheme
    adapter: AdapterId
    width: int
    replica: ReplicaId
    keys: bytes
    counts: bytes


class Credit(Record, frozen=True, tag=14):
    """Accesses that a router counted since its last one, best effort [IDX-144]."""

    holds: tuple[CreditedHolds, ...] = ()


class Gone(Record, frozen=True, tag=15):
    """The pod `pod_uid` is deleted: holds and statistics of `replica` and of its ranks go, for every
    model of the tenant, if its current `Begin` has that uid.
    """

    tenant: TenantId
    replica: ReplicaId
    pod_uid: str


AnyRecord = (
    Begin
    | Stored
    | Evicted
    | Cleared
    | Gap
    | Complete
    | Stats
    | Alive
    | Event
    | Claim
    | Tick
    | PolicyApplied
    | Budget
    | Credit
    | Gone
)


class Batch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One message of an events stream.

    `incarnation` is empty and `sequence` 0 for senders without a life of their own (routers,
    owners, controllers). `age_ms` is the time between observing and publishing the records.
    """

    incarnation: Incarnation = Incarnation("")
    sequence: int = 0
    age_ms: int = 0
    records: tuple[AnyRecord, ...] = ()


class DecodedBatch(msgspec.Struct, frozen=True, gc=False):
    """A batch as read from the log, with what had to be left out of it."""

    batch: Batch
    unknown: int = 0
    malformed: int = 0


class UndecodableBatchError(ValueError):
    """The payload is not a `Batch` at all; it is dropped and counted."""


class _RawBatch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    incarnation: Incarnation = Incarnation("")
    sequence: int = 0
    age_ms: int = 0
    records: tuple[msgspec.Raw, ...] = ()


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Batch)
_raw_decoder = msgspec.msgpack.Decoder(_RawBatch)
_record_decoder = msgspec.msgpack.Decoder(AnyRecord)
_tag_decoder = msgspec.msgpack.Decoder(list[object])
_KNOWN_TAGS: Final = frozenset(range(1, 16))


def encode_batch(batch: Batch) -> bytes:
    """MessagePack of a batch; equal batches give equal bytes."""
    return _encoder.encode(batch)


def decode_batch(payload: bytes) -> DecodedBatch:
    """Read a batch; records that are unknown or broken are left out and counted, one by one.

    Raises `UndecodableBatchError` when the envelope itself cannot be read.
    """
    try:
        return DecodedBatch(_decoder.decode(payload))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return _decode_record_by_record(payload)


def _decode_record_by_record(payload: bytes) -> DecodedBatch:
    try:
        raw = _raw_decoder.decode(payload)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise UndecodableBatchError(f"{len(payload)} bytes: {type(error).__name__}") from None
    records: list[AnyRecord] = []
    unknown = malformed = 0
    for item in raw.records:
        try:
            records.append(_record_decoder.decode(item))
        except (msgspec.DecodeError, ValueError, RecursionError):
            if _has_known_tag(item):
                malformed += 1
            else:
                unknown += 1
    batch = Batch(raw.incarnation, raw.sequence, raw.age_ms, tuple(records))
    return DecodedBatch(batch, unknown, malformed)


def _has_known_tag(item: msgspec.Raw) -> bool:
    try:
        fields = _tag_decoder.decode(item)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return True
    return not fields or not isinstance(fields[0], int) or fields[0] in _KNOWN_TAGS
