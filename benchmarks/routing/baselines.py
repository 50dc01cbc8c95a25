"""Policies that need no cache plane: where a request goes that knows engines, but not what they cached."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

from benchmarks.routing.engine import Engine


class RoundRobin:
    """Each engine in turn. It is also what a gateway does with a request that has no hint."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        self._next = cycle(engines)

    def choose(self, now_s: float) -> Engine:
        return next(self._next)


class LeastOutstanding:
    """The engine with the least work left, known exactly; of equals the one that has served least."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        self._engines = engines

    def choose(self, now_s: float) -> Engine:
        return min(self._engines, key=lambda engine: (engine.backlog_s(now_s), engine.requests))
