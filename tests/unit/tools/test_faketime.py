"""The library for wrong clocks is the system's, else the one in the cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import faketime
from tools.cache import CACHE_VARIABLE


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The system's library folder and the cache, both empty."""
    monkeypatch.setattr(faketime, "SYSTEM", (tmp_path / "lib",))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "lib", tmp_path / "cache"


def put(folder: Path) -> Path:
    folder.mkdir(parents=True)
    library = folder / faketime.LIBRARY
    library.touch()
    return library


def test_without_either_it_is_missing(folders: tuple[Path, Path]) -> None:
    assert not faketime.present()
    assert faketime.library() is None


def test_the_systems_is_used_before_the_caches(folders: tuple[Path, Path]) -> None:
    system, cache = folders
    kept = put(cache / "faketime/unpacked/usr/lib/x86_64-linux-gnu/faketime")
    assert faketime.library() == kept
    installed = put(system / "aarch64-linux-gnu/faketime")
    assert faketime.library() == installed
