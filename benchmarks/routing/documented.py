"""Writes measured figures into the documentation: `python -m benchmarks.routing.documented RUN.json…`.

RUN.json is what `make bench-routing BENCH_OUT=RUN.json` has written; the picture beside the first is copied.
With `ARGS=--arrivals=rounded` another run shows the traces as they are.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.routing.figures import RunFigures
from benchmarks.routing.report import conditions, table

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "performance.md"
PICTURE: Final = ROOT / "docs" / "images" / "routing.png"
BEGIN: Final = "<!-- begin of what python -m benchmarks.routing.documented writes -->"
END: Final = "<!-- end of what python -m benchmarks.routing.documented writes -->"


class NoPlaceError(Exception):
    """The page lacks the lines between which the figures belong."""


def with_figures(page: str, *runs: RunFigures, picture: bool) -> str:
    """The page with the figures of these runs in place of the earlier ones. Raises `NoPlaceError`."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise NoPlaceError(f"{PAGE.name} needs the lines {BEGIN} and {END}")
    parts = [part for run in runs for part in (table(run), conditions(run))]
    if picture:
        parts.append(f"![Cached share and time to first token, by minute](images/{PICTURE.name})")
    written = "\n\n".join(parts)
    return f"{before}{begin}\n\n{written}\n\n{end}{after}"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.routing.documented",
        description="Write the figures of these runs into docs/performance.md, and the picture of the first.",
    )
    parser.add_argument(
        "runs",
        metavar="RUN.json",
        type=Path,
        nargs="+",
        help="of make bench-routing BENCH_OUT=RUN.json",
    )
    sources: list[Path] = parser.parse_args().runs
    missing = [str(source) for source in sources if not source.is_file()]
    if missing:
        parser.error(f"{', '.join(missing)}: no such file; see make bench-routing BENCH_OUT={missing[0]}")
    runs = [msgspec.json.decode(source.read_bytes(), type=RunFigures) for source in sources]
    picture = sources[0].with_suffix(".png")
    if picture.exists():
        shutil.copyfile(picture, PICTURE)
    PAGE.write_text(with_figures(PAGE.read_text(), *runs, picture=picture.exists()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
