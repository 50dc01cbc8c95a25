"""Why holds come and go: what an observer of a fold is told, as it happens and in order.

The fold works without one. A replay gives it one to tell the history of a prefix, since the state that a
message leads to does not say which of the message's records, or which bound, took a hold away.
"""

from __future__ import annotations

from typing import Literal, Protocol

from inferencecache.core.index.keys import Keys
from inferencecache.schemas.deltas import HolderName

Cause = Literal["evicted", "not_restated", "cleared", "replaced", "gone", "ttl", "quota", "cap"]
"""Why holds left. `evicted`: by their engine; `not_restated`: uncertain at the end of a complete resync;
`replaced`: another incarnation began; `gone`: the pod was deleted.
"""
Doubt = Literal["gap", "jump", "same_engine"]
"""Why holds became uncertain: a `Gap`, a missing batch, or a `Begin` over the same engine process."""


class Observer(Protocol):
    """Is told of every change of what is held."""

    def held(self, holder: HolderName, keys: Keys, tier: int, seen_us: int) -> None:
        """The holder holds these keys, certainly, as seen at this log time."""
        ...

    def released(self, holder: HolderName, keys: Keys, cause: Cause) -> None:
        """The holder holds none of these keys any more; it held at least one."""
        ...

    def cleared(self, holder: HolderName, cause: Cause) -> None:
        """The holder holds nothing any more."""
        ...

    def doubted(self, holder: HolderName, keys: Keys, doubt: Doubt) -> None:
        """The holder's holds of these keys, which were certain, are not any more."""
        ...

    def emptied(self) -> None:
        """A log epoch begins: nobody holds anything."""
        ...
