"""A Chromium is the path's, else the one that was unpacked with the libraries that are missing here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import chromium
from tools.cache import CACHE_VARIABLE
from tools.debian import NoPackageError, with_dependencies

SIMULATED = """\
Reading package lists...
Inst libogg0 (1.3.5-3 Debian:12 [amd64])
Inst chromium-common (156.0 Debian-Security:12 [amd64])
Inst chromium (156.0 Debian-Security:12 [amd64])
Conf libogg0 (1.3.5-3 Debian:12 [amd64])
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the whole path; it and the cache are empty."""
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return folder


def put(file: Path, text: str = "") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)
    return file


def test_an_unpacked_browser_finds_the_libraries_that_came_with_it(path: Path, tmp_path: Path) -> None:
    assert not chromium.present()
    usr = tmp_path / "cache/chromium/unpacked/usr"
    program = put(usr / "lib/chromium/chromium")
    put(usr / "lib/x86_64-linux-gnu/libogg.so.0")
    found = chromium.browser()
    assert found is not None
    assert found.program == program
    assert found.environment["LD_LIBRARY_PATH"] == str(usr / "lib/x86_64-linux-gnu")


def test_the_one_on_the_path_is_used_before_the_caches(path: Path, tmp_path: Path) -> None:
    put(tmp_path / "cache/chromium/unpacked/usr/lib/chromium/chromium")
    installed = put(path / "chromium-browser")
    found = chromium.browser()
    assert found is not None
    assert found.program == installed


def test_all_packages_that_are_missing_are_asked_for(path: Path) -> None:
    put(path / "apt-get", f"#!/bin/sh\nprintf '%s' '{SIMULATED}'\n")
    assert with_dependencies("chromium") == ("libogg0", "chromium-common", "chromium")


def test_a_package_that_the_system_does_not_know_is_told(path: Path) -> None:
    put(path / "apt-get", "#!/bin/sh\necho 'E: Unable to locate package chromium' >&2\nexit 100\n")
    with pytest.raises(NoPackageError, match="Unable to locate package chromium"):
        with_dependencies("chromium")


def test_a_system_without_apt_is_told_what_to_install(path: Path) -> None:
    with pytest.raises(NoPackageError, match="apt-get is not there; install chromium as your system does"):
        with_dependencies("chromium")
