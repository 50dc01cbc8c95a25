"""What `--help` shows is true: every example of every command does what it says on a live system."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer.main

from inferencecache.cli.app import app
from tests.support.local_stack import START_LIMIT_S, STOP_LIMIT_S, LocalStack
from tests.support.waiting import eventually

PROGRAM = "inferencecache"
EXAMPLE_LIMIT_S = 120
LIMIT_S = 1200
POLICY_FILE = """\
apiVersion: inferencecache.io/v1alpha1
kind: CachePolicy
metadata: {name: lookup, namespace: team-a}
spec: {minimumMatchedTokens: 64}
"""


BEFORE = {"inferencecache policy delete": "inferencecache policy apply -f policy.yaml"}
"""What has to be there for an example whose like has just taken it away."""


class Example(NamedTuple):
    """A line of a command's help, as a person copies it."""

    command: str
    line: str


def leaves(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every command that does something, by its full name."""
    below = getattr(command, "commands", {})
    for each, sub in below.items():
        yield from leaves(sub, f"{name} {each}")
    if not below:
        yield name, command


COMMANDS = dict(leaves(typer.main.get_command(app), PROGRAM))
EXAMPLES = [
    Example(name, line.strip())
    for name, command in COMMANDS.items()
    for line in (command.help or "").splitlines()
    if line.strip().startswith(f"{PROGRAM} ") or line.strip() == PROGRAM
]
OF_UP = [example.line for example in EXAMPLES if example.command == f"{PROGRAM} up"]
OTHERS = [example.line for example in EXAMPLES if example.command != f"{PROGRAM} up"]


def test_every_command_shows_examples_of_itself() -> None:
    for name in COMMANDS:
        assert any(each.command == name and each.line.startswith(name) for each in EXAMPLES), name


def test_every_command_that_answers_can_answer_programs() -> None:
    for name, command in COMMANDS.items():
        assert "--json" in {option for each in command.params for option in each.opts}, name


def test_every_command_that_talks_to_nats_takes_the_same_options() -> None:
    nats: dict[str, set[str]] = {}
    for name, command in COMMANDS.items():
        options = {option for each in command.params for option in each.opts if "nats" in option}
        if options:
            nats[name] = options - {"--nats-replicas"}
    assert len(nats) > 8
    assert len({frozenset(options) for options in nats.values()}) == 1, nats


def at(stack: LocalStack, line: str) -> str:
    """The example with the addresses of this system in place of the well-known ones."""
    for name in [name for name in stack.processes if name.startswith("engine-")]:
        number = int(name.removeprefix("engine-"))
        engine = stack.option(name, "--http-bind-address")
        sidecar = stack.option(f"sidecar-{number}", "--health-address")
        line = line.replace(f"127.0.0.1:{8000 + number}/", f"{engine}/")
        line = line.replace(f"127.0.0.1:{8020 + number}/", f"{sidecar}/")
    return line


async def run(line: str, folder: Path, **variables: str) -> tuple[int, str, str]:
    """As a shell does."""
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", line),
        cwd=folder,
        env=environment(**variables),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), EXAMPLE_LIMIT_S)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


def environment(**variables: str) -> dict[str, str]:
    """Without a cluster, wherever the test runs."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KUBE")}
    return kept | {"PATH": path, "HOME": "/nonexistent"} | variables


@pytest.mark.timeout(LIMIT_S)
async def test_every_example_does_what_it_says(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "policy.yaml").write_text(POLICY_FILE)
    (folder / "prompt.txt").write_text(" ".join(map(str, range(1, 81))))
    async with LocalStack(tmp_path, "--engines=2") as stack:
        await stack.complete("engine-1", list(range(1, 82)))
        await eventually(lambda: stack.is_hinted("router-1", list(range(1, 81)), "engine-1"), within_s=30)
        addresses = {
            "INFERENCECACHE_NATS_URL": stack.option("router-1", "--nats-url"),
            "INFERENCECACHE_ROUTER": stack.option("router-1", "--grpc-bind-address"),
        }
        for line in OTHERS:
            for command, needed in BEFORE.items():
                if line.startswith(command):
                    await run(needed, folder, **addresses)
            code, out, err = await run(at(stack, line), folder, **addresses)
            assert code == 0, f"{line}\n{out}\n{err}"
            assert "Traceback" not in err, line
            assert out or ">" in line or "tail" in line, f"{line} says nothing"
            if re.search(r"--json|-o json", line):
                assert [json.loads(each) for each in documents(out)], line


def documents(out: str) -> list[str]:
    """One document a line, or one in several."""
    lines = out.splitlines()
    return lines if all(line.startswith("{") and line.endswith("}") for line in lines) else [out]


@pytest.mark.long
@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("line", OF_UP)
async def test_every_example_of_up_brings_the_system_up(line: str, tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *line.split(),
        cwd=tmp_path,
        env=environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    said: list[bytes] = []
    async with asyncio.timeout(START_LIMIT_S):
        while b"everything is up" not in b"".join(said):
            text = await process.stdout.readline()
            assert text, b"".join(said).decode()
            said.append(text)
    is_bounded = "--once" in line
    if not is_bounded:
        process.send_signal(signal.SIGINT)
    try:
        limit_s = LIMIT_S / 2 if is_bounded else STOP_LIMIT_S
        rest, _ = await asyncio.wait_for(process.communicate(), limit_s)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, (b"".join(said) + rest).decode()
