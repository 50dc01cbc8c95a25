"""Gets the event publishers of released inference engines, for the tests of suite `engines`.

`python -m tools.engines` (`make engines-assets`) downloads the wheels of `RELEASES` from the machine's
package index, without what they depend on, and keeps the few modules that publish events; the wheels
go again. Nothing of it comes into the repository. To move on to another release, change its row;
`pip download` names the wheel and `pip hash` its digest.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tools.cache import cache_folder, exclusive


class Release(NamedTuple):
    """One wheel, the same for every machine, since only its Python code is used.

    `platform` is the last part of its file name, `modules` are paths in it; `name` is what tests call it.
    """

    name: str
    package: str
    version: str
    platform: str
    sha256: str
    megabytes: int
    modules: tuple[str, ...]


VLLM_MODULES: Final = ("vllm/distributed/kv_events.py", "vllm/config/kv_events.py")
SGLANG_MODULES: Final = ("sglang/srt/disaggregation/kv_events.py",)

RELEASES: Final = (
    Release(
        name="vllm",
        package="vllm",
        version="0.33.0",
        platform="manylinux_2_28_x86_64",
        sha256="4b6bdec4ab269990bf70d45a3c1e94c3760a27064513760193b26d6f0da883aa",
        megabytes=336,
        modules=VLLM_MODULES,
    ),
    Release(
        name="vllm-array",  # the last release that encodes events as arrays
        package="vllm",
        version="0.23.0",
        platform="manylinux_2_28_x86_64",
        sha256="872aeb7c36a1ea942216af067ce870ffdf960804e829367e1b4eb36d4831c03c",
        megabytes=274,
        modules=VLLM_MODULES,
    ),
    Release(
        name="sglang",
        package="sglang",
        version="0.5.23",
        platform="manylinux_2_34_x86_64",
        sha256="00b3cd5b265ac76c64185fbb6b95424f324ddd9f428d0306b77bc9db9d859937",
        megabytes=39,
        modules=SGLANG_MODULES,
    ),
)


class NoPipError(Exception):
    """This Python can make no environment with pip."""

    def __init__(self) -> None:
        super().__init__(
            f"{sys.executable} has no pip to download with; install your system's package python3-venv"
        )


class UnexpectedWheelError(Exception):
    """A wheel has not the modules that are wanted of it."""

    def __init__(self, release: Release, missing: Sequence[str]) -> None:
        super().__init__(
            f"{release.package} {release.version} has no {', '.join(missing)}; change its row in {__name__}"
        )
        self.release = release
        self.missing = tuple(missing)


def folder_of(release: Release) -> Path:
    """Where the modules of a release are kept, under their own paths."""
    return cache_folder("engines") / f"{release.package}-{release.version}"


def present(releases: Iterable[Release] = RELEASES) -> bool:
    """Is everything there?"""
    return not any(_missing(release) for release in releases)


def download_size(releases: Iterable[Release] = RELEASES) -> int:
    """Megabytes that are still to be downloaded."""
    return sum(release.megabytes for release in releases if _missing(release))


def fetch(releases: Sequence[Release] = RELEASES) -> None:
    """Get what is missing. Raises `CalledProcessError` when pip fails, which has then said why."""
    cache = cache_folder("engines")
    with exclusive(cache), tempfile.TemporaryDirectory(dir=cache, prefix=".download-") as temporary:
        wanted = [release for release in releases if _missing(release)]
        pip = _pip(Path(temporary)) if wanted else ()
        for count, release in enumerate(wanted, 1):
            print(
                f"{count} of {len(wanted)}: {release.package} {release.version}, {release.megabytes} MB",
                flush=True,
            )
            wheel = _download(pip, release, Path(temporary) / release.name)
            _keep_modules(release, wheel)
            wheel.unlink()
    print(f"the engines' event publishers are in {cache}")


def _missing(release: Release) -> list[str]:
    return [module for module in release.modules if not (folder_of(release) / module).is_file()]


def _pip(temporary: Path) -> tuple[str, ...]:
    """The pip that Python itself carries; an environment made by uv has none."""
    environment = temporary / "pip"
    try:
        venv.create(environment, with_pip=True)
    except (ImportError, subprocess.CalledProcessError):
        raise NoPipError from None
    return (str(environment / "bin" / "python"), "-m", "pip", "--disable-pip-version-check")


def _download(pip: Sequence[str], release: Release, folder: Path) -> Path:
    folder.mkdir()
    pinned = folder / "pinned.txt"
    pinned.write_text(f"{release.package}=={release.version} --hash=sha256:{release.sha256}\n")
    subprocess.run(
        [
            *(*pip, "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"),
            *("--python-version", "3.11", "--abi", "cp311", "--abi", "abi3", "--platform", release.platform),
            *("--require-hashes", "--requirement", str(pinned), "--dest", str(folder)),
        ],
        check=True,
    )
    return next(folder.glob("*.whl"))


def _keep_modules(release: Release, wheel: Path) -> None:
    """Extract beside the final place and move there at once, so that what is there is whole."""
    kept = wheel.parent / "kept"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        if absent := [module for module in release.modules if module not in names]:
            raise UnexpectedWheelError(release, absent)
        licences = (name for name in names if ".dist-info/" in name and "LICENSE" in name.upper())
        archive.extractall(kept, [*release.modules, *licences])
    final = folder_of(release)
    shutil.rmtree(final, ignore_errors=True)
    kept.rename(final)


def main() -> int:
    try:
        fetch()
    except (NoPipError, UnexpectedWheelError) as error:
        print(error)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"pip ended with {error.returncode}; is the package index reachable?")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
