"""Puts together the file system of an image: an interpreter, one program's packages, and nothing else.

It runs in the build stage, by the interpreter of the environment that everything was installed in:

    assemble.py DESTINATION                  the interpreter, its library, what every image has
    assemble.py DESTINATION PACKAGE          a package with all that it depends on, for beside the former

No shell, no package manager and no package that the program does not need comes along. Shared libraries are
found by asking the dynamic loader, so the base image may be any that has Python and glibc.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

from pip._vendor.packaging.requirements import Requirement  # the environment has no other copy

PREFIX: Final = Path("/opt/inference-cache")
USER: Final = 65532
_UNUSED: Final = ("test", "tests", "idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip", "pydoc_data")
_INSTALLED: Final = ("site-packages", "dist-packages")
_LIBRARY: Final = re.compile(r"(?:=> )?(/\S+) \(0x")
_CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
_LOADER_CACHE: Final = Path("/etc/ld.so.cache")


def put_runtime(root: Path) -> None:
    """The interpreter, an environment at `PREFIX` that uses it, a user, and a folder for temporary files."""
    interpreter = Path(sys._base_executable).resolve()  # noqa: SLF001 - the one behind this environment
    _copy(interpreter, root)
    for kind in ("stdlib", "platstdlib"):
        library = Path(sysconfig.get_path(kind, vars={"installed_base": sys.base_prefix}))
        shutil.copytree(
            library,
            root / library.relative_to("/"),
            ignore=shutil.ignore_patterns(*_UNUSED, *_INSTALLED, "*.a", "config-*"),
            dirs_exist_ok=True,
        )
    for file in (_CERTIFICATES, _LOADER_CACHE):
        if file.exists():
            _copy(file, root)
    environment = root / PREFIX.relative_to("/")
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "python").symlink_to(interpreter)
    (environment / "pyvenv.cfg").write_text(f"home = {interpreter.parent}\n")
    (root / "etc" / "passwd").write_text(f"nonroot:x:{USER}:{USER}::/nonexistent:/sbin/nologin\n")
    (root / "etc" / "group").write_text(f"nonroot:x:{USER}:\n")
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    _put_libraries(root)


def put_package(root: Path, package: str) -> None:
    """What was installed of a package, and of whatever it depends on."""
    purelib = Path(sysconfig.get_path("purelib"))
    target = root / PREFIX.relative_to("/") / "lib" / purelib.parent.name / "site-packages"
    for distribution in _closure(package):
        for file in distribution.files or ():
            source = Path(str(distribution.locate_file(file)))
            if purelib in source.parents and source.exists():
                _copy_to(source, target / source.relative_to(purelib))
    for cache in purelib.rglob("__pycache__/*.nb?"):  # compiled kernels, which no package lists
        home = target / cache.parent.parent.relative_to(purelib)
        if home.is_dir():
            _copy_to(cache, home / "__pycache__" / cache.name)
    _put_libraries(root)


def _closure(package: str) -> Iterator[metadata.Distribution]:
    seen: set[tuple[str, str]] = set()
    told: set[str] = set()
    waiting = [Requirement(package)]
    while waiting:
        requirement = waiting.pop()
        distribution = metadata.distribution(requirement.name)
        if distribution.name not in told:
            told.add(distribution.name)
            yield distribution
        for extra in ("", *requirement.extras):
            if (distribution.name, extra) in seen:
                continue
            seen.add((distribution.name, extra))
            needed = map(Requirement, distribution.requires or ())
            waiting += [one for one in needed if one.marker is None or one.marker.evaluate({"extra": extra})]


def _put_libraries(root: Path) -> None:
    """Shared libraries of the base image that files below `root` are linked with, at their own places."""
    binaries = [
        path for path in root.rglob("*") if path.is_file() and not path.is_symlink() and _is_elf(path)
    ]
    for library in sorted(set(_linked(binaries))):
        if root not in library.parents:
            _copy(library, root)


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _linked(binaries: Iterable[Path]) -> Iterator[Path]:
    for binary in binaries:
        told = subprocess.run(["ldd", str(binary)], capture_output=True, text=True, check=False)
        yield from map(Path, _LIBRARY.findall(told.stdout))


def _copy(source: Path, root: Path) -> None:
    """To its own place below `root`; a symbolic link as the file it leads to."""
    _copy_to(source, root / source.relative_to("/"))


def _copy_to(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        put_runtime(Path(sys.argv[1]))
    else:
        put_package(Path(sys.argv[1]), sys.argv[2])
