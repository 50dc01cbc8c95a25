"""What a replay has measured, as it is written to JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from benchmarks.routing.engine import Engine, Served
from benchmarks.routing.trace import Request
from inferencecache.cli.load.figures import quantile

UNREACHABLE: Final = "UNREACHABLE"
"""A reason of our own beside those of answers: the router did not answer in time."""


class PolicyFigures(msgspec.Struct, frozen=True):
    """One policy over one trace. Times are seconds of the trace.

    `cached_share` counts whole blocks, as the traces' ceilings do; `skew` is the prompt tokens that the
    busiest engine had to compute over the mean of all, `request_skew` the same of requests.
    """

    policy: str
    requests: int
    cached_share: float
    mean_ttft_s: float
    p99_ttft_s: float
    skew: float
    request_skew: float
    cached_by_minute: tuple[float, ...] = ()
    ttft_by_minute: tuple[float, ...] = ()
    reasons: dict[str, int] = {}


class Delays(msgspec.Struct, frozen=True):
    """Milliseconds of real time, and of how many measurements; zeros for none."""

    count: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    never: int = 0


class CaseFigures(msgspec.Struct, frozen=True):
    """One trace with one fleet. `late` is how far behind its clock the generator sent requests."""

    name: str
    source: str
    engines: int
    blocks: int
    rate: float
    requests: int
    span_s: float
    ceiling: float
    policies: tuple[PolicyFigures, ...]
    lookups: Delays = Delays()
    visible: Delays = Delays()
    late: Delays = Delays()


class RunFigures(msgspec.Struct, frozen=True):
    """One run of the benchmark: the conditions and every case."""

    taken: str
    speed: float
    slice_s: float
    arrivals: str
    statistics: str
    routers: int
    indexers: int
    took_s: float
    cases: tuple[CaseFigures, ...]


class Account:
    """Counts one policy's requests while a replay runs."""

    def __init__(self, policy: str, engines: Sequence[Engine]) -> None:
        self.policy = policy
        self.engines = engines
        self.reasons: Counter[str] = Counter()
        self._ttft_s: list[float] = []
        self._blocks = 0
        self._cached_blocks = 0
        self._minutes: dict[int, list[tuple[int, int, float]]] = {}

    def count(self, request: Request, served: Served) -> None:
        blocks = len(request.blocks)
        self._ttft_s.append(served.first_token_s)
        self._blocks += blocks
        self._cached_blocks += served.cached_blocks
        row = (blocks, served.cached_blocks, served.first_token_s)
        self._minutes.setdefault(int(request.at_s // 60), []).append(row)

    @property
    def cached_share(self) -> float:
        return self._cached_blocks / max(1, self._blocks)

    @property
    def mean_ttft_s(self) -> float:
        return sum(self._ttft_s) / max(1, len(self._ttft_s))

    def figures(self) -> PolicyFigures:
        minutes = [self._minutes[minute] for minute in sorted(self._minutes)]
        return PolicyFigures(
            self.policy,
            len(self._ttft_s),
            self.cached_share,
            self.mean_ttft_s,
            quantile(self._ttft_s, 0.99),
            skew([engine.computed_tokens for engine in self.engines]),
            skew([engine.requests for engine in self.engines]),
            tuple(sum(row[1] for row in rows) / sum(row[0] for row in rows) for rows in minutes),
            tuple(sum(row[2] for row in rows) / len(rows) for rows in minutes),
            dict(self.reasons.most_common()),
        )


def delays(seconds: Sequence[float], never: int = 0) -> Delays:
    """The summary of measured times."""
    return Delays(len(seconds), 1000 * quantile(seconds, 0.5), 1000 * quantile(seconds, 0.99), never)


def skew(values: Sequence[float]) -> float:
    """The largest over the mean, 1 when all are equal."""
    total = sum(values)
    return max(values) * len(values) / total if total else 1.0
