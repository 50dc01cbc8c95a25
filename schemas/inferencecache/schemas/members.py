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
    """Value under `router.<id>`; `address` is its gRPC address as it was bound.

    `generation` is that of the layout by which it answers lookups, 0 before it has one; `partitions` also
    has those of a newer generation that is being built beside it. `policy_revision` is that of the policy set
    it runs, `intent_revision` the last one of `IC_POLICY` that it read, whatever the key. It fingerprints
    prompts in blocks of `block_size` tokens; 0: it does not say.
    """

    id: str
    policy_revision: int = 0
    partitions: dict[str, ViewedPartition] = {}
    address: str = ""
    generation: int = 0
    intent_revision: int = 0
    block_size: int = 0

    @property
    def served(self) -> dict[str, ViewedPartition]:
        """The views that it answers from: those of a newer generation are still being built."""
        prefix = f"{self.generation}."
        return {key: view for key, view in self.partitions.items() if key.startswith(prefix)}


class ControllerMember(msgspec.Struct, frozen=True, tag="controller", tag_field="role"):
    """Value under `controller.<id>`."""

    id: str


Member = IndexerMember | RouterMember | ControllerMember
