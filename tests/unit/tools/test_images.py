"""What images are told of where they come from."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tools import images


def git(folder: Path, *arguments: str) -> str:
    user = ("-c", "user.name=n", "-c", "user.email=e@localhost")
    command = ("git", "-C", str(folder), *user, *arguments)
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout.strip()


def test_the_commit_is_what_is_checked_out_and_whether_it_is_changed(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "file").write_text("one")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-q", "--no-verify", "-m", "x")
    git(tmp_path, "tag", "-m", "x", "v1")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert images.commit(tmp_path) == head
    (tmp_path / "file").write_text("two")
    assert images.commit(tmp_path) == f"{head}-dirty"


def test_a_tree_without_a_repository_has_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert images.commit(tmp_path) == ""


@pytest.mark.parametrize(("known", "given"), [("abc", ["--build-arg=COMMIT=abc"]), ("", [])])
def test_a_build_is_told_the_commit_if_there_is_one(
    monkeypatch: pytest.MonkeyPatch, known: str, given: list[str]
) -> None:
    commands: list[tuple[str, ...]] = []

    def run(command: tuple[str, ...], **_: Any) -> None:
        commands.append(command)

    monkeypatch.setattr(images, "commit", lambda: known)
    monkeypatch.setattr("tools.images.subprocess.run", run)
    images.build(["cli"], environment={})
    [command] = commands
    assert [argument for argument in command if "COMMIT" in argument] == given


def test_the_image_of_the_command_line_keeps_what_it_is_told() -> None:
    stages = re.split(r"^FROM ", (images.ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    [cli] = [stage for stage in stages if stage.partition("\n")[0].endswith(" AS cli")]
    assert "ARG COMMIT\nENV INFERENCECACHE_COMMIT=${COMMIT}\n" in cli
