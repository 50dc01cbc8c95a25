"""The story of a lost hint in the docs happens as it is told."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.integration.cli.test_examples import LIMIT_S, at, run
from tests.support.local_stack import LocalStack
from tests.support.waiting import eventually

STORY = Path(__file__).parents[3] / "docs" / "lost-hint.md"
EVICTING = 62
"""The number of the record in the story; another run has another."""
PROMPT = list(range(1, 81))


class Step(NamedTuple):
    """What is typed, and lines of what is then shown."""

    command: str
    shown: tuple[str, ...]


def steps() -> list[Step]:
    """In the order of the story."""
    told = []
    for block in re.findall(r"```console\n(.*?)```", STORY.read_text(), re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = part.splitlines()
            told.append(Step(command, tuple(line for line in shown if line)))
    return told


def worded(text: str) -> str:
    """Without what differs between runs: numbers, times, ids, and how wide columns are."""
    text = re.sub(r"\b[0-9a-f]{12,16}\b|\d[\d.:TZ-]*", "#", text)
    return " ".join(text.split())


def numbered(command: str, evicting: int) -> str:
    """The command with the numbers of this run's records."""

    def shifted(told: re.Match[str]) -> str:
        return f"{told[1]} {int(told[2]) - EVICTING + evicting}"

    return re.sub(r"(--since|--until) (\d+)", shifted, command)


def test_the_story_has_a_doctor_a_history_and_a_record() -> None:
    commands = [step.command for step in steps()]
    for command in ("doctor", "replay --why", "replay --events", "replay --explain", "replay --export"):
        assert any(each.startswith(f"inferencecache {command}") for each in commands), command


@pytest.mark.timeout(LIMIT_S)
async def test_the_story_happens_as_it_is_told(tmp_path: Path) -> None:
    for program in ("curl", "seq"):
        assert shutil.which(program), f"the story is told with {program}"
    number = EVICTING
    async with LocalStack(tmp_path, "--engines=2") as stack:
        addresses = {
            "INFERENCECACHE_NATS_URL": stack.option("router-1", "--nats-url"),
            "INFERENCECACHE_ROUTER": stack.option("router-1", "--grpc-bind-address"),
        }
        helper, *told = steps()
        for step in told:
            line = step.command
            if "--until" in line:
                line = line.replace(f" {EVICTING}", f" {number}").replace(
                    f" {EVICTING - 1}", f" {number - 1}"
                )
            code, out, err = await run(at(stack, f"{helper.command}\n{line}"), tmp_path, **addresses)
            assert code == 0, f"{line}\n{out}\n{err}"
            for shown in step.shown:
                assert worded(shown) in worded(out), f"{line}\n{shown}\n{out}"
            if evicted := re.search(r"^(\d+) .*evicted by the engine", out, re.MULTILINE):
                number = int(evicted[1])
            if line == "ask 1 81":
                await eventually(lambda: stack.is_hinted("router-1", PROMPT, "engine-1"), within_s=30)
            if line.startswith("for first"):
                await eventually(lambda: is_lost(stack), within_s=30)


async def is_lost(stack: LocalStack) -> bool:
    """Whether the router knows the prefix no more."""
    return not await stack.is_hinted("router-1", PROMPT, "engine-1")
