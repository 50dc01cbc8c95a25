"""The one way the fold changes a view: change it, note the change for the next delta, and tell who keeps
the order of eviction what moved.
"""

from __future__ import annotations

import msgspec
import numpy as np

from inferencecache.core.index.changes import ChangeLog, Mark
from inferencecache.core.index.holders import Holder, HolderKind, Replica
from inferencecache.core.index.keys import Keys
from inferencecache.core.index.table import AccessColumns, Counts, Marks
from inferencecache.core.index.victims import Removed, Victims
from inferencecache.core.index.view import View
from inferencecache.schemas.deltas import (
    Held,
    HolderCleared,
    HolderDoubted,
    HolderName,
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
        self.victims = Victims(view)

    def hold(
        self, replica: Replica, kind: HolderKind, keys: Keys, token_counts: Counts, tier: int, seen_us: int
    ) -> None:
        """The replica holds these keys, certainly."""
        holder = self.view.hold(replica, kind, keys, token_counts, tier, seen_us)
        if holder is not None:
            held = Held(0, tier, seen_us, keys.tobytes(), token_counts.tobytes())
            self.changes.note(holder.name, held)
            self.victims.held(holder, keys, seen_us)

    def release(self, holder: Holder, keys: Keys) -> None:
        """The holder holds these keys no longer, if it did."""
        if self.view.release(holder, keys):
            self._released(holder, keys)

    def remove(self, removed: Removed) -> list[tuple[HolderName, int]]:
        """The table removed these holds; answers how many by holder."""
        parts = self.view.remove(removed.columns, removed.difference)
        for holder, keys in parts:
            self._released(holder, keys)
        return [(holder.name, len(keys)) for holder, keys in parts]

    def _released(self, holder: Holder, keys: Keys) -> None:
        self.changes.note(holder.name, Released(0, keys.tobytes()))
        self.victims.released(holder, keys)

    def release_uncertain(self, name: ReplicaName) -> None:
        """The replica no longer holds what it held uncertainly."""
        for holder in self.holders_of(name):
            self.release(holder, self.view.table.uncertain_keys(holder.number))

    def holders_of(self, name: ReplicaName) -> list[Holder]:
        """What a replica holds, by kind."""
        replica = self.view.holders.replicas.get((name.tenant, name.model, name.replica))
        return list(replica.holders.values()) if replica is not None else []

    def clear(self, name: ReplicaName) -> None:
        """The replica holds nothing any more."""
        for holder in self.holders_of(name):
            is_watched = self.victims.watches(name.tenant)
            keys = self.view.table.keys_of(holder.number) if is_watched else None
            self.view.clear(holder)
            self.changes.note(holder.name, HolderCleared(0))
            if keys is not None:
                self.victims.released(holder, keys)

    def doubt(self, name: ReplicaName) -> None:
        """All that the replica holds now is uncertain."""
        for holder in self.holders_of(name):
            keys = self.view.doubt(holder)
            if len(keys):
                self.changes.note(holder.name, HolderDoubted(0))
                self.victims.aged(holder, keys)

    def put_row(self, row: ReplicaRow) -> None:
        """The replica has this row."""
        replica = self.view.holders.replica(row.name)
        is_older = row.alive_us < replica.alive_us
        self.view.put_row(row)
        self.changes.note_row(row)
        if is_older:
            for holder in replica.holders.values():
                self.victims.aged(holder, self.view.table.age(holder.number))

    def credit(self, holder: Holder, keys: Keys, counts: Marks) -> None:
        """Holds of the holder were used."""
        owners = np.full(len(keys), holder.number, np.int32)
        self.view.credit(AccessColumns(owners, keys, counts))

    def forget_row(self, name: ReplicaName) -> None:
        """The replica has no row any more."""
        self.view.forget_row(name)
        self.changes.note_row(ReplicaForgotten(name))

    def start_time(self, time_us: int) -> None:
        """Log time begins."""
        self.view.start_time(time_us)
        self.view.table.all_due()
        self.victims.reset()
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
