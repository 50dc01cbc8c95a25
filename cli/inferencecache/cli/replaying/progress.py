"""How far a replay is: a bar for each partition, on a terminal only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from inferencecache.cli.replaying.run import Advance

_STEP: Final = 512


@contextmanager
def progress(is_quiet: bool = False) -> Iterator[Callable[[int], Advance]]:
    """Gives, by partition, what to tell how far its replay is; bars are on standard error, till the end."""
    console = Console(stderr=True, highlight=False, markup=False)
    if is_quiet or not console.is_terminal:
        yield lambda _: _nothing
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bars:

        def of(partition: int) -> Advance:
            task = bars.add_task(f"partition {partition}", total=None)
            first = 0

            def advance(sequence: int, last: int) -> None:
                nonlocal first
                first = first or sequence
                if sequence == last or not sequence % _STEP:
                    bars.update(task, completed=sequence - first + 1, total=last - first + 1)

            return advance

        yield of


def _nothing(sequence: int, last: int) -> None:
    """Nobody is watching."""
