"""One partition's fold, from a base on."""

from __future__ import annotations

from collections.abc import Sequence

from inferencecache.core.index.fold import Fold, Folded, LogMessage
from inferencecache.core.index.snapshot import SnapshotDecoder, UnreadableSnapshotError
from inferencecache.core.replay.history import History
from inferencecache.schemas.positions import Position


class Rebuild:
    """`key` is the partition's `<generation>.<number>`; `base` the bytes of a snapshot taken behind message
    `at`, none for the start of the log. `history` is told what happens from there on.

    Raises `UnreadableSnapshotError`, also for another snapshot than that.
    """

    def __init__(self, key: str, at: Position, base: Sequence[bytes], history: History | None = None) -> None:
        # Nobody reads deltas of a replay, so no change is kept.
        self.fold = Fold(max_change_bytes=0, observer=history)
        self.folded = 0
        self.dropped = 0
        self._history = history
        if base:
            self._load(key, base)
        if self.position != at:
            raise UnreadableSnapshotError(f"taken behind another message than {at.sequence}")
        if history is not None:
            history.begin(self.fold.view)

    def _load(self, key: str, base: Sequence[bytes]) -> None:
        decoder = SnapshotDecoder(self.fold)
        for chunk in base:
            decoder.feed(chunk)
        decoder.finish()
        if decoder.header is None or decoder.header.partition != key:
            raise UnreadableSnapshotError(f"a snapshot of another partition than {key}")

    @property
    def position(self) -> Position:
        """The last message folded."""
        return self.fold.view.log

    def take(self, message: LogMessage) -> Folded:
        """Fold the next message."""
        if self._history is not None:
            self._history.message_begins(message)
        folded = self.fold.fold(message)
        if self._history is not None:
            self._history.message_ends(message, folded)
        self.folded += 1
        self.dropped += folded.dropped is not None
        return folded
