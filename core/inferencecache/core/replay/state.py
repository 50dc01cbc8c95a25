"""What a partition's state comes down to: a summary for people and scripts."""

from __future__ import annotations

import msgspec

from inferencecache.core.index.fold import Fold
from inferencecache.core.replay.filters import Filter
from inferencecache.schemas.deltas import HolderName
from inferencecache.schemas.digests import DigestText, digest_text


class HolderState(msgspec.Struct, frozen=True, rename="camel"):
    """How many keys a replica holds of one scheme, adapter and width class, and when it last stored one."""

    scheme: str
    adapter: str
    width: int
    entries: int
    newest_us: int


class ReplicaState(msgspec.Struct, frozen=True, rename="camel"):
    """A replica that holds something or has been heard of. `incarnation` is empty when it never began."""

    tenant: str
    model: str
    replica: str
    incarnation: str = ""
    begun_at: int = 0
    heard_us: int = 0
    alive_us: int = 0
    has_stats: bool = False
    entries: int = 0
    holders: tuple[HolderState, ...] = ()


class PartitionState(msgspec.Struct, frozen=True, rename="camel"):
    """A partition behind the message of this log sequence and JetStream timestamp. `entries` and the digests
    are the whole partition's, `replicas` those that were asked for; `time_us` is log time, `max_entries` the
    part of the cap, -1 for none.
    """

    partition: int
    sequence: int
    time_ns: int
    log_epoch: str
    owner: str
    owner_epoch: int
    time_us: int
    entries: int
    digest: DigestText
    access_digest: DigestText
    policy_revision: int
    max_entries: int
    replicas: tuple[ReplicaState, ...] = ()


def state_of(partition: int, fold: Fold, only: Filter | None = None) -> PartitionState:
    """The state of a fold."""
    view, only = fold.view, only or Filter()
    holders: dict[tuple[str, str, str], list[HolderState]] = {}
    for name, entries, newest_us in view.holdings():
        holders.setdefault(_replica_of(name), []).append(
            HolderState(name.scheme, name.adapter, name.width, entries, newest_us)
        )
    replicas = []
    for key, replica in sorted(view.holders.replicas.items()):
        if not only.takes(replica.name):
            continue
        row, held = replica.row, sorted(holders.get(key, []), key=msgspec.structs.astuple)
        entries = sum(each.entries for each in held)
        if row is None:
            replicas.append(ReplicaState(*key, entries=entries, holders=tuple(held)))
            continue
        replicas.append(
            ReplicaState(
                *key,
                row.incarnation,
                row.begun_at,
                row.heard_us,
                row.alive_us,
                row.stats is not None,
                entries,
                tuple(held),
            )
        )
    return PartitionState(
        partition,
        view.log.sequence,
        view.log.time_ns,
        view.log_epoch,
        view.owner,
        view.owner_epoch,
        view.time_us,
        view.entries,
        digest_text(view.digest),
        digest_text(view.access_digest),
        fold.policy.revision,
        fold.budget.max_entries,
        tuple(replicas),
    )


def _replica_of(name: HolderName) -> tuple[str, str, str]:
    return name.tenant, name.model, name.replica
