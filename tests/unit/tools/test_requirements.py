"""The committed pins belong to no machine and cover what the members declare."""

from __future__ import annotations

import re

import pytest

from tools import requirements


def test_the_committed_pins_are_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    assert requirements.check_pins() == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    "line",
    [
        "--index-url somewhere",
        "--find-links wheels",
        "-e core",
        "numpy @ file:///wheels/numpy.whl",
        "https://example.org/numpy.whl",
        "/wheels/numpy.whl",
    ],
)
def test_a_line_that_ties_pins_to_one_machine_is_found(line: str) -> None:
    assert requirements.FOREIGN.search(line)


@pytest.mark.parametrize("name", requirements.SETS)
def test_every_pin_has_hashes(name: str) -> None:
    text = (requirements.ROOT / "requirements" / f"{name}.txt").read_text()
    pins = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]
    assert pins
    assert [pin.split()[0] for pin in pins if "--hash=sha256:" not in pin] == []


def test_a_dependency_without_a_pin_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = requirements._text
    monkeypatch.setattr(requirements, "_text", lambda name: text(name).replace("msgspec==", "other=="))
    assert requirements.check_pins() == 1
    assert "schemas/pyproject.toml needs msgspec" in capsys.readouterr().out
