"""The summary of a run says of every target whether it was reached, missed or not measured."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from benchmarks.__main__ import NAMES
from benchmarks.documented import BEGIN, END, PAGE, NoPlaceError, with_targets
from benchmarks.figures import FILE_VARIABLE, hand_in, median_ratio, read_figures
from benchmarks.summary import document, judge, table, write
from benchmarks.targets import TARGETS, Target

FAST = Target("folding", "rate", 5.0, "M/s", "at least")
SMALL = Target("folding", "size", 64.0, "bytes", "at most", "each")
ABSENT = Target("serving", "wait", 5.0, "ms", "at most")


@pytest.mark.parametrize(
    ("target", "measured", "verdict"),
    [
        (FAST, 5.0, "reached"),
        (FAST, 4.999, "missed"),
        (SMALL, 64.0, "reached"),
        (SMALL, 64.001, "missed"),
        (SMALL, float("nan"), "missed"),
        (FAST, float("nan"), "missed"),
    ],
)
def test_a_figure_reaches_its_target_up_to_the_limit(target: Target, measured: float, verdict: str) -> None:
    [outcome] = judge([target], {target.bench: {target.name: measured}})
    assert outcome.verdict == verdict


def test_a_figure_of_that_name_from_another_measurement_does_not_count() -> None:
    [outcome] = judge([ABSENT], {"folding": {"wait": 1.0}})
    assert outcome.measured is None
    assert outcome.verdict == "not measured"


def test_the_table_has_every_figure_beside_its_target() -> None:
    text = table(judge([FAST, SMALL, ABSENT], {"folding": {"rate": 4.0, "size": 54.3}}))
    _, fast, small, absent, total = text.splitlines()
    assert fast.split() == ["folding:", "rate", "4", "at", "least", "5", "M/s", "missed"]
    assert small.split() == ["folding:", "size", "54.3", "at", "most", "64", "bytes", "reached", "each"]
    assert absent.split() == ["serving:", "wait", "at", "most", "5", "ms", "not", "measured"]
    assert total == "1 reached, 1 missed, 1 not measured"


def test_the_document_has_targets_and_every_figure_that_was_handed_in(tmp_path: Path) -> None:
    measured = {"folding": {"rate": 4.0, "another": 1.0}}
    outcomes = judge([FAST, ABSENT], measured)
    write(tmp_path / "out", document(outcomes, measured, {"folding": 1.5}, ["serving"]))
    read = msgspec.json.decode((tmp_path / "out").read_bytes())
    assert [(each["name"], each["measured"], each["verdict"]) for each in read["targets"]] == [
        ("rate", 4.0, "missed"),
        ("wait", None, "not measured"),
    ]
    assert read["figures"] == measured
    assert (read["seconds"], read["failed"]) == ({"folding": 1.5}, ["serving"])


def test_the_documentation_gets_the_targets_of_a_run_in_place_of_an_earlier_one() -> None:
    measured = {"folding": {"rate": 4.0, "size": 54.3}}
    run = document(judge([FAST, SMALL, ABSENT], measured), measured, {"folding": 60.0}, [])
    page = with_targets(f"before\n{BEGIN}\nearlier\n{END}\nafter", run)
    assert "| rate | 4 | at least 5 M/s | missed | `make bench ARGS=folding` |" in page
    assert "| size (each) | 54.3 | at most 64 bytes | reached |" in page
    assert "| wait |  | at most 5 ms | not measured |" in page
    assert "the run took 1 minutes" in page
    assert page.startswith("before\n")
    assert page.endswith("\nafter")
    assert "earlier" not in page
    assert with_targets(page, run) == page
    with pytest.raises(NoPlaceError):
        with_targets("no place", run)


def test_the_page_has_a_place_for_the_targets() -> None:
    assert BEGIN in PAGE.read_text()
    assert END in PAGE.read_text()


def test_figures_are_handed_in_through_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "figures"
    assert read_figures(path) == {}
    monkeypatch.setenv(FILE_VARIABLE, str(path))
    hand_in({"a": 1.0, "b": 2.0})
    hand_in({"a": 3.0})
    assert read_figures(path) == {"a": 3.0, "b": 2.0}


def test_a_measurement_that_runs_alone_hands_nothing_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FILE_VARIABLE, raising=False)
    hand_in({"a": 1.0})


def test_one_disturbed_pair_of_three_does_not_move_their_ratio() -> None:
    assert median_ratio([(1.0, 2.0), (10.0, 20.0), (1.0, 9.0)]) == 2.0


def test_every_target_is_of_a_measurement_that_exists_and_is_named_once() -> None:
    assert {each.bench for each in TARGETS} <= set(NAMES)
    assert len({(each.bench, each.name) for each in TARGETS}) == len(TARGETS)
