"""Gets a Chromium browser for the tests of suite `chromium`.

`python -m tools.chromium` (`make chromium-assets`) downloads the system's package of it, with the libraries
that are not there, and unpacks them into the cache; nothing is installed. A browser on the path is used.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tools.cache import cache_folder
from tools.debian import UNPACKED, NoPackageError, unpack, with_dependencies

PACKAGE: Final = "chromium"
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")


class Browser(NamedTuple):
    """The program, and the environment in which it finds its libraries."""

    program: Path
    environment: Mapping[str, str]


def browser() -> Browser | None:
    """The browser that is here, None when there is none."""
    for name in _NAMES:
        if found := shutil.which(name):
            return Browser(Path(found), os.environ)
    usr = cache_folder("chromium") / UNPACKED / "usr"
    program = usr / "lib" / "chromium" / "chromium"
    if not program.is_file():
        return None
    folders = (*usr.glob("lib/*-linux-gnu*"), *usr.glob("lib/*-linux-gnu*/pulseaudio"))
    return Browser(program, os.environ | {"LD_LIBRARY_PATH": os.pathsep.join(map(str, folders))})


def present() -> bool:
    """Is there one?"""
    return browser() is not None


def main() -> int:
    try:
        unpack("chromium", *with_dependencies(PACKAGE), present=present)
    except NoPackageError as error:
        print(error)
        return 1
    found = browser()
    print(f"chromium is {found.program}" if found else "the package holds no chromium; install it yourself")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
