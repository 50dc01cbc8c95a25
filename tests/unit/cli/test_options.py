"""Options that commands share, and what a shell completes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.core import TyperOption
from typer.testing import CliRunner

from inferencecache.cli.app import app
from inferencecache.cli.form import Form, takes_form
from inferencecache.cli.router import RouterSettings, RouterTls, takes_router
from tools.docs.commands import command, leaves


class Asked:
    """A command line with one command, and what it was called with."""

    def __init__(self) -> None:
        self.app = typer.Typer()
        self.output: Form | None = None
        self.router: RouterSettings | None = None

        @self.app.command()
        @takes_router
        @takes_form()
        def ask(*, output: Form, router: RouterSettings) -> None:
            self.output, self.router = output, router

    def run(self, *arguments: str, **environment: str) -> tuple[int, str]:
        result = CliRunner().invoke(self.app, list(arguments), env=environment)
        return result.exit_code, result.output


def test_json_is_the_short_way_of_that_form() -> None:
    asked = Asked()
    for arguments, form in ((), Form.TABLE), (("--json",), Form.JSON), (("-o", "json"), Form.JSON):
        assert asked.run(*arguments)[0] == 0
        assert asked.output is form


def test_a_router_is_asked_in_plaintext_unless_something_says_tls(tmp_path: Path) -> None:
    asked = Asked()
    (tmp_path / "ca.pem").write_bytes(b"pem")
    for arguments, tls in (
        ((), RouterTls()),
        (("--router-tls",), RouterTls(is_on=True)),
        (("--router-tls-ca-file", str(tmp_path / "ca.pem")), RouterTls(True, b"pem")),
        (("--router-tls-server-name", "host"), RouterTls(True, None, "host")),
    ):
        assert asked.run(*arguments)[0] == 0
        assert asked.router == RouterSettings("127.0.0.1:9090", tls)
    assert asked.run(INFERENCECACHE_ROUTER="other:1")[0] == 0
    assert asked.router == RouterSettings("other:1")


def test_a_file_of_authorities_that_cannot_be_read_is_named() -> None:
    code, output = Asked().run("--router-tls-ca-file", "/nonexistent.pem")
    assert (code, "/nonexistent.pem" in output) == (2, True)


NUMBERS = [
    (*path, option.opts[0])
    for path in leaves()
    for option in command(*path).params
    if isinstance(option, TyperOption) and option.type_descriptor.annotation is float
]


def test_there_are_options_that_are_numbers() -> None:
    assert {("lookup", "--timeout"), ("top", "--interval")} <= set(NUMBERS)


@pytest.mark.parametrize("typed", NUMBERS, ids=" ".join)
@pytest.mark.parametrize("value", ["inf", "nan", "-inf", "1e12"])
def test_what_is_no_number_or_takes_for_ever_is_refused(typed: tuple[str, ...], value: str) -> None:
    ran = CliRunner().invoke(app, [*typed, value], env={"COLUMNS": "160"})
    assert ran.exit_code == 2, ran.output
    assert f"Invalid value for '{typed[-1]}': Input should be" in ran.output


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("lookup", "--tokens", "1..80", "--router", "127.0.0.1:1"),
        ("lookup", "--tokens", "1..80", "--explain", "--nats-url", "nats://127.0.0.1:1"),
        ("doctor", "--server-endpoint", "127.0.0.1:1", "--nats-url", "nats://127.0.0.1:1", "--timeout", "2s"),
        ("replay", "--help"),
        ("tail", "--help"),
    ],
    ids=lambda arguments: " ".join(arguments[:1] + arguments[3:4]),
)
def test_only_what_reads_records_loads_compiled_kernels(arguments: tuple[str, ...]) -> None:
    code = (
        "import sys\n"
        "from inferencecache.cli.app import app\n"
        "try: app()\n"
        "finally: print('loaded', *sorted({'numba', 'llvmlite', 'typer'} & sys.modules.keys()))"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "KUBECONFIG": "/nonexistent"}
    ran = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.stdout.splitlines()[-1] == "loaded typer", ran.stderr


@pytest.mark.parametrize(
    ("typed", "expected"), [("doc", "doctor"), ("layout pr", "prune"), ("tail --ki", "--kind")]
)
def test_a_shell_completes_commands_and_options(typed: str, expected: str) -> None:
    variables = {"_INFERENCECACHE_COMPLETE": "complete_bash", "COMP_WORDS": f"inferencecache {typed}"}
    done = subprocess.run(
        [str(Path(sys.executable).with_name("inferencecache"))],
        env=os.environ | variables | {"COMP_CWORD": str(len(typed.split()))},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert expected in done.stdout.split()
