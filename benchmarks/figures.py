"""How a measurement, which is a process of its own, hands in its figures: lines of JSON in a file.

The file is the one that `BENCH_FIGURES` names, and whoever runs a measurement alone has none: what it
prints is for people.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

FILE_VARIABLE: Final = "BENCH_FIGURES"


def hand_in(figures: Mapping[str, float]) -> None:
    """Add figures to those of the run; a name says what it counts."""
    path = os.environ.get(FILE_VARIABLE)
    if path:
        with Path(path).open("ab") as file:
            file.write(msgspec.json.encode(figures) + b"\n")


def read_figures(path: Path) -> dict[str, float]:
    """What was handed in; of a name the last."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return {name: value for line in lines for name, value in msgspec.json.decode(line).items()}


def median_ratio(pairs: Iterable[tuple[float, float]]) -> float:
    """The median of how many times the second of a pair is the first.

    Both of a pair are measured right after another, so that what disturbs the machine disturbs both.
    """
    return statistics.median(second / first for first, second in pairs)
