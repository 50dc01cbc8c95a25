"""The form of an answer: tables for people, JSON for programs; `--json` is the short way of `-o json`."""

from __future__ import annotations

import errno
import inspect
import json
import os
import sys
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from inferencecache.cli.options import Result, takes

JSON: Final = "json"
_UNCUT: Final = 10_000


class Form(Enum):
    """What nearly every command can give."""

    TABLE = "table"
    JSON = JSON


def takes_form(
    forms: type[Enum] = Form, help: str = "Form of the answer."
) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """The command with the options `-o` and `--json` in place of its argument `output`.

    The first of `forms` is the default, one of them is JSON.
    """

    def option(name: str, kind: Any, default: Any, *flags: str, text: str) -> inspect.Parameter:
        annotation = Annotated[kind, typer.Option(*flags, help=text)]
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

    options = (
        option("output", forms, next(iter(forms)), "--output", "-o", text=help),
        option("json", bool, False, "--json", text="The same as -o json."),
    )

    def build(given: Mapping[str, Any]) -> Any:
        return forms(JSON) if given["json"] else given["output"]

    return takes("output", options, build)


def write_json(answer: object) -> None:
    """One line on standard output."""
    sys.stdout.write(json.dumps(answer) + "\n")


def console_of_answers() -> Console:
    """Standard output for tables; names in them are anybody's, so it takes no markup.

    A name that is cut is of no use: a table is as wide as it needs to be, unless COLUMNS says how wide.
    """
    return _Console(highlight=False, markup=False, width=None if "COLUMNS" in os.environ else _UNCUT)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Who reads the answers has gone: as with other output, an error that ends the command quietly."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
