"""Every command that a page shows is one that the program takes."""

from __future__ import annotations

import io
import re
import shlex
from contextlib import redirect_stderr
from functools import cache
from itertools import pairwise

import pytest
import typer
import yaml

from tests.docs.reading import ROOT, Shown, commands
from tools.docs.commands import command
from tools.docs.settings import parsers

FOREIGN = {
    *("cat", "curl", "export", "for", "git", "grpcurl", "kill", "nats", "nats-server", "openssl", "pip"),
    *("promtool", "python"),
}
"""Programs of others and words of the shell, whose grammar is not ours to check."""
KUBECTL_FLAGS = {
    *("-A", "-f", "-k", "-l", "-o", "--filename", "--for", "--namespace", "--output", "--replicas"),
    "--timeout",
}
"""Those of kubectl that pages use."""
SHOWN = commands()
_OPERATORS = ("|", ">", "&&", ";", "&")


def words(line: str) -> list[str]:
    """A command without what a shell does with its output."""
    split = shlex.split(line)
    ends = [split.index(operator) for operator in _OPERATORS if operator in split]
    return split[: min(ends, default=len(split))]


@cache
def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z%-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@cache
def objects() -> set[str]:
    """What stands as a name in our manifests."""
    manifests = (path.read_text() for path in (ROOT / "deploy").rglob("*.yaml"))
    return {name for text in manifests for name in re.findall(r"inference-cache[\w-]*", text)}


@cache
def functions() -> set[str]:
    """Those that pages have readers define."""
    defined = (re.match(r"(\w+)\(\)", shown.line) for shown in SHOWN)
    return {name for match in defined if match for name in (match[1], match[0])}


def takes(shown: Shown) -> None:
    """Raise when the program refuses the command as it stands."""
    program, *arguments = [word for word in words(shown.line) if not re.match(r"[A-Z_]+=", word)]
    program = program.removeprefix(".venv/bin/")
    if program == "inferencecache":
        inferencecache(arguments)
    elif program in parsers():
        settings(program, arguments)
    elif program == "make":
        for target in arguments:
            assert target in make_targets() or "%" + target[target.rfind("-") :] in make_targets(), target
    elif program == "kubectl":
        for flag, path in pairwise(arguments):
            if flag in ("-k", "-f"):
                assert (ROOT / path).exists(), path
        for word in arguments:
            for name in re.findall(r"(?<![\w./-])inference-cache[\w-]*|(?<=/)inference-cache[\w-]*$", word):
                assert name in objects(), name
            assert not word.startswith("-") or word.partition("=")[0] in KUBECTL_FLAGS, word
    elif program == "docker":
        compose(arguments)
    else:
        assert program in FOREIGN | functions(), f"{program} is not known"


def inferencecache(arguments: list[str]) -> None:
    path: list[str] = []
    while hasattr(command(*path), "commands"):
        path.append(arguments[len(path)])
    command(*path).make_context(" ".join(path), arguments[len(path) :])


def settings(program: str, arguments: list[str]) -> None:
    said = io.StringIO()
    with redirect_stderr(said):
        try:
            parsers()[program].parse_args(arguments)
        except SystemExit:
            # A file of credentials that is only named here is not there.
            assert "cannot be read" in said.getvalue(), said.getvalue()


def compose(arguments: list[str]) -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())["services"]
    assert arguments[0] == "compose"
    match arguments[3:] if arguments[1] == "--profile" else arguments[1:]:
        case ["run", "--rm", service, *rest]:
            assert service in services
            if service == "cli":
                inferencecache(rest)
        case [("up" | "down" | "ps" | "logs" | "kill" | "stop" | "start"), *rest]:
            named = {word for word in rest if not word.startswith("-")}
            assert named <= set(services)
        case other:
            raise AssertionError(other)


def test_pages_show_commands() -> None:
    assert len(SHOWN) > 100
    assert {shown.page for shown in SHOWN} >= {"README.md", "docs/start/demo.md", "docs/tasks/tune.md"}


@pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: f"{shown.page}: {shown.line[:60]}")
def test_the_program_takes_the_command(shown: Shown) -> None:
    takes(shown)


@pytest.mark.parametrize(
    "line",
    [
        "inferencecache lookup --nonsense",
        "inferencecache nonsense",
        "inferencecache layout set --partitions many",
        "inferencecache-router --nonsense=1",
        "make nonsense",
        "kubectl apply -k deploy/nonsense",
        "kubectl get pods --nonsense",
        "kubectl --namespace inference-cache-nonsense get pods",
        "kubectl rollout status deployment/inference-cache-nonsense",
        "docker compose run --rm nonsense",
        "nonsense",
    ],
)
def test_a_command_that_the_program_refuses_is_found(line: str) -> None:
    with pytest.raises((AssertionError, KeyError, typer.Exit, Exception)):
        takes(Shown("", line))
