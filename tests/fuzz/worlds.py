"""A log to start from, and whole states to compare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec
import numpy as np

from inferencecache.core.index.digest import MASK, access_hash, entry_hash, holder_identity, row_hash
from inferencecache.core.index.fold import Fold
from inferencecache.core.index.lives import Life
from inferencecache.core.index.view import View
from inferencecache.schemas.deltas import HolderName, ReplicaName, ReplicaRow
from inferencecache.schemas.ids import (
    PROBE_TENANT,
    AdapterId,
    HashScheme,
    LogEpoch,
    ModelId,
    OwnerId,
    ReplicaId,
    TenantId,
)
from inferencecache.schemas.positions import Position
from inferencecache.schemas.records import (
    Alive,
    Begin,
    Credit,
    CreditedHolds,
    Gap,
    Gone,
    Stats,
    TenantPolicy,
    TenantQuota,
)
from inferencecache.schemas.senders import ControlSender, ReplicaSender, Sender
from tests.oracle.keys import key_of
from tests.oracle.logs import LogWriter, stored

_COLUMN: Final = 4096
TENANT, MODEL, SCHEME = TenantId("t"), ModelId("m"), HashScheme("vllm")
REPLICAS: Final = ("r1", "r2", "r2@dp0")

SENDERS: Final[tuple[Sender, ...]] = (
    *(ReplicaSender(TENANT, MODEL, ReplicaId(replica), "e") for replica in REPLICAS),
    *(ReplicaSender(TENANT, MODEL, ReplicaId(replica), "g") for replica in ("r1", "g1")),
    ControlSender("o"),
    ControlSender("c"),
    ControlSender("r"),
    ReplicaSender(TENANT, MODEL, ReplicaId("new"), "e"),
    ReplicaSender(TenantId("u"), ModelId(""), ReplicaId(""), "g"),
    ReplicaSender(PROBE_TENANT, MODEL, ReplicaId("__probe-a"), "e"),
    ReplicaSender(PROBE_TENANT, MODEL, ReplicaId("__probe-a"), "g"),
)
OWNER: Final = SENDERS.index(ControlSender("o"))
LAST_SEQUENCES: Final = (2, 3, 2)
"""Of the sidecars of the log, `life-0` to `life-2`, which are the first senders."""


def log() -> LogWriter:
    """A log in which most of what a fold knows has happened: it is claimed, its time has begun, replicas
    live, one is gone, and there are policies, quotas and a cap.
    """
    writer = LogWriter()
    writer.sweep_interval_s = 1
    writer.claim()
    writer.tick()
    chain = [b"block-%02d" % number for number in range(6)]
    counts = [16 * number for number in range(1, 7)]
    for number, replica in enumerate(REPLICAS):
        begin = Begin(f"uid-{number}", f"engine-{number}", SCHEME, 16)
        writer.sidecar(replica, f"life-{number}", 1, begin, stored(chain[: 2 + number], counts[: 2 + number]))
        writer.sidecar(replica, f"life-{number}", 2, Stats(1 << 30, 0.5, 0.25), Alive())
    writer.sidecar("r2", "life-1", 3, Gap(1), stored(chain[4:], counts[4:], adapter="a", tier=2))
    writer.report("g1", stored([b"", b""], [5, 6]), stored([b"p" * 32], [512], tier=3), Stats(pressure=0.5))
    writer.report("__probe-a", stored(chain[:1], [16]), tenant=PROBE_TENANT)
    writer.sidecar("gone", "life-9", 1, Begin("uid-9"), stored(chain[:1], [16]))
    writer.control("c", Gone(TENANT, ReplicaId("gone"), "uid-9"))
    writer.apply_policy([TenantPolicy(TENANT, 60_000_000, True)], [TenantQuota(TENANT, 12)])
    writer.budget(40, [TenantQuota(TENANT, 12)])
    writer.tick()
    keys = b"".join(key_of(hash_)[1].to_bytes(8, "little") for hash_ in chain[:2])
    credited = CreditedHolds(
        TENANT, MODEL, SCHEME, AdapterId(""), 8, ReplicaId("r1"), keys, b"\1\0\0\0\2\0\0\0"
    )
    writer.control("r", Credit((credited,)))
    return writer


def folded(writer: LogWriter) -> Fold:
    """The fold of all messages."""
    fold = Fold(1 << 8)
    for message in writer.messages:
        fold.fold(message)
    return fold


class Hold(NamedTuple):
    """One hold, named by holder and key."""

    holder: HolderName
    key: int


class ViewState(NamedTuple):
    """All that a view knows, comparable."""

    epoch: tuple[LogEpoch, OwnerId, int]
    log: Position
    time_us: int
    holds: Mapping[Hold, tuple[int, int, int]]
    rows: Mapping[ReplicaName, ReplicaRow]


class FoldState(NamedTuple):
    """All that a fold knows, comparable."""

    view: ViewState
    accesses: Mapping[Hold, int]
    lives: Mapping[ReplicaName, Life]
    gone_uids: Mapping[str, int]
    memory: tuple[object, ...]


def state_of(view: View) -> ViewState:
    """Read out of the view's table, not from what it counts along."""
    index_of = np.arange(max(view.holders.by_number, default=0) + 1, dtype=np.int32)
    holds = {}
    for columns in view.table.export(index_of, _COLUMN):
        for number, key, *hold in zip(*(column.tolist() for column in columns), strict=True):
            seen_us, token_count, mark = hold
            holds[Hold(view.holders.by_number[number].name, key)] = (token_count, seen_us, mark)
    return ViewState(
        (view.log_epoch, view.owner, view.owner_epoch), view.log, view.time_us, holds, dict(view.rows)
    )


def fold_state_of(fold: Fold) -> FoldState:
    view = fold.view
    index_of = np.arange(max(view.holders.by_number, default=0) + 1, dtype=np.int32)
    accesses = {}
    for columns in view.table.export_access(index_of, _COLUMN):
        for number, key, count in zip(*(column.tolist() for column in columns), strict=True):
            accesses[Hold(view.holders.by_number[number].name, key)] = count
    lives = {name: msgspec.structs.replace(life) for name, life in fold.lives.items()}
    memory = (msgspec.structs.astuple(fold.clock), fold.policy, fold.budget)
    return FoldState(state_of(view), accesses, lives, dict(fold.gone_uids), memory)


def digest_of(state: ViewState) -> int:
    """The digest by its definition, from nothing."""
    identities = {hold.holder: holder_identity(hold.holder) for hold in state.holds}
    holds = sum(
        entry_hash(identities[hold.holder], hold.key, token_count, seen_us, mark >> 1, bool(mark & 1))
        for hold, (token_count, seen_us, mark) in state.holds.items()
    )
    return (holds + sum(map(row_hash, state.rows.values()))) & MASK


def access_digest_of(state: FoldState) -> int:
    """The access digest by its definition, from nothing."""
    hashes = (
        access_hash(holder_identity(hold.holder), hold.key, count) for hold, count in state.accesses.items()
    )
    return sum(hashes) & MASK
