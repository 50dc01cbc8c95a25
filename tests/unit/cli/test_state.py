"""The folder of one `up`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from inferencecache.cli.state import StateDir, StateDirError


def test_a_folder_that_was_asked_for_stays_and_another_goes(tmp_path: Path) -> None:
    with StateDir(tmp_path / "asked" / "for") as asked_for, StateDir(None) as temporary:
        assert temporary.path.is_dir()
    assert asked_for.path.is_dir()
    assert not temporary.path.exists()


def test_a_folder_is_used_by_one_up_at_a_time(tmp_path: Path) -> None:
    with StateDir(tmp_path), pytest.raises(StateDirError, match="another `inferencecache up` runs there"):
        StateDir(tmp_path)
    with StateDir(tmp_path):
        pass


def test_a_folder_that_cannot_be_made_is_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    command = [
        sys.executable,
        "-m",
        "inferencecache.cli",
        "up",
        "--state-dir",
        str(tmp_path / "file" / "folder"),
    ]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=50)
    assert ended.returncode == 1
    told = " ".join((ended.stdout + ended.stderr).split())
    assert "Not a directory; choose another folder with --state-dir" in told
    assert "Traceback" not in told
