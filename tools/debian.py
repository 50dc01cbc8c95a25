"""Gets packages of a Debian-like system and unpacks them into the cache; nothing is installed."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tools.cache import cache_folder, exclusive

UNPACKED: Final = "unpacked"
"""Below the cache's folder of a facility: the packages' files under their own paths."""


class NoPackageError(Exception):
    """The system has no way to get a package, or none of that name."""

    def __init__(self, reason: str, packages: tuple[str, ...]) -> None:
        super().__init__(f"{reason}; install {', '.join(packages)} as your system does that")
        self.packages = packages


def with_dependencies(package: str) -> tuple[str, ...]:
    """A package and those that it needs and that are not installed. Raises `NoPackageError`."""
    try:
        told = subprocess.run(
            ("apt-get", "install", "--simulate", "--no-install-recommends", package),
            check=True,
            capture_output=True,
            text=True,
        )
    except FileNotFoundError as error:
        raise NoPackageError(f"{error.filename} is not there", (package,)) from None
    except subprocess.CalledProcessError as error:
        raise NoPackageError(error.stderr.strip(), (package,)) from None
    return tuple(re.findall(r"^Inst (\S+)", told.stdout, re.MULTILINE))


def unpack(facility: str, *packages: str, present: Callable[[], bool]) -> None:
    """Get packages for a facility, unless it is `present` by now. Raises `NoPackageError`; apt or dpkg has
    then said why.
    """
    cache = cache_folder(facility)
    with exclusive(cache), tempfile.TemporaryDirectory(dir=cache, prefix=".download-") as temporary:
        if present():
            return
        try:
            subprocess.run(("apt-get", "download", *packages), cwd=temporary, check=True)
            for package in Path(temporary).glob("*.deb"):
                subprocess.run(("dpkg-deb", "--extract", str(package), str(cache / UNPACKED)), check=True)
        except FileNotFoundError as error:
            raise NoPackageError(f"{error.filename} is not there", packages) from None
        except subprocess.CalledProcessError as error:
            raise NoPackageError(f"{error.cmd[0]} ended with {error.returncode}", packages) from None
