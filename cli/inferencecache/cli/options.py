"""Options that several commands share, declared once: a command names one argument and gets what they say.

The one grammar of the command line is made of these groups: `takes_nats`, `takes_router`, `takes_form`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, TypeVar

import typer

from inferencecache.core.service import duration

_VARIABLE: Final = "INFERENCECACHE_"
LONGEST_S: Final = 86_400.0
"""The longest time that an option in seconds says; gRPC takes much longer ones for times that are over."""

Result = TypeVar("Result")


def option(flag: str, default: Any, help: str = "", *short: str, kind: Any = None) -> inspect.Parameter:
    """One option by its flag. `INFERENCECACHE_<FLAG>` is its variable; without help it is not listed."""
    name = flag.removeprefix("--").replace("-", "_")
    shown = default not in ("", False)
    declared = typer.Option(
        flag, *short, envvar=_VARIABLE + name.upper(), help=help, hidden=not help, show_default=shown
    )
    annotation: Any = Annotated[kind or type(default), declared]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def takes(
    argument: str, options: Sequence[inspect.Parameter], build: Callable[[Mapping[str, Any]], Any]
) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """A decorator: the command has `options` in place of `argument`, which is what `build` makes of them."""

    def decorate(command: Callable[..., Result]) -> Callable[..., Result]:
        signature = inspect.signature(command, eval_str=True)
        own = [parameter for name, parameter in signature.parameters.items() if name != argument]

        @functools.wraps(command)
        def with_options(**arguments: Any) -> Result:
            given = {each.name: arguments.pop(each.name) for each in options}
            return command(**arguments, **{argument: build(given)})

        with_options.__signature__ = signature.replace(  # type: ignore[attr-defined] # what inspect reads
            parameters=[*own, *options]
        )
        return with_options

    return decorate


def seconds(text: str, flag: str) -> float:
    """The time that an option says, as in 10s. Raises typer.BadParameter."""
    try:
        limit_s = duration(text)
    except ValueError as error:
        raise typer.BadParameter(f"{flag}: {error}") from None
    if limit_s < 0:
        raise typer.BadParameter(f"{flag}: {text} is below 0")
    return limit_s
