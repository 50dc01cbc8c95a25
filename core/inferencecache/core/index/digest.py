"""The digest of a state: what it is a sum of.

A digest is the sum modulo 2**64 of one hash for each hold and one for each replica row, so it can be
kept while entries come and go, does not depend on their order, on table layout or on how names are
interned, and two states that agree on it are equal but for a chance of 2**-64. The access digest sums
the access counts that only indexers hold.

This is the definition, in integers of Python; the kernels compute the same [architecture, section 2].
"""

from __future__ import annotations

from typing import Final

import msgspec
from xxhash import xxh3_64_intdigest

from inferencecache.schemas.deltas import HolderName, ReplicaName, ReplicaRow, StatsRow

MASK: Final = 2**64 - 1
KEY_FACTOR: Final = 0x9E3779B97F4A7C15
SEEN_FACTOR: Final = 0xC2B2AE3D27D4EB4F
MIX_FIRST: Final = 0xBF58476D1CE4E5B9
MIX_SECOND: Final = 0x94D049BB133111EB

_encoder = msgspec.msgpack.Encoder()
_ROW_DEFAULTS: Final = tuple(field.default for field in msgspec.structs.fields(ReplicaRow))
_STATS_DEFAULTS: Final = tuple(field.default for field in msgspec.structs.fields(StatsRow))
_STATS: Final = ReplicaRow.__struct_fields__.index("stats")


def mix(value: int) -> int:
    """A bijection of 64-bit numbers in which each bit depends on all."""
    value = ((value ^ (value >> 30)) * MIX_FIRST) & MASK
    value = ((value ^ (value >> 27)) * MIX_SECOND) & MASK
    return value ^ (value >> 31)


def holder_identity(name: HolderName) -> int:
    """A 64-bit name of a holder: XXH3-64 of its MessagePack."""
    return xxh3_64_intdigest(_encoder.encode(name))


def keyspace_identity(name: HolderName) -> int:
    """A 64-bit name of the keyspace of a holder."""
    keyspace = (name.tenant, name.model, name.scheme, name.adapter, name.width)
    return xxh3_64_intdigest(_encoder.encode(keyspace))


def replica_identity(name: ReplicaName) -> int:
    """A 64-bit name of a replica."""
    return xxh3_64_intdigest(_encoder.encode(name))


def entry_hash(
    identity: int, key: int, token_count: int, last_seen_us: int, tier: int, uncertain: bool
) -> int:
    """What one hold adds to the digest; `identity` is its holder's."""
    value = mix(identity ^ (key * KEY_FACTOR & MASK))
    value = mix(value ^ (last_seen_us * SEEN_FACTOR & MASK))
    return mix(value ^ (token_count & 0xFFFFFFFF) << 32 ^ tier << 1 ^ uncertain)


def access_hash(identity: int, key: int, count: int) -> int:
    """What an access count adds to the access digest; one of 0 adds nothing."""
    if count == 0:
        return 0
    return mix(mix(identity ^ (key * KEY_FACTOR & MASK)) ^ count)


def row_hash(row: ReplicaRow) -> int:
    """What the row of a replica adds to the digest: XXH3-64 of its fields in MessagePack.

    Trailing fields that have their defaults are left out, of the statistics too, so that a field that
    comes to the end of a struct changes no digest while nobody sets it.
    """
    fields = _trimmed(row, _ROW_DEFAULTS)
    if row.stats is not None:
        stats = _trimmed(row.stats, _STATS_DEFAULTS)
        fields = (*fields[:_STATS], stats, *fields[_STATS + 1 :])
    return xxh3_64_intdigest(_encoder.encode(fields))


def _trimmed(struct: msgspec.Struct, defaults: tuple[object, ...]) -> tuple[object, ...]:
    fields = msgspec.structs.astuple(struct)
    end = len(fields)
    while end and fields[end - 1] == defaults[end - 1]:
        end -= 1
    return fields[:end]
