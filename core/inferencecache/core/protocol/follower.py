"""A router's way to a partition's state: reference, snapshot, then deltas for as long as it lives.

The view that answers lookups is never half of anything. A snapshot becomes a view of its own, follows
deltas until it is not behind the view it replaces, and takes its place between two calls. After a hole,
damage or a delta whose digest does not come out, references are read again: the current snapshot, the
previous one, then a fresh one that the owner is asked for. The old view answers meanwhile, unless it has
taken such a delta itself: then it is not `proven`, its partition gives no hints rather than wrong ones,
and its successor is one that has passed that delta.

When the log begins a new epoch (its storage was lost), the old view stays until every replica that was
alive in it has begun in the new one and told about as much, or until that has taken too long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from inferencecache.core.index.view import DeltaMismatchError, View
from inferencecache.core.protocol.bases import AskSnapshot, BaseChoice, Load, ReadRefs
from inferencecache.core.protocol.liveness import TELLING_WAIT_S, alive, begun, have_told, held
from inferencecache.core.protocol.position import Lost
from inferencecache.schemas.deltas import Delta
from inferencecache.schemas.positions import Position, Refs, SnapshotRef

RETRY_S: Final = 1.0
ASK_AGAIN_S: Final = 3.0
NEW_EPOCH_WAIT_S: Final = 30.0
STRAY_S: Final = 1.0
"""After so long with deltas of another log epoch only, the references tell which one is in force."""


class Read(NamedTuple):
    """Read the deltas stream on from here; tell `opened`, `received` and `lost`."""

    position: Position


class StopReading(NamedTuple):
    """Read the deltas stream no more; nothing that was read before is told afterwards."""


Action = ReadRefs | Load | Read | StopReading | AskSnapshot


class Follower:
    """Follows one partition. `view` answers lookups; times are seconds of a monotonic clock."""

    def __init__(self, new_view: Callable[[], View]) -> None:
        self._new_view = new_view
        self.view = new_view()
        self._view_at = 0.0
        self._next: View | None = None
        self._next_at = 0.0
        self._new_epoch_since: float | None = None
        self._begun_since: float | None = None
        self._stray_at: float | None = None
        self._checking = False
        self._refs_asked = False
        self._choice = BaseChoice()
        self._from_the_start = False
        self._trouble_at = (0, 0)
        self._retry_at: float | None = None
        self._asked_at: float | None = None
        self._target: int | None = None
        self.complete = False
        """Has the view reached the delta that was last when this follower started?"""
        self.heard_at: float | None = None
        """When the last delta arrived, skipped ones included."""
        self.repairs = 0

    def now_us(self, now: float) -> int:
        """Log time now: that of the view and the time since it was told."""
        return self.view.time_us + max(0, int((now - self._view_at) * 1e6)) if self.view.time_us else 0

    # -- events ------------------------------------------------------------------------------------

    def start(self) -> list[Action]:
        return self._ask_refs()

    def refs_read(self, now: float, refs: Refs | None) -> list[Action]:
        self._refs_asked = False
        if self._checking:
            self._checking = False
            if not self._is_left_behind(refs):
                return []
            self._in_trouble((self._next or self.view).delta)
            return [StopReading(), *self._begin(now, refs)]
        return self._begin(now, refs)

    def _begin(self, now: float, refs: Refs | None) -> list[Action]:
        """Begin from the best base that was not tried yet."""
        ref = self._choice.next(refs)
        if ref is not None:
            return [Load(ref)]
        if (refs is None or refs.current is None) and not self._from_the_start:
            self._from_the_start = True
            return self._follow(now, self._new_view())
        self._retry_at = now + RETRY_S
        if self._asked_at is not None and now - self._asked_at < ASK_AGAIN_S:
            return []
        self._asked_at = now
        return [AskSnapshot()]

    def refs_failed(self, now: float) -> list[Action]:
        self._refs_asked = False
        if self._checking:
            self._checking = False
            self._stray_at = now
            return []
        self._retry_at = now + RETRY_S
        return []

    def loaded(self, now: float, ref: SnapshotRef, view: View) -> list[Action]:
        """The snapshot is a view now."""
        self._choice.reached()
        view.delta = ref.delta
        return self._follow(now, view)

    def load_failed(self) -> list[Action]:
        """The snapshot is not there, or damaged: the next base, by references as they are now."""
        self.repairs += 1
        self._choice.reached()
        return self._ask_refs()

    def load_unreachable(self, now: float, ref: SnapshotRef) -> list[Action]:
        """The snapshot could not be read for now: it stays a base."""
        self._retry_at = now + self._choice.unreachable(ref)
        return []

    def opened(self, now: float, last: int) -> None:
        """The deltas stream is open at the view's delta; `last` is the number of its last message."""
        if not self.complete:
            self._target = last
        self._settle(now, is_at_end=(self._next or self.view).delta.sequence >= last)

    def received(self, now: float, position: Position, delta: Delta | None, pending: int) -> list[Action]:
        """The next message of the deltas stream; None is one that is no delta, `pending` wait behind it."""
        self.heard_at = now
        try:
            self._take(now, delta)
        except DeltaMismatchError:
            if self._next is None and not self.view.proven:
                self.view.delta = position
            self._in_trouble(position)
            return [StopReading(), *self._ask_refs()]
        (self._next or self.view).delta = position
        self._settle(now, is_at_end=pending == 0)
        return []

    def lost(self, now: float, lost: Lost) -> list[Action]:
        """The deltas stream is not the continuation of the view."""
        self._in_trouble((self._next or self.view).delta)
        if lost.reason != "cut":
            self._from_the_start = False
        return self.refs_failed(now) if lost.reason == "no_stream" else self._ask_refs()

    # -- what to do --------------------------------------------------------------------------------

    def poll(self, now: float) -> list[Action]:
        """What to do now; to be called a few times a second."""
        if self._new_epoch_since is not None:
            self._settle(now, is_at_end=False)
        if self._retry_at is not None and now >= self._retry_at:
            self._retry_at = None
            return self._ask_refs()
        if self._stray_at is not None and now >= self._stray_at + STRAY_S:
            self._stray_at = None
            self._checking = True
            return self._ask_refs()
        return []

    def _ask_refs(self) -> list[Action]:
        """One reading at a time; whoever needs the references takes what it finds."""
        if self._refs_asked:
            return []
        self._refs_asked = True
        return [ReadRefs()]

    def _is_left_behind(self, refs: Refs | None) -> bool:
        """Deltas of another log epoch keep coming: is it the one that the references are about?"""
        current = refs.current if refs is not None else None
        return current is not None and current.log_epoch != (self._next or self.view).log_epoch

    def _follow(self, now: float, view: View) -> list[Action]:
        self._asked_at = self._retry_at = None
        self._next, self._next_at = view, now
        if self._target is None:
            self._swap()
        return [Read(view.delta)]

    def _in_trouble(self, position: Position) -> None:
        """Begin again from a base. Bases that led to the same trouble before are not tried again.

        Numbers compare within one life of the stream: one that was created later begins anew.
        """
        self.repairs += 1
        self._stray_at = None
        self._checking = False
        self._next = None
        at = (position.created_ns, position.sequence)
        if at > self._trouble_at:
            self._trouble_at = at
            self._choice.begin_anew()

    def _take(self, now: float, delta: Delta | None) -> None:
        """Apply a delta that continues the view, skip one that is contained in it or of another epoch."""
        view = self._next or self.view
        if delta is None:
            raise DeltaMismatchError("damage", "a message of the deltas stream is no delta")
        if _knows_something(view) and delta.log_epoch != view.log_epoch:
            if not delta.emptied:
                self._stray_at = now if self._stray_at is None else self._stray_at
                return
            view = self._new_view()
        elif _knows_something(view) and not delta.emptied and delta.to.sequence <= view.log.sequence:
            if delta.to.time_ns > view.log.time_ns:
                raise DeltaMismatchError("hole", "the log has lost a tail that the view contains")
            return
        view.apply(delta)
        self._stray_at = None
        if view is self.view:
            self._view_at = now
        else:
            self._next, self._next_at = view, now

    def _settle(self, now: float, *, is_at_end: bool) -> None:
        """Put the next view in place once it is as good as the old one; notice completeness."""
        if self._next is not None and self._is_ready(now, self._next, is_at_end):
            self._swap()
        if self._target is not None and self._next is None and self.view.delta.sequence >= self._target:
            self.complete = True

    def _is_ready(self, now: float, following: View, is_at_end: bool) -> bool:
        old = self.view
        if not _knows_something(old):
            return True
        if following.log_epoch == old.log_epoch:
            is_same_stream = following.delta.created_ns == old.delta.created_ns
            return is_at_end or (is_same_stream and following.delta.sequence >= old.delta.sequence)
        if not _knows_something(following):
            return False
        if not old.proven:
            return True
        if self._new_epoch_since is None:
            self._new_epoch_since = now
        return now - self._new_epoch_since >= NEW_EPOCH_WAIT_S or self._is_as_good(now, following)

    def _is_as_good(self, now: float, following: View) -> bool:
        """Has every replica that was alive in the old view begun in the new one, and told what it holds?"""
        awaited = set(alive(self.view))
        if not awaited <= set(begun(following)):
            self._begun_since = None
            return False
        if self._begun_since is None:
            self._begun_since = now
        is_told = have_told(awaited, dict(held(self.view)), dict(held(following)))
        return is_told or now - self._begun_since >= TELLING_WAIT_S

    def _swap(self) -> None:
        if self._next is not None:
            self.view, self._view_at = self._next, self._next_at
            self._next = self._new_epoch_since = self._begun_since = None


def _knows_something(view: View) -> bool:
    return bool(view.log_epoch) or view.log.sequence > 0
