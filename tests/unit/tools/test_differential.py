from __future__ import annotations

from pathlib import Path

import pytest

from inferencecache.core.index import fold
from tests.oracle.trial import DifferenceError
from tools import differential


def test_a_difference_ends_the_run_with_a_short_script_that_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "difference.py"
    monkeypatch.setattr(fold, "_stored_tier", lambda tier: 1)
    assert differential.main(["--ops", "2000", "--seed", "1", "--script", str(script)]) == 1
    assert script.read_text() in capsys.readouterr().out
    shown = compile(script.read_text(), str(script), "exec")
    with pytest.raises(DifferenceError, match="digest"):
        exec(shown, {})  # noqa: S102 - the script is the tool's product
    assert script.read_text().count("Stored(") == 1
    monkeypatch.undo()
    exec(shown, {})  # noqa: S102


def test_the_same_seed_draws_the_same_steps() -> None:
    first, second, other = (
        [repr(step) for _, step in zip(range(50), differential.trial_steps(seed, 3), strict=False)]
        for seed in (1, 1, 2)
    )
    assert first == second != other
