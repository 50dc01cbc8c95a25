"""Numbers on the command lines of tools."""

from __future__ import annotations

import argparse

import pytest

from tools import chaos, fuzz
from tools.arguments import positive


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "0", "-1", "1e999", "ten", ""])
def test_what_is_no_finite_number_above_0_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="number"):
        positive(text)


def test_other_numbers_are_taken() -> None:
    assert [positive(text) for text in ("1", "0.5", "1e3")] == [1, 0.5, 1000]


@pytest.mark.parametrize(
    ("main", "flag"), [(chaos.main, "--minutes"), (fuzz.main, "--seconds")], ids=["chaos", "fuzz"]
)
def test_a_run_without_an_end_is_refused(main: object, flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert callable(main)
    with pytest.raises(SystemExit) as ended:
        main([flag, "nan"])
    assert ended.value.code == 2
    assert "nan is not a finite number above 0" in capsys.readouterr().err
