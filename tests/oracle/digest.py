"""The digests of a naive state, summed from scratch by their definition."""

from __future__ import annotations

from inferencecache.core.index.digest import access_hash, entry_hash, holder_identity, row_hash
from inferencecache.schemas.deltas import HolderName, ReplicaName, ReplicaRow
from inferencecache.schemas.ids import AdapterId, HashScheme, Incarnation, ModelId, ReplicaId, TenantId
from tests.oracle.model import HoldKey, NaiveFold, Replica, Row

WORD = 2**64


def digest(fold: NaiveFold) -> int:
    """Over what routers hold."""
    holds = sum(
        entry_hash(
            holder_identity(holder_of(key)),
            key.key,
            hold.token_count,
            hold.last_seen_us,
            hold.tier,
            hold.uncertain,
        )
        for key, hold in fold.holds.items()
    )
    rows = sum(row_hash(row_of(of, row)) for of, row in fold.rows.items())
    return (holds + rows) % WORD


def access_digest(fold: NaiveFold) -> int:
    """Over what only indexers hold."""
    counts = (
        access_hash(holder_identity(holder_of(key)), key.key, hold.access) for key, hold in fold.holds.items()
    )
    return sum(counts) % WORD


def holder_of(key: HoldKey) -> HolderName:
    return HolderName(
        TenantId(key.tenant),
        ModelId(key.model),
        HashScheme(key.scheme),
        AdapterId(key.adapter),
        key.width,
        ReplicaId(key.replica),
    )


def row_of(of: Replica, row: Row) -> ReplicaRow:
    name = ReplicaName(TenantId(of.tenant), ModelId(of.model), ReplicaId(of.replica))
    times = (row.begun_at, row.alive_us, row.heard_us)
    return ReplicaRow(name, Incarnation(row.incarnation), *times, row.stats, HashScheme(row.scheme))
