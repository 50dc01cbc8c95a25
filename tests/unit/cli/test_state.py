"""The folder of one `up`."""

from __future__ import annotations

from pathlib import Path

import pytest

from inferencecache.cli.local import UpOptions, up
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


def test_a_folder_that_cannot_be_made_is_told_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert up(UpOptions(state_dir=tmp_path / "file" / "folder")) == 1
    assert "Not a directory; choose another folder with --state-dir" in capsys.readouterr().out
