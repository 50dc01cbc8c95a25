"""The live terminal view of a run: hints next to round robin, and how fresh the hints are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from rich.bar import Bar
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from inferencecache.cli.load.figures import GroupFigures, quantile
from inferencecache.cli.load.run import LoadRun
from inferencecache.cli.running import in_background

BAR_WIDTH: Final = 24
PANEL_WIDTH: Final = 96
REFRESH_S: Final = 0.25


@asynccontextmanager
async def shown_live(view: RenderableType, console: Console) -> AsyncIterator[None]:
    """Keep the view on the terminal, drawn by the event loop: figures change between drawings, not during.

    A thread that draws meets figures that are being counted, and ends for good when it does.
    """
    with Live(view, console=console, auto_refresh=False) as live:
        async with in_background(_refresh(live)):
            yield


async def _refresh(live: Live) -> None:
    while True:
        live.refresh()
        await asyncio.sleep(REFRESH_S)


class RunView:
    """Renders what a run has counted so far."""

    def __init__(self, run: LoadRun) -> None:
        self._run = run
        self._figures = run.figures

    def __rich__(self) -> RenderableType:
        beside = Table.grid(padding=(0, 4))
        right = Group(self._routers(), self._agreement(), Text(), self._indexers(), Text(), self._reasons())
        beside.add_row(self._engines(), right)
        figures = self._figures
        return Panel(
            Group(self._groups(), Text(), beside),
            title=f"inference-cache, after {self._run.elapsed_s:.0f} s",
            subtitle=f"hints ahead by [bold]{figures.advantage_points:+.1f}[/bold] points of cached share",
            border_style="cyan",
            width=PANEL_WIDTH,
        )

    def line(self) -> str:
        """The same in one plain line, for output that is no terminal."""
        figures = self._figures
        ages = [age for age in figures.view_age_s.values() if age is not None]
        delays = [value for values in figures.visible_s.values() for value in values]
        visible = f"{1000 * quantile(delays, 0.5):.0f} ms" if delays else "-"
        age = f"{max(ages):.1f} s" if ages else "-"
        reasons = " ".join(f"{code}={count}" for code, count in figures.reasons.most_common(4))
        return (
            f"{self._run.elapsed_s:5.0f} s  cached {100 * figures.hinted.cached_share:4.1f} % with hints, "
            f"{100 * figures.control.cached_share:4.1f} % round robin  "
            f"turns {figures.hinted.requests}  visible after p50 {visible}  "
            f"view age {age}  {reasons}"
        )

    def _groups(self) -> Table:
        made = table("", "prompt tokens from cache", "", "last 10 s", "TTFT p50", "p99", "turns", "skew")
        made.columns[1].justify = "left"
        made.add_row(*_group_row("with hints", self._figures.hinted, "green"))
        made.add_row(*_group_row("round robin", self._figures.control, "yellow"))
        return made

    def _engines(self) -> Table:
        made = table("engine", "turns", "in flight")
        for pool, figures in (
            (self._run.hinted, self._figures.hinted),
            (self._run.control, self._figures.control),
        ):
            for engine in pool.engines:
                turns, in_flight = figures.requests_by_engine[engine.name], pool.outstanding[engine.name]
                made.add_row(engine.name, str(turns), str(in_flight))
        return made

    def _reasons(self) -> Table:
        made = table("reason code", "lookups")
        for code, count in self._figures.reasons.most_common():
            made.add_row(code, str(count))
        return made

    def _agreement(self) -> Text:
        agreement = self._figures.agreement
        if not agreement.compared:
            return Text()
        counts = f"views compared: {agreement.compared}, different: {agreement.different}"
        return Text(counts, style="bold red" if agreement.different else "dim")

    def _indexers(self) -> Table:
        made = table("indexer", "partitions owned", "lag")
        for name, indexer in self._figures.indexers.items():
            if indexer is None:
                made.add_row(name, "-", "-")
                continue
            lag = "-" if indexer.lag_s is None else f"{indexer.lag_s:.1f} s"
            made.add_row(name, f"{indexer.owned} of {indexer.partitions}", lag)
        return made

    def _routers(self) -> Table:
        made = table("router", "events visible after p50", "p99", "view age")
        for name, delays in self._figures.visible_s.items():
            age = self._figures.view_age_s[name]
            made.add_row(
                name,
                f"{1000 * quantile(delays, 0.5):.0f} ms" if delays else "-",
                f"{1000 * quantile(delays, 0.99):.0f} ms" if delays else "-",
                "-" if age is None else f"{age:.1f} s",
            )
        return made


def table(first: str, *others: str) -> Table:
    """Names on the left, numbers on the right."""
    made = Table(box=None, pad_edge=False)
    made.add_column(first, no_wrap=True)
    for heading in others:
        made.add_column(heading, justify="right", no_wrap=True)
    return made


def _group_row(name: str, figures: GroupFigures, colour: str) -> tuple[RenderableType, ...]:
    share = figures.cached_share
    return (
        Text(name, style=colour),
        Bar(1.0, 0.0, share, width=BAR_WIDTH, color=colour, bgcolor="grey23"),
        Text(f"{100 * share:.1f} %", style=f"bold {colour}"),
        f"{100 * figures.recent_cached_share:.1f} %",
        f"{1000 * quantile(figures.first_token_s, 0.5):.0f} ms",
        f"{1000 * quantile(figures.first_token_s, 0.99):.0f} ms",
        str(figures.requests),
        f"{figures.skew:.2f}",
    )
