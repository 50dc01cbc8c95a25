"""Prometheus and promtool are the path's, else those in the cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import prometheus
from tools.cache import CACHE_VARIABLE
from tools.debian import NoPackageError, unpack


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A folder that is the whole path, and the folder that the package is unpacked into; both are empty."""
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "path", tmp_path / "cache/prometheus/unpacked/usr/bin"


def put(folder: Path, name: prometheus.Program) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.touch(mode=0o755)
    return path


def test_one_of_the_two_programs_is_not_enough(folders: tuple[Path, Path]) -> None:
    assert not prometheus.present()
    put(folders[1], "promtool")
    assert not prometheus.present()
    put(folders[1], "prometheus")
    assert prometheus.present()


def test_the_one_on_the_path_is_used_before_the_caches(folders: tuple[Path, Path]) -> None:
    path, cache = folders
    kept = put(cache, "promtool")
    assert prometheus.program("promtool") == kept
    installed = put(path, "promtool")
    assert prometheus.program("promtool") == installed


def test_a_system_without_apt_is_told_what_to_install(folders: tuple[Path, Path]) -> None:
    with pytest.raises(NoPackageError, match="apt-get is not there; install prometheus as your system does"):
        unpack("prometheus", prometheus.PACKAGE, present=prometheus.present)
