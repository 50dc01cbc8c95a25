"""A run leaves out what the machine cannot do, says so, and fails for it only where all is required."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

CONFTEST = """
import shutil
from tools import facilities

facilities.FACILITIES = (
    facilities.Facility(
        name="docker",
        present=lambda: shutil.which("program-of-a-facility") is not None,
        missing="no such program",
        remedy="run 'make docker-assets' (a minute)",
        install=("true",),
    ),
)
pytest_plugins = ["tests.support.suites"]
"""

TESTS = """
import pytest

def test_of_python_alone(): ...

@pytest.mark.docker
def test_of_the_facility(): ...

@pytest.mark.long
def test_that_takes_long(): ...
"""

NOT_RUN_DOCKER = "NOT RUN docker: no such program; run 'make docker-assets' (a minute)"
NOT_RUN_LONG = "NOT RUN long: soaks and many seeds; run 'make test REQUIRE=long' (minutes)"

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a small project's tests; its one facility is a program that `present` puts on the path."""

    def run_tests(
        *arguments: str, present: bool, tests: str = TESTS, conftest: str = CONFTEST
    ) -> subprocess.CompletedProcess[str]:
        (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  docker\n  long\n")
        (tmp_path / "conftest.py").write_text(conftest)
        (tmp_path / "test_small.py").write_text(tests)
        programs = tmp_path / "programs"
        programs.mkdir(exist_ok=True)
        if present:
            program = programs / "program-of-a-facility"
            program.write_text("#!/bin/sh\n")
            program.chmod(0o755)
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-v", "--report-not-run", *arguments],
            cwd=tmp_path,
            env=os.environ
            | {"PATH": str(programs), "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""}
            | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=50,
        )

    return run_tests


def last_lines(done: subprocess.CompletedProcess[str], count: int) -> list[str]:
    return done.stdout.splitlines()[-count:]


@pytest.mark.parametrize("processes", [[], ["-p", "xdist", "-n1"]])
def test_without_the_facility_its_tests_are_left_out_and_named_last(run: Run, processes: list[str]) -> None:
    done = run(*processes, present=False)
    assert done.returncode == 0
    assert "test_of_the_facility" not in done.stdout
    assert "1 passed" in done.stdout
    assert last_lines(done, 2) == [NOT_RUN_DOCKER, NOT_RUN_LONG]


@pytest.mark.parametrize("processes", [[], ["-p", "xdist", "-n1"]])
def test_with_the_facility_its_tests_run(run: Run, processes: list[str]) -> None:
    done = run(*processes, present=True)
    assert done.returncode == 0
    assert "2 passed" in done.stdout
    assert NOT_RUN_DOCKER not in done.stdout
    assert last_lines(done, 1) == [NOT_RUN_LONG]


@pytest.mark.parametrize("require", ["all", "docker", "docker,long"])
def test_a_required_facility_that_is_missing_is_a_failure(run: Run, require: str) -> None:
    done = run(f"--require={require}", present=False)
    assert done.returncode == 1
    assert "REQUIRED docker: no such program" in done.stdout


@pytest.mark.parametrize("processes", [[], ["-p", "xdist", "-n1"]])
def test_where_all_is_required_and_present_everything_runs(run: Run, processes: list[str]) -> None:
    done = run("--require=all", *processes, present=True)
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout
    assert "NOT RUN" not in done.stdout


@pytest.mark.parametrize(("require", "ran"), [("", False), ("long", False), ("all", True), ("docker", True)])
def test_what_runs_only_when_it_is_required_is_said_to_be_left_out(run: Run, require: str, ran: bool) -> None:
    conftest = CONFTEST.replace('install=("true",),', 'install=("true",),\n        only_when_required=True,')
    done = run(f"--require={require}", present=True, conftest=conftest)
    assert done.returncode == 0, done.stdout
    assert ("test_of_the_facility PASSED" in done.stdout) == ran
    assert (NOT_RUN_DOCKER in done.stdout) != ran


def test_an_unrequired_facility_may_be_missing_beside_a_required_one(run: Run) -> None:
    done = run("--require=long", present=False)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
    assert last_lines(done, 1) == [NOT_RUN_DOCKER]


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("@pytest.mark.docker\ndef test_it(): pytest.skip('not today')", "1 skip"),
        ("@pytest.mark.docker\ndef test_it(): pytest.xfail('known')", "1 expected failure"),
        ("@pytest.mark.skip\n@pytest.mark.docker\ndef test_it(): ...", "1 skip"),
        ("def test_of_another_kind(): ...", "docker: no test of this suite ran"),
    ],
)
def test_where_all_is_required_a_hole_is_a_failure(run: Run, body: str, fault: str) -> None:
    tests = f"import pytest\n\n@pytest.mark.long\ndef test_long(): ...\n\n{body}\n"
    assert run(present=True, tests=tests).returncode == 0
    done = run("--require=all", present=True, tests=tests)
    assert done.returncode == 1
    assert fault in done.stdout


def test_a_failing_test_fails_the_run_whatever_is_missing(run: Run) -> None:
    done = run(present=False, tests="def test_it(): assert False")
    assert done.returncode == 1
    assert last_lines(done, 2) == [NOT_RUN_DOCKER, NOT_RUN_LONG]


def test_an_unknown_suite_is_refused(run: Run) -> None:
    done = run("--require=dokcer", present=True)
    assert done.returncode == 4
    assert "dokcer" in done.stderr
