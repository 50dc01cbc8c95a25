"""Pins what the project is installed from: `requirements/*.txt` from `requirements/*.in`.

`compile` resolves once for every Python and platform we support, with hashes, and then proves that
each of them can be installed without a compiler. `check` works offline: the pins cover everything
that a workspace member declares, and name no index, path or host, because where packages come from
is the installing machine's business.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).resolve().parent.parent
SETS: Final = ("runtime", "dev")
OPTIONAL: Final = ("envoy",)
"""Sets that machines without a wheel of them go without; see `tools/bootstrap`."""
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS: Final = ("x86_64-manylinux_2_28", "aarch64-manylinux_2_28", "aarch64-apple-darwin")
SOURCE_ONLY: Final = "nkeys"
"""Published without a wheel; pure Python, so it installs everywhere all the same."""
OUR_PREFIX: Final = "inference-cache-"
FOREIGN: Final = re.compile(r"://|^-|--(?:index-url|extra-index-url|find-links|trusted-host)| @ |(?:^|\s)/")
"""What ties a file to one machine or index; option lines other than `--hash` included."""
PIN: Final = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)")


def compile_pins(*, upgrade: bool) -> int:
    """Write the `.txt` files. Without `upgrade` existing pins stay where they can."""
    uv = shutil.which("uv")
    if uv is None:
        print("needs uv on the path; install it with 'pip install uv' or from your package manager")
        return 1
    for name in (*SETS, *OPTIONAL):
        print(f"resolving requirements/{name}.in", flush=True)
        _run(
            *(uv, "pip", "compile", "--quiet", "--universal", "--generate-hashes"),
            *("--python-version", PYTHONS[0], "--custom-compile-command", "make requirements"),
            *("--no-emit-index-url", "--no-emit-find-links"),
            *(["--upgrade"] if upgrade else []),
            *("--output-file", f"requirements/{name}.txt", f"requirements/{name}.in"),
        )
    for python in PYTHONS:
        for platform in PLATFORMS:
            print(f"wheels for Python {python} on {platform}", flush=True)
            with tempfile.TemporaryDirectory() as nowhere:
                _run(
                    *(uv, "pip", "install", "--quiet", "--dry-run", "--target", nowhere),
                    *("--python-version", python, "--python-platform", platform),
                    *("--only-binary", ":all:", "--no-binary", SOURCE_ONLY),
                    *("--require-hashes", "-r", f"requirements/{SETS[-1]}.txt"),
                )
    return check_pins()


def _run(*command: str) -> None:
    subprocess.run(command, cwd=ROOT, check=True)


def check_pins() -> int:
    """Print every fault; 1 when there is one."""
    faults = [fault for name in (*SETS, *OPTIONAL) for fault in _foreign_lines(name)]
    pinned = {name: _pinned(name) for name in SETS}
    for member, requirement in _declared():
        if not any(requirement.specifier.contains(v) for v in pinned["runtime"].get(requirement.name, ())):
            faults.append(f"{member} needs {requirement}, which requirements/runtime.txt does not pin")
    for name, versions in pinned["runtime"].items():
        if pinned["dev"].get(name) != versions:
            faults.append(f"requirements/dev.txt and runtime.txt differ on {name}")
    for fault in faults:
        print(fault)
    if faults:
        print("edit requirements/*.in and run 'make requirements'")
    return 1 if faults else 0


def _foreign_lines(name: str) -> Iterator[str]:
    for number, line in enumerate(_text(name).splitlines(), 1):
        if not line.lstrip().startswith(("#", "--hash=sha256:")) and FOREIGN.search(line):
            yield f"requirements/{name}.txt:{number}: names an index, a path or a host"


def _pinned(name: str) -> dict[str, set[str]]:
    """Versions by normalised name; some packages have one for each of several Pythons."""
    pins: dict[str, set[str]] = {}
    for line in _text(name).splitlines():
        if match := PIN.match(line):
            pins.setdefault(canonicalize_name(match[1]), set()).add(match[2])
    return pins


def _text(name: str) -> str:
    return (ROOT / "requirements" / f"{name}.txt").read_text()


def _declared() -> Iterator[tuple[str, Requirement]]:
    """Third-party needs of the workspace members, without extras that the demo does not install."""
    for path in sorted([*ROOT.glob("*/pyproject.toml"), *ROOT.glob("services/*/pyproject.toml")]):
        project = tomllib.loads(path.read_text())["project"]
        extras: dict[str, list[str]] = project.get("optional-dependencies", {})
        wanted = (text for name in ("index", "tracing", "up") for text in extras.get(name, []))
        texts = [*project["dependencies"], *wanted]
        for requirement in map(Requirement, texts):
            requirement.name = canonicalize_name(requirement.name)
            if not requirement.name.startswith(OUR_PREFIX):
                yield str(path.relative_to(ROOT)), requirement


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("command", choices=["compile", "check"])
    parser.add_argument("--upgrade", action="store_true", help="take newer versions where there are any")
    arguments = parser.parse_args()
    return compile_pins(upgrade=arguments.upgrade) if arguments.command == "compile" else check_pins()


if __name__ == "__main__":
    sys.exit(main())
