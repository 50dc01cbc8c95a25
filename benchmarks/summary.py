"""What a run has measured, beside what is to be reached."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from benchmarks.targets import Target

Verdict = Literal["reached", "missed", "not measured"]
Measured = Mapping[str, Mapping[str, float]]
"""Figures by measurement and name."""


class Outcome(NamedTuple):
    """A target and what was measured; `None` where nothing was."""

    target: Target
    measured: float | None

    @property
    def verdict(self) -> Verdict:
        if self.measured is None:
            return "not measured"
        return "reached" if self.target.is_reached(self.measured) else "missed"


def judge(targets: Iterable[Target], measured: Measured) -> list[Outcome]:
    """Every target with its figure, in the order of the targets."""
    return [Outcome(each, measured.get(each.bench, {}).get(each.name)) for each in targets]


def table(outcomes: Sequence[Outcome]) -> str:
    """For people; the targets of measurements that were not asked for are left to the caller."""
    rows = [
        (
            f"{each.target.bench}: {each.target.name}",
            "" if each.measured is None else f"{each.measured:.4g}",
            f"{each.target.direction} {each.target.limit:g} {each.target.unit}".rstrip(),
            each.verdict,
            each.target.note,
        )
        for each in outcomes
    ]
    head = ("figure", "measured", "target", "", "")
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = [
        f"{name:<{widths[0]}}  {value:>{widths[1]}}  {limit:<{widths[2]}}  {verdict:<{widths[3]}}  {note}"
        for name, value, limit, verdict, note in (head, *rows)
    ]
    counts = {verdict: sum(each.verdict == verdict for each in outcomes) for verdict in _ORDER}
    lines.append(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return "\n".join(line.rstrip() for line in lines)


_ORDER: tuple[Verdict, ...] = ("reached", "missed", "not measured")


def document(
    outcomes: Sequence[Outcome], measured: Measured, took_s: Mapping[str, float], failed: Sequence[str]
) -> dict[str, Any]:
    """For machines: targets with verdicts, every figure that was handed in, and where it was measured."""
    return {
        "machine": {"cores": os.cpu_count(), "processor": _processor(), "python": platform.python_version()},
        "targets": [
            {**each.target._asdict(), "measured": each.measured, "verdict": each.verdict} for each in outcomes
        ],
        "figures": {bench: dict(figures) for bench, figures in measured.items()},
        "seconds": dict(took_s),
        "failed": list(failed),
    }


def write(path: Path, content: Mapping[str, Any]) -> None:
    """The document as JSON."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content)) + b"\n")


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    names = (
        [line for line in info.read_text().splitlines() if line.startswith("model name")]
        if info.exists()
        else []
    )
    return names[0].partition(":")[2].strip() if names else platform.processor()
