"""Where a request goes: what a hint means to a client, and what it does without one [WIRE-230, WIRE-231]."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from inferencecache.cli.load.hints import Hint
from inferencecache.cli.stack.plan import EngineAddress

FOLLOWED: Final = frozenset({"PREFIX_MATCH", "AFFINITY_HINT"})


class Pool:
    """The engines of one group and how many requests each has in flight."""

    def __init__(self, engines: Sequence[EngineAddress]) -> None:
        self.engines = tuple(engines)
        self.outstanding = {engine.name: 0 for engine in engines}
        self._by_replica = {engine.replica: engine for engine in engines if engine.replica}
        self._next = 0

    def hinted(self, hint: Hint) -> EngineAddress | None:
        """The engine that a hint names, None when it names none that is to be followed."""
        if hint.reason not in FOLLOWED or not hint.replicas:
            return None
        return self._by_replica.get(hint.replicas[0])

    def least_outstanding(self, without: Collection[str] = ()) -> EngineAddress:
        """The engine with the fewest requests in flight, the first of equals.

        Engines named in `without` only count when no other is left.
        """
        left = [engine for engine in self.engines if engine.name not in without] or self.engines
        return min(left, key=lambda engine: self.outstanding[engine.name])

    def round_robin(self) -> EngineAddress:
        """The next engine in turn."""
        engine = self.engines[self._next % len(self.engines)]
        self._next += 1
        return engine

    @contextmanager
    def in_flight(self, engine: EngineAddress) -> Iterator[None]:
        """Count one request to `engine` while it lasts."""
        self.outstanding[engine.name] += 1
        try:
            yield
        finally:
            self.outstanding[engine.name] -= 1
