"""The publishers of released engines: got once from wheels that go again, and missed where they are not."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tools import engines
from tools.cache import CACHE_VARIABLE, cache_folder, exclusive

ROOT = Path(__file__).parents[3]
PLATFORM = "manylinux_2_28_x86_64"


@pytest.fixture(scope="module")
def pip(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    return engines._pip(tmp_path_factory.mktemp("pip"))


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pip: tuple[str, ...]) -> Path:
    """A folder that is the whole package index, and a cache of the test's own."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(engines, "_pip", lambda temporary: pip)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return folder


def wheel_in(index: Path, *modules: str) -> engines.Release:
    """A wheel with these modules and others, which needs a package that nobody has."""
    wheel = index / f"engine-1.0-cp38-abi3-{PLATFORM}.whl"
    about = "engine-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        for module in (*modules, "engine/heavy.so"):
            archive.writestr(module, module)
        archive.writestr(f"{about}/licenses/LICENSE", "terms")
        archive.writestr(
            f"{about}/METADATA", "Metadata-Version: 2.1\nName: engine\nVersion: 1.0\nRequires-Dist: absent\n"
        )
        archive.writestr(f"{about}/WHEEL", f"Wheel-Version: 1.0\nTag: cp38-abi3-{PLATFORM}\n")
        archive.writestr(f"{about}/RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return engines.Release("new", "engine", "1.0", PLATFORM, digest, 1, modules)


def test_the_modules_of_a_wheel_are_kept_and_nothing_else(index: Path) -> None:
    release = wheel_in(index, "engine/events.py")
    assert not engines.present([release])
    engines.fetch([release])
    assert engines.present([release])
    kept = [path for path in cache_folder("engines").rglob("*") if path.is_file() and path.name != ".lock"]
    assert {path.name for path in kept} == {"events.py", "LICENSE"}
    for wheel in index.iterdir():
        wheel.unlink()
    engines.fetch([release])


def test_a_wheel_with_another_digest_is_refused(index: Path) -> None:
    release = wheel_in(index, "engine/events.py")._replace(sha256="0" * 64)
    with pytest.raises(subprocess.CalledProcessError):
        engines.fetch([release])
    assert not engines.present([release])


def test_a_wheel_without_the_wanted_module_is_named(index: Path) -> None:
    release = wheel_in(index, "engine/events.py")._replace(modules=("engine/gone.py",))
    with pytest.raises(engines.UnexpectedWheelError, match=r"engine 1\.0 has no engine/gone\.py"):
        engines.fetch([release])
    assert not engines.present([release])


def test_one_process_at_a_time_fills_a_cache(tmp_path: Path) -> None:
    program = (
        "import pathlib, sys, tools.cache\nwith tools.cache.exclusive(pathlib.Path(sys.argv[1])): print('in')"
    )
    with exclusive(tmp_path):
        other = subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert other.stdout is not None
        assert other.stdout.readline().startswith("waiting for another process")
    assert other.communicate(timeout=20)[0] == "in\n"


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({CACHE_VARIABLE: "/c", "XDG_CACHE_HOME": "/x"}, "/c/engines"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/inference-cache/engines"),
        ({"HOME": "/h"}, "/h/.cache/inference-cache/engines"),
    ],
)
def test_the_cache_is_where_the_user_wants_it(
    monkeypatch: pytest.MonkeyPatch, chosen: dict[str, str], expected: str
) -> None:
    for name in (CACHE_VARIABLE, "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)
    assert cache_folder("engines") == Path(expected)


def test_without_the_publishers_their_suite_is_not_collected_and_named(tmp_path: Path) -> None:
    beside = "tests/unit/tools/test_engines.py::test_the_cache_is_where_the_user_wants_it"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "--report-not-run",
            "-p",
            "no:cacheprovider",
            "tests/engines",
            beside,
        ],
        cwd=ROOT,
        env=os.environ | {CACHE_VARIABLE: str(tmp_path), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout
    assert (
        "NOT RUN engines: no event publishers of released engines; run 'make engines-assets'" in done.stdout
    )
