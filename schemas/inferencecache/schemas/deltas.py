"""What an owner tells routers about one range of the log.

A delta covers the log range (`from_`, `to`] in whole messages. Its changes, applied in order to the
state at `from_`, give the state at `to`, whose digest it carries. Holds are spoken of by holder: the
delta lists the holders it mentions once and its changes refer to them by index. Rows of replicas are
sent whole, so repeating one is harmless.
"""

from __future__ import annotations

import math
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
from inferencecache.schemas.positions import Position
from inferencecache.schemas.unreadable import UNREADABLE

DELTA_FORMAT: Final = 1


class ReplicaName(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One replica as the index knows it: an id has meaning only within (tenant, model) [IDX-12]."""

    tenant: TenantId
    model: ModelId
    replica: ReplicaId


class HolderName(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Who holds what kind of key: a keyspace (tenant, model, scheme, adapter, width class) and a replica.

    `width` is the width class of the hashes: 0 for up to 7 bytes, 8 for 8 bytes, 9 for longer ones.
    """

    tenant: TenantId
    model: ModelId
    scheme: HashScheme
    adapter: AdapterId
    width: int
    replica: ReplicaId


class Change(msgspec.Struct, frozen=True, array_like=True, tag_field="t", gc=False):
    """Base of every change; the tag numbers below never change and are never reused."""


class Held(Change, frozen=True, tag=1):
    """The holder holds these keys (uint64 little-endian, int32 counts), certain, since `last_seen_us`."""

    holder: int
    tier: int
    last_seen_us: int
    keys: bytes
    token_counts: bytes


class Released(Change, frozen=True, tag=2):
    """The holder no longer holds these keys; one that it does not hold is no error."""

    holder: int
    keys: bytes


class HolderCleared(Change, frozen=True, tag=3):
    """The holder holds nothing any more."""

    holder: int


class HolderDoubted(Change, frozen=True, tag=4):
    """All that the holder holds now is uncertain: it ages on its own until stored again."""

    holder: int


class StatsRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A replica's latest statistics with the times that decide their use [IDX-38, IDX-48], log time in µs.

    All are finite: no fold makes others [IDX-40], and no rank comes of them.
    """

    cache_memory_bytes: int = 0
    hit_rate: float = 0.0
    pressure: float = 0.0
    t2_hit_tokens: int = 0
    t2_query_tokens: int = 0
    requests_running: int = 0
    requests_waiting: int = 0
    kv_usage: float = 0.0
    reported_us: int = 0
    live_us: int = 0

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (self.hit_rate, self.pressure, self.kv_usage))):
            raise ValueError("statistics must be finite")


class ReplicaRow(Change, frozen=True, tag=5):
    """The whole row of a replica. `incarnation` is empty when it never began (gRPC producers).

    `begun_at` is the log sequence of its current `Begin`, `alive_us` the log time of its last
    `Alive` (0: never; its holds then age from their own times), `heard_us` that of its last batch.
    `scheme` is what its producer said at its `Begin`: a replica that began may be served before it holds.
    """

    name: ReplicaName
    incarnation: Incarnation = Incarnation("")
    begun_at: int = 0
    alive_us: int = 0
    heard_us: int = 0
    stats: StatsRow | None = None
    scheme: HashScheme = HashScheme("")


class ReplicaForgotten(Change, frozen=True, tag=6):
    """The replica has no row any more."""

    name: ReplicaName


class TimeStarted(Change, frozen=True, tag=7):
    """Log time begins: every time recorded so far, of holds and rows alike, becomes `time_us`."""

    time_us: int


AnyChange = Held | Released | HolderCleared | HolderDoubted | ReplicaRow | ReplicaForgotten | TimeStarted


class Delta(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One message of a deltas stream; its number is its stream sequence.

    `emptied` says that the range begins a log epoch: the state before the changes is the empty one.
    `time_us` is log time T at `to`, 0 before the first tick. `digest` covers what routers hold,
    `access_digest` the access counts that only indexers hold; both are sums modulo 2**64.
    """

    format: int
    log_epoch: LogEpoch
    owner: OwnerId
    owner_epoch: int
    from_: Position
    to: Position
    time_us: int
    digest: int
    access_digest: int
    emptied: bool = False
    holders: tuple[HolderName, ...] = ()
    changes: tuple[AnyChange, ...] = ()


class UnreadableDeltaError(ValueError):
    """The payload is no delta of a format that this version knows."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Delta)


def encode_delta(delta: Delta) -> bytes:
    """MessagePack of a delta."""
    return _encoder.encode(delta)


def decode_delta(payload: bytes) -> Delta:
    """Read a delta. Raises `UnreadableDeltaError` on damage or an unknown format: to a reader, a hole."""
    try:
        delta = _decoder.decode(payload)
    except UNREADABLE as error:
        raise UnreadableDeltaError(f"{len(payload)} bytes: {type(error).__name__}") from None
    if delta.format != DELTA_FORMAT:
        raise UnreadableDeltaError(f"delta format {delta.format}, this version reads {DELTA_FORMAT}")
    return delta
