from __future__ import annotations

import pytest

from tests.fuzz import campaign
from tools import fuzz


def test_a_failure_ends_with_the_command_that_shows_it_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzz, "NAMES", ("deadly",))
    assert fuzz.main(["deadly", "--seconds", "30", "--seed", "7"]) == 1
    shown = capsys.readouterr().out
    assert "deadly: FAILED" in shown
    assert shown.rstrip().endswith(
        "target deadly, seed 7; again with: python -m tools.fuzz deadly --input ff"
    )


def test_one_input_runs_again_in_this_process(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz.main(["records", "--input", "00"]) == 0
    assert capsys.readouterr().out == "records: nothing wrong with this input\n"


@pytest.mark.parametrize("given", [["nothing"], ["records", "--input", "xyz"]])
def test_what_is_no_target_or_no_input_ends_with_usage(given: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        fuzz.main(given)
    assert ended.value.code == 2


def test_every_target_has_seeds_and_knows_their_parts() -> None:
    for name in campaign.NAMES:
        target = campaign.load(name)
        for seed in target.seeds():
            assert b"".join(target.parts(seed)) == seed
