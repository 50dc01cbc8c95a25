"""The bounded demo passes when hints work, and fails when engine events do not arrive."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.local_stack import COMMAND

LIMIT_S = 240
"""Covers a first start that compiles kernels."""


def once(folder: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Run to the end; what it printed on standard output is its figures and nothing else."""
    finished = subprocess.run(
        [*COMMAND, "--once", "--json", "--state-dir", str(folder), *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert finished.stdout, finished.stderr
    return finished, json.loads(finished.stdout)


@pytest.mark.timeout(LIMIT_S)
def test_hints_raise_the_cached_share_by_ten_points_or_more(tmp_path: Path) -> None:
    finished, figures = once(tmp_path, "--turns=360")
    assert finished.returncode == 0, finished.stderr
    assert figures["passed"] is True
    assert figures["hinted"]["cached_share"] >= figures["control"]["cached_share"] + 0.10
    assert figures["hinted"]["requests"] == figures["control"]["requests"] == 360
    assert figures["hinted"]["prompt_tokens"] == figures["control"]["prompt_tokens"]
    assert figures["reasons"]["PREFIX_MATCH"] > 180
    assert figures["probes_never_visible"] == 0
    assert sum(figures["partitions_owned"].values()) == 2
    assert figures["views_compared"] > 0
    assert figures["views_different"] == 0
    for delay in figures["visible_delay_ms"].values():
        assert delay["count"] > 0
        assert delay["p50"] < 100
    assert all(age is not None for age in figures["view_age_s"].values())


@pytest.mark.timeout(LIMIT_S)
def test_a_broken_event_path_fails_the_run(tmp_path: Path) -> None:
    finished, figures = once(tmp_path, "--turns=120", "--engines=2", "--break-events")
    assert finished.returncode == 1, finished.stderr
    assert figures["passed"] is False
    assert "PREFIX_MATCH" not in figures["reasons"]
    assert "FAILED" in finished.stderr
