"""The naive fold, noting why every hold comes, changes and goes: it looks at all holds around each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from inferencecache.schemas.positions import Position
from inferencecache.schemas.records import Batch, Begin, Evicted, Gone, Stored
from tests.oracle.model import HoldKey, Message, NaiveFold, Replica, Wanted


class Noted(NamedTuple):
    """Something happened to a hold at a message."""

    sequence: int
    what: str
    tier: int = 0
    why: str = ""


class NotingFold(NaiveFold):
    """`noted` is what happened to each hold."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: dict[HoldKey, list[Noted]] = {}
        self._because = ""
        self._doubt_is = "gap"

    def fold(self, message: Message) -> list[Wanted]:
        self.position = message.position
        return super().fold(message)

    def _note(self, key: HoldKey, what: str, tier: int = 0, why: str = "") -> None:
        self.noted.setdefault(key, []).append(Noted(self.position.sequence, what, tier, why))

    @contextmanager
    def _removing(self, what: str) -> Iterator[None]:
        """What is gone behind this block went because of that, unless a step inside says otherwise."""
        outer, self._because = self._because, self._because or what
        before = set(self.holds)
        yield
        for key in before - set(self.holds):
            self._note(key, self._because)
        self._because = outer

    def _store(self, of: Replica, record: Stored, time_us: int) -> None:
        before = dict(self.holds)
        super()._store(of, record, time_us)
        for key, hold in self.holds.items():
            old = before.get(key)
            if old is None:
                self._note(key, "stored", hold.tier)
            elif old is not hold:
                self._note(key, "refreshed" if old.tier == hold.tier else "moved", hold.tier)

    def _judge(self, of: Replica, position: Position, batch: Batch) -> list[Wanted] | None:
        self._doubt_is = "jump"
        wanted = super()._judge(of, position, batch)
        self._doubt_is = "gap"
        return wanted

    def _doubt(self, of: Replica) -> None:
        why = "same_engine" if self._because == "replaced" else self._doubt_is
        for key, hold in self.holds.items():
            if key.of == of and not hold.uncertain:
                self._note(key, "uncertain", why=why)
        super()._doubt(of)

    def _evict(self, of: Replica, record: Evicted) -> None:
        with self._removing("evicted"):
            super()._evict(of, record)

    def _release_all(self, of: Replica) -> None:
        with self._removing("cleared"):
            super()._release_all(of)

    def _release(self, is_released: Callable[[HoldKey], bool]) -> None:
        if self._because:
            super()._release(is_released)
            return
        with self._removing("not_restated"):
            super()._release(is_released)

    def _begin(self, of: Replica, begin: Begin, position: Position, batch: Batch) -> None:
        self._because = "replaced"
        super()._begin(of, begin, position, batch)
        self._because = ""

    def _gone(self, record: Gone, position: Position) -> None:
        self._because = "gone"
        super()._gone(record, position)
        self._because = ""

    def _empty(self) -> None:
        with self._removing("emptied"):
            super()._empty()

    def _sweep(self, interval: int, remainder: int) -> None:
        with self._removing("ttl"):
            super()._sweep(interval, remainder)

    def _enforce_quota(self, tenant: str, most_holds: int) -> int:
        with self._removing("quota"):
            return super()._enforce_quota(tenant, most_holds)

    def _enforce_cap(self, most: int) -> None:
        with self._removing("cap"):
            super()._enforce_cap(most)
