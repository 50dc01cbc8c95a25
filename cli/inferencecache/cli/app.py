"""The commands of `inferencecache`, each in its own file under `commands`."""

from __future__ import annotations

import typer

from inferencecache.cli.commands.lookup import lookup
from inferencecache.cli.commands.policy import policy_app
from inferencecache.cli.commands.up import up

app = typer.Typer(
    name="inferencecache",
    help="Cache-aware routing hints for LLM engines: run it here, ask it, look into it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(up)
app.command()(lookup)
app.add_typer(policy_app)


def main() -> None:
    """Entry point of `inferencecache`."""
    app()
