"""Writes measured figures and targets into the documentation: `python -m benchmarks.documented RUN.json`.

RUN.json is what `make bench BENCH_OUT=RUN.json` has written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "performance.md"
BEGIN: Final = "<!-- begin of what python -m benchmarks.documented writes -->"
END: Final = "<!-- end of what python -m benchmarks.documented writes -->"


class NoPlaceError(Exception):
    """The page lacks the lines between which the figures belong."""


def with_targets(page: str, run: Mapping[str, Any]) -> str:
    """The page with the figures of this run in place of the earlier ones. Raises `NoPlaceError`."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise NoPlaceError(f"{PAGE.name} needs the lines {BEGIN} and {END}")
    return f"{before}{begin}\n\n" + "\n".join(_lines(run)) + f"\n\n{end}{after}"


def _lines(run: Mapping[str, Any]) -> Iterator[str]:
    yield "| figure | measured | target | | command |"
    yield "|---|---|---|---|---|"
    for each in run["targets"]:
        measured = "" if each["measured"] is None else f"{each['measured']:.3g}"
        unit = f" {each['unit']}" if each["unit"] else ""
        name = f"{each['name']} ({each['note']})" if each["note"] else each["name"]
        yield (
            f"| {name} | {measured} | {each['direction']} {each['limit']:g}{unit} | {each['verdict']} "
            f"| `make bench ARGS={each['bench']}` |"
        )
    machine, minutes = run["machine"], sum(run["seconds"].values()) / 60
    yield ""
    yield (
        f"Taken on {machine['cores']} cores of a {machine['processor']} with Python {machine['python']}; "
        f"the run took {minutes:.0f} minutes."
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.documented",
        description="Write the figures of this run, beside their targets, into docs/performance.md.",
    )
    parser.add_argument("run", metavar="RUN.json", type=Path, help="of make bench BENCH_OUT=RUN.json")
    run: Path = parser.parse_args().run
    if not run.is_file():
        parser.error(f"{run}: no such file; see make bench BENCH_OUT={run}")
    PAGE.write_text(with_targets(PAGE.read_text(), msgspec.json.decode(run.read_bytes())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
