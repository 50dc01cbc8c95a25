"""Whole systems take turns, whatever the number of workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.turns import COMMANDS, GROUPS, KUBE, SYSTEMS, TESTS, group_of

SAYS_WHO = """
from pathlib import Path

def test_who(worker_id):
    Path(__file__).with_suffix(".who").write_text(worker_id)
"""
CONFTEST = """
from pathlib import Path
from tests.support import turns

turns.TESTS = Path(__file__).parent
turns.group_of = lambda path: "all"
pytest_plugins = ["tests.support.turns"]
"""


@pytest.mark.parametrize(
    ("path", "group"),
    [
        ("docs/test_running.py", COMMANDS),
        ("docs/test_pages.py", ""),
        ("faults/test_log_cut.py", SYSTEMS),
        ("integration/demo/test_up.py", SYSTEMS),
        ("kube/test_pods.py", KUBE),
        ("integration/dataplane/test_lag.py", ""),
        ("unit/log/test_subjects.py", ""),
    ],
)
def test_a_file_belongs_to_the_group_of_its_folder(path: str, group: str) -> None:
    assert group_of(TESTS / path) == group


@pytest.mark.parametrize("path", GROUPS)
def test_what_has_a_group_is_there(path: str) -> None:
    assert (TESTS / path).is_file() or list((TESTS / path).rglob("test_*.py"))


def test_workers_get_a_group_as_a_whole(tmp_path: Path) -> None:
    """Both files are of one group, so one of two workers runs them."""
    for name in ("one", "other"):
        (tmp_path / f"test_{name}.py").write_text(SAYS_WHO)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(TESTS.parent), "PYTEST_ADDOPTS": ""},
        check=True,
        timeout=50,
    )
    assert len({each.read_text() for each in tmp_path.glob("*.who")}) == 1
    assert len(list(tmp_path.glob("*.who"))) == 2
