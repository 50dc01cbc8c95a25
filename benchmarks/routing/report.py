"""Measured figures as people read them: a table, and bars of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from benchmarks.routing.figures import UNREACHABLE, CaseFigures, RunFigures

HEADINGS: Final = (
    "trace, N, C, R",
    "policy",
    "prompt blocks from cache",
    "mean TTFT s",
    "p99 TTFT s",
    "busiest / mean",
)
BAR_WIDTH: Final = 40
MOST_LATE_MS: Final = 100.0
"""At ten times the speed that is a second of the trace: a backlog of the generator's, not of the engines'."""


def table(run: RunFigures) -> str:
    """A Markdown table, a row for each policy of each case."""
    rows = [HEADINGS, tuple("---" for _ in HEADINGS), *_rows(run)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def conditions(run: RunFigures) -> str:
    """One sentence on how the figures came about."""
    seen = ", ".join(
        f"{case.visible.p50_ms:.0f} ms median, {case.visible.p99_ms:.0f} ms p99 ({case.name}, {case.engines})"
        for case in run.cases
    )
    part = f", the first {run.slice_s / 60:.0f} minutes" if run.slice_s else ""
    lookups = ", ".join(f"{case.lookups.p50_ms:.1f} and {case.lookups.p99_ms:.1f} ms" for case in run.cases)
    unanswered = sum(policy.reasons.get(UNREACHABLE, 0) for case in run.cases for policy in case.policies)
    silent = (
        f" **No router answered {unanswered} lookups in time; these went round robin.**" if unanswered else ""
    )
    late = max(case.late.p99_ms for case in run.cases)
    busy = (
        f" **Requests were {late:.0f} ms late (p99): the machine was too busy for these figures.**"
        if late > MOST_LATE_MS
        else ""
    )
    return (
        f"Replayed {run.speed:g} times as fast{part}; arrivals {run.arrivals}, engine statistics "
        f"{run.statistics}; {run.indexers} indexers, {run.routers} routers. From an engine's store to a "
        f"router's view: {seen}. A lookup took {lookups} (median, p99), which times to first token leave out."
        f"{silent}{busy}"
    )


def bars(run: RunFigures) -> str:
    """Cached share and mean time to first token as bars of text."""
    lines = []
    for case in run.cases:
        lines.append(f"{case_name(case)}   (ceiling {100 * case.ceiling:.1f} %)")
        longest = max(policy.mean_ttft_s for policy in case.policies)
        for policy in case.policies:
            share = "█" * round(BAR_WIDTH * policy.cached_share / max(case.ceiling, 1e-9))
            lines.append(f"  {policy.policy:18} cached {100 * policy.cached_share:5.1f} % {share}")
        for policy in case.policies:
            ttft = "▒" * max(1, round(BAR_WIDTH * policy.mean_ttft_s / max(longest, 1e-9)))
            lines.append(f"  {policy.policy:18} TTFT {policy.mean_ttft_s:9,.2f} s {ttft}")
    return "\n".join(lines)


def _rows(run: RunFigures) -> Iterator[tuple[str, ...]]:
    for case in run.cases:
        name = case_name(case)
        for policy in case.policies:
            yield (
                name,
                policy.policy,
                f"{100 * policy.cached_share:.1f} %",
                f"{policy.mean_ttft_s:,.2f}",
                f"{policy.p99_ttft_s:,.1f}",
                f"{policy.skew:.2f}",
            )
            name = ""
        yield ("", "one unbounded cache (ceiling)", f"{100 * case.ceiling:.1f} %", "", "", "")


def case_name(case: CaseFigures) -> str:
    """Trace, N, C and R."""
    of = "" if case.source == "mooncake" else f" ({case.source})"
    return f"{case.name}{of}, {case.engines}, {case.blocks}, {case.rate:g}"
