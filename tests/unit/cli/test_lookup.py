"""`inferencecache lookup` says what is wrong with what it was given."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from inferencecache.cli.app import app

NOBODY = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "exactly one form"),
        (["--tokens", "1", "--text", "x"], "exactly one form"),
        (["--tokens", "one"], "whole numbers"),
        (["--tokens", "1..x"], "whole numbers"),
        (["--tokens", "-1"], "from 0 to"),
        (["--tokens", "9..3"], "from 0 to"),
        (["--tokens", "@missing-file"], "cannot read"),
        (["--hashes", "xyz"], "not hexadecimal"),
    ],
)
def test_a_prompt_that_cannot_be_read_is_refused(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["lookup", *arguments])
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


def test_a_router_that_does_not_answer_is_named_with_the_setting(tmp_path: Path) -> None:
    prompt = tmp_path / "prompt"
    prompt.write_text("1, 2\n3 4..90\n")
    result = CliRunner().invoke(app, ["lookup", "--tokens", f"@{prompt}", "--router", NOBODY])
    assert result.exit_code == 1
    assert NOBODY in result.output
    assert "--router" in result.output
