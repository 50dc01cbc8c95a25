"""Makes the reference of the command `inferencecache` from the program."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, Final, cast

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from inferencecache.cli.app import app
from tools.docs.tables import cell, one_of, table

_VALUE: Final = "VALUE"
_INTRODUCTION: Final = """\
# The command inferencecache

`make demo` installs it into `.venv/bin`. `inferencecache COMMAND --help` says what is here. Answers are
tables for people and, with `--json`, one JSON object for scripts; what goes wrong is told on standard
error, with the setting to change. Options that are listed with a variable take it where the option is not
given.
"""


def command(*path: str) -> TyperCommand | TyperGroup:
    """The command at a path such as `layout`, `set`; the program itself for none. Raises KeyError."""
    found: Any = typer.main.get_command(app)
    for name in path:
        if not isinstance(found, TyperGroup):
            raise KeyError(name)
        found = found.commands[name]
    return cast("TyperCommand | TyperGroup", found)


def leaves(path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all commands that do something, in the program's order."""
    found = command(*path)
    if not isinstance(found, TyperGroup):
        yield path
        return
    for name in found.commands:
        yield from leaves((*path, name))


def commands_page() -> dict[str, str]:
    """One page, a part for each command."""
    lines = [_INTRODUCTION]
    for path in leaves():
        lines += _part(path)
    return {"cli.md": "\n".join([*lines, "Written by `make generate` from the program.", ""])}


def _part(path: tuple[str, ...]) -> Iterator[str]:
    found = command(*path)
    text = inspect.cleandoc(found.help or "").replace("\b\n", "")
    about, _, examples = text.partition("Try:\n")
    yield from (f"## inferencecache {' '.join(path)}", "", about.strip().replace("<", "&lt;"), "")
    if examples:
        lines = (line.strip() for line in examples.splitlines())
        yield from ("```console", *(f"$ {line}" for line in lines if line), "```", "")
    context = found.make_context(path[-1], [], resilient_parsing=True)
    parameters: list[Any] = list(found.params)
    yield from table(
        ("Option", "Default", "Meaning"),
        (
            _row(one, str(one.display_type(context)).strip("<>"))
            for one in parameters
            if not (isinstance(one, TyperOption) and one.hidden)
        ),
    )
    yield ""


def _row(one: Any, kind: str) -> tuple[str, str, str]:
    """`kind` is what its value is, or what it may be with bars between."""
    if isinstance(one, TyperArgument):
        return f"`{one.name}`", "", cell(one.help or "")
    written = " / ".join((*one.opts, *one.secondary_opts))
    variable = f"<br>`{one.envvar}`" if one.envvar else ""
    choices = kind.split("|") if "|" in kind else ()
    value = "" if one.is_flag else f" {one.metavar or _VALUE}"
    return f"`{written}{value}`{variable}", _default(one), cell(one.help or "") + one_of(choices)


def _default(option: TyperOption) -> str:
    default = option.default
    if default in (None, "", ()) or callable(default) or (default is False and not option.secondary_opts):
        return ""
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{getattr(default, 'value', default)}`"
