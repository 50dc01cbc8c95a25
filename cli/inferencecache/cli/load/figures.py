"""What a run counts, and the figures that people and scripts read from it. Pure: times are given."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from inferencecache.cli.agreement import Agreement
from inferencecache.cli.load.engines import Completion

REQUIRED_POINTS: Final = 10.0
"""By how many percentage points the hinted group's cached share must be above the control group's."""
RECENT_S: Final = 10.0
KEPT_SAMPLES: Final = 5000


class GroupFigures:
    """One group of engines: prompt tokens, how many of them were cached, times to the first token."""

    def __init__(self, engines: Iterable[str]) -> None:
        self.requests_by_engine = dict.fromkeys(engines, 0)
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.failures = 0
        self.first_token_s: deque[float] = deque(maxlen=KEPT_SAMPLES)
        self._recent: deque[tuple[float, int, int]] = deque()

    def count(self, engine: str, completion: Completion, now_s: float) -> None:
        """Take one completion into account."""
        self.requests_by_engine[engine] += 1
        self.prompt_tokens += completion.prompt_tokens
        self.cached_tokens += completion.cached_tokens
        self.first_token_s.append(completion.first_token_s)
        self._recent.append((now_s, completion.prompt_tokens, completion.cached_tokens))
        while self._recent and self._recent[0][0] < now_s - RECENT_S:
            self._recent.popleft()

    @property
    def requests(self) -> int:
        """Completions so far."""
        return sum(self.requests_by_engine.values())

    @property
    def cached_share(self) -> float:
        """Share of prompt tokens that were served from cache, 0 to 1."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def recent_cached_share(self) -> float:
        """The same over the last `RECENT_S` seconds with completions."""
        prompt = sum(entry[1] for entry in self._recent)
        return sum(entry[2] for entry in self._recent) / prompt if prompt else 0.0

    @property
    def skew(self) -> float:
        """Requests of the busiest engine over the mean; 1 is even."""
        counts = list(self.requests_by_engine.values())
        return max(counts) * len(counts) / sum(counts) if any(counts) else 1.0

    def document(self) -> dict[str, Any]:
        """The figures as JSON."""
        return {
            "requests": self.requests,
            "failures": self.failures,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "cached_share": round(self.cached_share, 4),
            "first_token_ms": _milliseconds(self.first_token_s),
            "requests_by_engine": self.requests_by_engine,
            "skew": round(self.skew, 3),
        }


class IndexerFigures(NamedTuple):
    """What an indexer says: of how many partitions it owns how many, and the longest lag of its folds."""

    owned: int
    partitions: int
    lag_s: float | None


class Figures:
    """Everything a run counts."""

    def __init__(
        self,
        hinted: Iterable[str],
        control: Iterable[str],
        routers: Iterable[str],
        indexers: Iterable[str] = (),
    ) -> None:
        self.hinted = GroupFigures(hinted)
        self.control = GroupFigures(control)
        self.reasons: Counter[str] = Counter()
        self.visible_s: dict[str, deque[float]] = {name: deque(maxlen=KEPT_SAMPLES) for name in routers}
        self.never_visible = 0
        """Probes that no router showed within their limit."""
        self.view_age_s: dict[str, float | None] = dict.fromkeys(self.visible_s)
        """Age of each router's view; None while it is not known."""
        self.indexers: dict[str, IndexerFigures | None] = dict.fromkeys(indexers)
        """None while an indexer does not tell."""
        self.agreement = Agreement()

    @property
    def advantage_points(self) -> float:
        """Cached share of the hinted group above the control group's, in percentage points."""
        return 100 * (self.hinted.cached_share - self.control.cached_share)

    @property
    def passed(self) -> bool:
        """Whether hints do what they are for."""
        return self.hinted.requests > 0 and self.advantage_points >= REQUIRED_POINTS

    def verdict(self) -> str:
        """One line: did it pass, by which figures."""
        shares = (
            f"cached share {100 * self.hinted.cached_share:.1f} % with hints, "
            f"{100 * self.control.cached_share:.1f} % round robin: {self.advantage_points:+.1f} points"
        )
        if self.passed:
            return f"PASSED: {shares}"
        return f"FAILED: {shares}, at least {REQUIRED_POINTS:.0f} are required"

    def document(self) -> dict[str, Any]:
        """The figures as JSON."""
        return {
            "passed": self.passed,
            "advantage_points": round(self.advantage_points, 2),
            "required_points": REQUIRED_POINTS,
            "hinted": self.hinted.document(),
            "control": self.control.document(),
            "reasons": dict(sorted(self.reasons.items())),
            "visible_delay_ms": {name: _milliseconds(values) for name, values in self.visible_s.items()},
            "probes_never_visible": self.never_visible,
            "view_age_s": self.view_age_s,
            "partitions_owned": {name: indexer and indexer.owned for name, indexer in self.indexers.items()},
            "views_compared": self.agreement.compared,
            "views_different": self.agreement.different,
        }


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that is at least as large as `share` of all; 0 for none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def _milliseconds(seconds: Iterable[float]) -> dict[str, float]:
    values = [1000 * value for value in seconds]
    return {
        "count": len(values),
        "mean": round(sum(values) / len(values), 2) if values else 0.0,
        "p50": round(quantile(values, 0.50), 2),
        "p99": round(quantile(values, 0.99), 2),
        "max": round(max(values, default=0.0), 2),
    }
