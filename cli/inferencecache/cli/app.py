"""The commands of `inferencecache`, each in its own file under `commands`."""

from __future__ import annotations

from importlib.metadata import distribution
from typing import Annotated

import typer

from inferencecache.cli.commands.doctor import DoctorCommand, doctor
from inferencecache.cli.commands.layout import layout_app
from inferencecache.cli.commands.lookup import lookup
from inferencecache.cli.commands.policy import policy_app
from inferencecache.cli.commands.replay import replay
from inferencecache.cli.commands.tail import tail
from inferencecache.cli.commands.top import top
from inferencecache.cli.commands.up import up
from inferencecache.cli.version import version_line

app = typer.Typer(
    name="inferencecache",
    help="Cache-aware routing hints for LLM engines: run it here, ask it, look into it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _tell_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"inferencecache {version_line(distribution('inference-cache-cli'))}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_tell_version,
            is_eager=True,
            help="Show the version with its commit and exit.",
        ),
    ] = False,
) -> None:
    """What comes before a command."""


app.command()(up)
app.command()(lookup)
app.command()(tail)
app.command()(top)
app.command()(replay)
app.command(cls=DoctorCommand)(doctor)
app.add_typer(policy_app)
app.add_typer(layout_app)


def main() -> None:
    """Entry point of `inferencecache`."""
    app()
