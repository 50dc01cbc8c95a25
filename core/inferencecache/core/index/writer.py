"""The one way the fold changes a view: change it, and note the change for the next delta."""

from __future__ import annotations

import msgspec

from inferencecache.core.index.changes import ChangeLog, Mark
from inferencecache.core.index.holders import Holder, HolderKind, Replica
from inferencecache.core.index.keys import Keys
from inferencecache.core.index.table import Counts
from inferencecache.core.index.view import View
from inferencecache.schemas.deltas import (
    Held,
    HolderCleared,
    HolderDoubted,
    Released,
    ReplicaForgotten,
    ReplicaName,
    ReplicaRow,
    TimeStarted,
)
from inferencecache.schemas.positions import Position


class Writer:
    """A view and the log of its changes."""

    def __init__(self, view: View, changes: ChangeLog) -> None:
        self.view = view
        self.changes = changes

    def hold(
        self, replica: Replica, kind: HolderKind, keys: Keys, token_counts: Counts, tier: int, seen_us: int
    ) -> None:
        """The replica holds these keys, certainly."""
        holder = self.view.hold(replica, kind, keys, token_counts, tier, seen_us)
        if holder is not None:
            held = Held(0, tier, seen_us, keys.tobytes(), token_counts.tobytes())
            self.changes.note(holder.name, held)

    def release(self, holder: Holder, keys: Keys) -> int:
        """The holder holds these keys no longer; answers how many it did hold."""
        released = self.view.release(holder, keys)
        if released:
            self.changes.note(holder.name, Released(0, keys.tobytes()))
        return released

    def release_uncertain(self, holder: Holder) -> int:
        """The holder no longer holds what it held uncertainly; answers how many keys that were."""
        return self.release(holder, self.view.table.uncertain_keys(holder.number))

    def holders_of(self, name: ReplicaName) -> list[Holder]:
        """What a replica holds, by kind."""
        replica = self.view.holders.replicas.get((name.tenant, name.model, name.replica))
        return list(replica.holders.values()) if replica is not None else []

    def clear(self, name: ReplicaName) -> None:
        """The replica holds nothing any more."""
        for holder in self.holders_of(name):
            self.view.clear(holder)
            self.changes.note(holder.name, HolderCleared(0))

    def doubt(self, name: ReplicaName) -> None:
        """All that the replica holds now is uncertain."""
        for holder in self.holders_of(name):
            if self.view.doubt(holder):
                self.changes.note(holder.name, HolderDoubted(0))

    def put_row(self, row: ReplicaRow) -> None:
        """The replica has this row."""
        self.view.put_row(row)
        self.changes.note_row(row)

    def forget_row(self, name: ReplicaName) -> None:
        """The replica has no row any more."""
        self.view.forget_row(name)
        self.changes.note_row(ReplicaForgotten(name))

    def start_time(self, time_us: int) -> None:
        """Log time begins."""
        self.view.start_time(time_us)
        self.changes.note_time(TimeStarted(time_us))

    def empty(self) -> None:
        """A log epoch begins."""
        self.view.empty()
        self.changes.note_emptied()

    def close(self, position: Position) -> None:
        """The message at this position is folded."""
        view = self.view
        view.log = position
        mark = Mark(position, view.log_epoch, view.time_us, view.digest, view.access_digest)
        self.changes.close(mark)


def changed(row: ReplicaRow, **fields: object) -> ReplicaRow:
    """The row with these fields replaced."""
    return msgspec.structs.replace(row, **fields)
