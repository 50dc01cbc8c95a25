"""The one way the fold changes a view: change it, note the change for the next delta, and tell who keeps
the order of eviction what moved, and an observer, if there is one, why.
"""

from __future__ import annotations

import msgspec
import numpy as np

from inferencecache.core.index.changes import ChangeLog, Mark
from inferencecache.core.index.holders import Holder, HolderKind, Replica
from inferencecache.core.index.keys import Keys
from inferencecache.core.index.observing import Cause, Doubt, Observer
from inferencecache.core.index.table import AccessColumns, Marks
from inferencecache.core.index.victims import Removed, Victims
from inferencecache.core.index.view import View
from inferencecache.schemas.deltas import (
    Held,
    HolderCleared,
    HolderDoubted,
    HolderName,
    Released,
    ReplicaForgotten,
    ReplicaRow,
    TimeStarted,
)
from inferencecache.schemas.positions import Position


class Writer:
    """A view and the log of its changes."""

    def __init__(self, view: View, changes: ChangeLog, observer: Observer | None = None) -> None:
        self.view = view
        self.changes = changes
        self._observer = observer
        self.victims = Victims(view)

    def hold(
        self, replica: Replica, kind: HolderKind, keys: Keys, token_counts: bytes, tier: int, seen_us: int
    ) -> None:
        """The replica holds these keys, certainly; one int32 of `token_counts` each."""
        counts = np.frombuffer(token_counts, np.int32)
        holder = self.view.hold(replica, kind, keys, counts, tier, seen_us)
        if holder is not None:
            self.changes.note(holder.name, Held(0, tier, seen_us, keys.tobytes(), token_counts))
            self.victims.held(holder, keys, seen_us)
            if self._observer is not None:
                self._observer.held(holder.name, keys, tier, seen_us)

    def release(self, holder: Holder, keys: Keys, cause: Cause) -> None:
        """The holder holds these keys no longer, if it did."""
        if self.view.release(holder, keys):
            self._released(holder, keys, cause)

    def remove(self, removed: Removed, cause: Cause) -> list[tuple[HolderName, int]]:
        """The table removed these holds; answers how many by holder."""
        parts = self.view.remove(removed.columns, removed.difference)
        for holder, keys in parts:
            self._released(holder, keys, cause)
        return [(holder.name, len(keys)) for holder, keys in parts]

    def _released(self, holder: Holder, keys: Keys, cause: Cause) -> None:
        self.changes.note(holder.name, Released(0, keys.tobytes()))
        self.victims.released(holder, keys)
        if self._observer is not None:
            self._observer.released(holder.name, keys, cause)

    def release_uncertain(self, replica: Replica) -> None:
        """The replica no longer holds what it held uncertainly."""
        for holder in list(replica.holders.values()):
            self.release(holder, self.view.table.uncertain_keys(holder.number), "not_restated")

    def clear(self, replica: Replica, cause: Cause) -> None:
        """The replica holds nothing any more."""
        for holder in list(replica.holders.values()):
            is_watched = self.victims.watches(replica.name.tenant)
            keys = self.view.table.keys_of(holder.number) if is_watched else None
            self.view.clear(holder)
            self.changes.note(holder.name, HolderCleared(0))
            if keys is not None:
                self.victims.released(holder, keys)
            if self._observer is not None:
                self._observer.cleared(holder.name, cause)

    def doubt(self, replica: Replica, doubt: Doubt) -> None:
        """All that the replica holds now is uncertain."""
        for holder in replica.holders.values():
            keys = self.view.doubt(holder)
            if len(keys):
                self.changes.note(holder.name, HolderDoubted(0))
                self.victims.aged(holder, keys)
                if self._observer is not None:
                    self._observer.doubted(holder.name, keys, doubt)

    def set_row(self, replica: Replica, row: ReplicaRow) -> None:
        """The replica has this row."""
        is_older = row.alive_us < replica.alive_us
        self.view.set_row(replica, row)
        self.changes.note_row(row)
        if is_older:
            for holder in replica.holders.values():
                self.victims.aged(holder, self.view.table.age(holder.number))

    def credit(self, holder: Holder, keys: Keys, counts: Marks) -> None:
        """Holds of the holder were used."""
        owners = np.full(len(keys), holder.number, np.int32)
        self.view.credit(AccessColumns(owners, keys, counts))

    def forget_row(self, replica: Replica) -> None:
        """The replica has no row any more."""
        self.view.set_row(replica, None)
        self.view.holders.forget(replica)
        self.changes.note_row(ReplicaForgotten(replica.name))

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
        if self._observer is not None:
            self._observer.emptied()

    def close(self, position: Position) -> None:
        """The message at this position is folded."""
        view = self.view
        view.log = position
        mark = Mark(position, view.log_epoch, view.time_us, view.digest, view.access_digest)
        self.changes.close(mark)


def changed(row: ReplicaRow, **fields: object) -> ReplicaRow:
    """The row with these fields replaced."""
    return msgspec.structs.replace(row, **fields)
