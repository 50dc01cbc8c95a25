"""`inferencecache --version` tells the version and, where the installation knows it, the commit."""

from __future__ import annotations

import json
import subprocess
from importlib.metadata import Distribution, version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from inferencecache.cli.app import app
from inferencecache.cli.version import version_line


def installed(folder: Path, origin: object) -> Distribution:
    info = folder / "p-1.2.3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: p\nVersion: 1.2.3\n")
    if origin is not None:
        (info / "direct_url.json").write_text(json.dumps(origin))
    return Distribution.at(info)


def test_the_version_is_that_of_the_package() -> None:
    ran = CliRunner().invoke(app, ["--version"])
    assert ran.exit_code == 0
    assert ran.stdout.startswith(f"inferencecache {version('inference-cache-cli')}")


def test_the_commit_is_what_the_installer_noted(tmp_path: Path) -> None:
    origin = {"url": "git+x", "vcs_info": {"vcs": "git", "commit_id": "abc123"}}
    assert version_line(installed(tmp_path, origin)) == "1.2.3, commit abc123"


def test_an_editable_installation_is_what_is_checked_out(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        user = ("-c", "user.name=n", "-c", "user.email=e@localhost")
        command = ("git", "-C", str(tmp_path), *user, *arguments)
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout.strip()

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "--no-verify", "-m", "x")
    origin = {"url": tmp_path.as_uri(), "dir_info": {"editable": True}}
    assert version_line(installed(tmp_path, origin)) == f"1.2.3, commit {git('rev-parse', 'HEAD')}"


def test_an_image_is_told_its_commit_by_its_build(tmp_path: Path) -> None:
    image = installed(tmp_path, {"url": "file:///source/cli", "dir_info": {}})
    assert version_line(image, {"INFERENCECACHE_COMMIT": "abc123-dirty"}) == "1.2.3, commit abc123-dirty"
    assert version_line(image, {"INFERENCECACHE_COMMIT": ""}) == "1.2.3"


@pytest.mark.parametrize(
    "origin", [None, {"url": "file:///nowhere", "dir_info": {"editable": True}}, {"url": "file:///x.whl"}]
)
def test_without_a_commit_the_version_is_all(tmp_path: Path, origin: object) -> None:
    assert version_line(installed(tmp_path, origin)) == "1.2.3"
