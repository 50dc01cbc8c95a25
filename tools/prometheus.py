"""Gets Prometheus and promtool for the tests of suite `prometheus`.

`python -m tools.prometheus` (`make prometheus-assets`) downloads the system's package of them and unpacks
both programs into the cache; nothing is installed or started. Where they are on the path, those are used.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Final, Literal

from tools.cache import cache_folder
from tools.debian import UNPACKED, NoPackageError, unpack

PACKAGE: Final = "prometheus"
Program = Literal["prometheus", "promtool"]


def program(name: Program) -> Path | None:
    """Path of one of the programs, None when it is not here."""
    if found := shutil.which(name):
        return Path(found)
    unpacked = cache_folder("prometheus") / UNPACKED / "usr" / "bin" / name
    return unpacked if unpacked.is_file() else None


def present() -> bool:
    """Are both here?"""
    return program("prometheus") is not None and program("promtool") is not None


def main() -> int:
    try:
        unpack("prometheus", PACKAGE, present=present)
    except NoPackageError as error:
        print(error)
        return 1
    print(f"prometheus is {program('prometheus')}, promtool is {program('promtool')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
