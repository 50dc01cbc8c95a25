"""Gets libfaketime, which gives a process a clock that is wrong, for the tests of suite `faketime`.

`python -m tools.faketime` (`make faketime-assets`) downloads the system's package of it and unpacks the
library into the cache; nothing is installed. Where the system has it, that one is used.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final

from tools.cache import cache_folder
from tools.debian import UNPACKED, NoPackageError, unpack

LIBRARY: Final = "libfaketime.so.1"
PACKAGE: Final = "libfaketime"
SYSTEM: Final = (Path("/usr/lib"), Path("/usr/local/lib"))


def library() -> Path | None:
    """Path of the library, None when it is not here."""
    return next(_found(), None)


def present() -> bool:
    """Is it here?"""
    return library() is not None


def _found() -> Iterator[Path]:
    """In the system's folders, by architecture or not, and in the cache."""
    for root in SYSTEM:
        yield from chain(root.glob(f"*/faketime/{LIBRARY}"), root.glob(f"faketime/{LIBRARY}"))
    yield from cache_folder("faketime").glob(f"{UNPACKED}/usr/lib/*/faketime/{LIBRARY}")


def main() -> int:
    try:
        unpack("faketime", PACKAGE, present=present)
    except NoPackageError as error:
        print(error)
        return 1
    print(f"libfaketime is {library()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
