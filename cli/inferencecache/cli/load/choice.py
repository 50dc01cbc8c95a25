"""Where a request goes: what a hint means to a client, and what it does without one [WIRE-230, WIRE-231].

Routers name only engines of which something is cached. One that has just started would never be named
and so never cache anything, so a turn that matches nothing goes to an idle engine where there is one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from inferencecache.cli.load.hints import Hint
from inferencecache.cli.stack.plan import EngineAddress
from inferencecache.client import FOLLOWED

IDLE_S: Final = 2.0
"""An engine that was sent nothing for so long is idle."""


class Pool:
    """The engines of one group and how many requests each has in flight."""

    def __init__(self, engines: Sequence[EngineAddress], clock: Callable[[], float] = time.monotonic) -> None:
        self.engines = tuple(engines)
        self._clock = clock
        self._last_sent = {engine.name: clock() - IDLE_S for engine in engines}
        self.outstanding = {engine.name: 0 for engine in engines}
        self._by_replica = {engine.replica: engine for engine in engines if engine.replica}
        self._next = 0

    def choose(self, hint: Hint) -> EngineAddress:
        """The engine for a request with this hint."""
        named = self._named(hint)
        if named is not None and hint.reason == "PREFIX_MATCH":
            return named
        return self._idle() or named or self.least_outstanding()

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
        self._last_sent[engine.name] = self._clock()
        try:
            yield
        finally:
            self.outstanding[engine.name] -= 1

    def _named(self, hint: Hint) -> EngineAddress | None:
        if hint.reason not in FOLLOWED or not hint.replicas:
            return None
        return self._by_replica.get(hint.replicas[0])

    def _idle(self) -> EngineAddress | None:
        longest = min(self.engines, key=lambda engine: self._last_sent[engine.name])
        is_idle = self._clock() - self._last_sent[longest.name] >= IDLE_S
        return longest if is_idle and not self.outstanding[longest.name] else None
