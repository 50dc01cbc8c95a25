"""Who is there: the values of `IC_MEMBERS`, put once a second by each member about itself.

A member is alive while the observer sees a new revision of its key within 3 s of the observer's
own monotonic clock. Partition keys are `<generation>.<partition>`.
"""

from __future__ import annotations

import msgspec

from inferencecache.schemas.digests import DigestText
from inferencecache.schemas.ids import LogEpoch, OwnerId


class FoldedPartition(msgspec.Struct, frozen=True):
    """An indexer's standing in one partition; `sequence` is the last log message it folded."""

    sequence: int = 0
    caught_up: bool = False
    owner: bool = False
    log_epoch: LogEpoch = LogEpoch("")


class IndexerMember(msgspec.Struct, frozen=True, tag="indexer", tag_field="role"):
    """Value under `indexer.<id>`."""

    id: OwnerId
    partitions: dict[str, FoldedPartition] = {}


class ViewedPartition(msgspec.Struct, frozen=True):
    """A router's view of one partition: it stands at delta `delta` of `log_epoch`, at log time `time_us`.

    There is no `digest` while the view's state is not what its deltas say; then it is not `complete` either.
    """

    log_epoch: LogEpoch = LogEpoch("")
    delta: int = 0
    time_us: int = 0
    digest: DigestText | None = None
    age_s: float = 0.0
    complete: bool = False


class RouterMember(msgspec.Struct, frozen=True, tag="router", tag_field="role"):
    """Value under `router.<id>`; `address` is its gRPC address as it was bound."""

    id: str
    policy_revision: int = 0
    partitions: dict[str, ViewedPartition] = {}
    address: str = ""


class ControllerMember(msgspec.Struct, frozen=True, tag="controller", tag_field="role"):
    """Value under `controller.<id>`."""

    id: str


Member = IndexerMember | RouterMember | ControllerMember
