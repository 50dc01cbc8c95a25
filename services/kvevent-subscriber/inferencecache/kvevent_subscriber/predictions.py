"""Keys that were reported in an offload tier on a guess, until they are confirmed or too old.

A block that left the GPU of an engine with an offload tier is expected there [SUB-104], but nobody
will ever say that it left that tier too. The index would forget it after its TTL, were it not that
`Alive` keeps everything young that the sidecar does not take back [SUB-106].
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, NamedTuple

from inferencecache.schemas.ids import AdapterId

LIFETIME_S: Final = 1800.0
"""The TTL of the index unless a policy says otherwise."""


class Predicted(NamedTuple):
    """A key expected at T2."""

    lane: int
    adapter: AdapterId
    key: bytes


class Predictions:
    """Predicted keys with token count and time, oldest first."""

    def __init__(self) -> None:
        self._made: OrderedDict[Predicted, tuple[int, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._made)

    def make(self, predicted: Predicted, token_count: int, now: float) -> None:
        """Expect a key, from now on."""
        self._made[predicted] = token_count, now
        self._made.move_to_end(predicted)

    def confirm(self, lane: int, adapter: AdapterId, key: bytes) -> None:
        """The engine says itself where the key is."""
        self._made.pop(Predicted(lane, adapter, key), None)

    def take_expired(self, now: float, most: int) -> Iterator[Predicted]:
        """Give up what is too old, and the oldest beyond `most`."""
        while self._made:
            oldest, (_, made_at) = next(iter(self._made.items()))
            if len(self._made) <= most and now < made_at + LIFETIME_S:
                return
            del self._made[oldest]
            yield oldest

    def take_lane(self, lane: int) -> list[Predicted]:
        """Give up all of one source."""
        taken = [predicted for predicted in self._made if predicted.lane == lane]
        for predicted in taken:
            del self._made[predicted]
        return taken

    def clear(self) -> None:
        """Give up everything without a word."""
        self._made.clear()

    def each(self) -> Iterator[tuple[Predicted, int, float]]:
        """All with token count and time, oldest first."""
        for predicted, (token_count, made_at) in self._made.items():
            yield predicted, token_count, made_at

    def expires_at(self) -> float | None:
        """When the oldest is too old."""
        if not self._made:
            return None
        _, made_at = next(iter(self._made.values()))
        return made_at + LIFETIME_S
