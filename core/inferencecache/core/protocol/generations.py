"""Which generation of the layout answers a router's lookups, and which is built beside it.

A layout that changes makes every sidecar begin anew in the streams of the new generation, with all it
knows. A router builds the views of the new generation beside those it serves and puts them in their
place, between two calls, once they are as good: every partition is loaded and has an owner that tells of
it, and every replica that was alive in the old views has begun in the new ones and told about as much.
What does not come is waited for only so long, counted from when the new views could serve at all: before
that the old ones answer, however long it takes.

Nothing here does I/O or reads a clock. `told` takes a layout, `poll` how far the views are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from inferencecache.core.index.view import View
from inferencecache.core.protocol.liveness import TELLING_WAIT_S, alive, begun, have_told, held
from inferencecache.schemas.deltas import ReplicaName
from inferencecache.schemas.layout import CurrentLayout, Layout

REPLICAS_WAIT_S: Final = 30.0
"""Longest wait for replicas that were alive in the old generation to begin in the new one."""


class Follow(NamedTuple):
    """Build the views of this generation."""

    layout: Layout


class Serve(NamedTuple):
    """Answer lookups by the views of this generation from now on; `late` replicas have not begun in it."""

    layout: Layout
    late: frozenset[ReplicaName] = frozenset()


class Leave(NamedTuple):
    """The views of this generation are not needed any more."""

    layout: Layout


Action = Follow | Serve | Leave


class Standing(NamedTuple):
    """How far the views of one generation are.

    Loaded: every partition has reached the delta that was last when it was opened. Owned: an owner has
    told of every partition. `held` has the number of keys of every replica with a row.
    """

    is_loaded: bool
    is_owned: bool
    alive: frozenset[ReplicaName]
    begun: frozenset[ReplicaName]
    held: Mapping[ReplicaName, int]


def standing_of(
    views: Sequence[View], *, is_loaded: bool, concerns: Callable[[ReplicaName], bool] | None = None
) -> Standing:
    """The standing of a generation whose partitions have these views, as to replicas that it `concerns`."""

    def is_meant(name: ReplicaName) -> bool:
        return concerns is None or concerns(name)

    return Standing(
        is_loaded,
        is_owned=all(view.owner for view in views),
        alive=frozenset(name for view in views for name in alive(view) if is_meant(name)),
        begun=frozenset(name for view in views for name in begun(view) if is_meant(name)),
        held={name: keys for view in views for name, keys in held(view) if is_meant(name)},
    )


class Generations:
    """One router's choice. Times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self.serving: Layout | None = None
        """Whose views answer lookups. When a router starts they may not be loaded yet."""
        self.coming: Layout | None = None
        """Whose views are built to take their place."""
        self._current: CurrentLayout | None = None
        self._awaited: frozenset[ReplicaName] = frozenset()
        self._able_since: float | None = None
        self._begun_since: float | None = None

    def told(self, current: CurrentLayout, *, is_served: bool = False) -> list[Action]:
        """The layout in force, at start and whenever it has changed.

        A router that starts in the middle of a change begins with the generation before, as the others do,
        unless another router serves the one in force already: then it has been found as good.
        """
        self._current = current
        newest = current.in_force
        if self.serving is None:
            self.serving = newest if is_served or not current.older else current.older[-1]
            first: list[Action] = [Follow(self.serving), Serve(self.serving)]
            return first + self._build(newest)
        return self._build(newest)

    def poll(self, now: float, standing: Callable[[Layout], Standing]) -> list[Action]:
        """Is it time to serve what is being built? To be asked a few times a second while there is any."""
        if self.serving is None or self.coming is None:
            return []
        old, new = standing(self.serving), standing(self.coming)
        # A replica that has moved falls silent in the old generation; it stays awaited.
        self._awaited = (self._awaited | old.alive) & old.held.keys()
        if not (new.is_loaded and new.is_owned):
            return []
        if self._able_since is None:
            self._able_since = now
        late = self._awaited - new.begun
        if not self._is_as_good(now, old, new, late) and now - self._able_since < REPLICAS_WAIT_S:
            return []
        left, self.serving, self.coming = self.serving, self.coming, None
        self._forget()
        return [Serve(self.serving, late), Leave(left)]

    def _build(self, newest: Layout) -> list[Action]:
        """Build this generation and no other beside the one that serves."""
        if newest == self.coming:
            return []
        actions: list[Action] = [Leave(self.coming)] if self.coming is not None else []
        self.coming = newest if newest != self.serving else None
        self._able_since = self._begun_since = None
        if self.coming is None:
            self._forget()
            return actions
        return [*actions, Follow(newest)]

    def _is_as_good(self, now: float, old: Standing, new: Standing, late: frozenset[ReplicaName]) -> bool:
        """Would lookups notice nothing? An old generation that is not loaded yet cannot tell, unless it is
        gone from the layout and never will be.
        """
        is_gone = self._current is not None and self.serving not in self._current.generations
        if late or not (old.is_loaded or is_gone):
            self._begun_since = None
            return False
        if self._begun_since is None:
            self._begun_since = now
        return have_told(self._awaited, old.held, new.held) or now - self._begun_since >= TELLING_WAIT_S

    def _forget(self) -> None:
        self._awaited = frozenset()
        self._able_since = self._begun_since = None
