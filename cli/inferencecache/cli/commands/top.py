"""`inferencecache top`."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.console import Console

from inferencecache.cli.connected import over_nats
from inferencecache.cli.form import Form, console_of_answers, takes_form, write_json
from inferencecache.cli.installation import document, read_installation
from inferencecache.cli.nats import takes_nats
from inferencecache.cli.options import LONGEST_S
from inferencecache.cli.running import in_background, stop_on_signals
from inferencecache.cli.top import TopView
from inferencecache.cli.view import shown_live
from inferencecache.core.log import Log
from inferencecache.core.service import NatsSettings


@takes_nats
@takes_form()
def top(
    once: Annotated[
        bool,
        typer.Option("--once", help="Show it once and end; so do JSON, and output that is no terminal."),
    ] = False,
    interval: Annotated[
        float,
        typer.Option(min=0.2, max=LONGEST_S, help="Seconds between two looks."),
    ] = 1.0,
    *,
    output: Form,
    nats: NatsSettings,
) -> None:
    """Show partitions with their owners and lag, routers, replicas and their load, as they are now.

    Everything is what processes say of themselves over NATS. LAG is how long the first record has waited
    that an owner has not folded; PREFIXES are distinct, as owners counted them within the last seconds.

    \b
    Try:
      inferencecache top --once
      inferencecache top --json
      inferencecache top --once --interval 2
    """  # noqa: D301 - click takes \b for: keep these lines as they are
    console = console_of_answers()

    async def work(log: Log) -> int:
        view = TopView(nats.address)
        if output is Form.JSON:
            write_json(document(await read_installation(log)))
        elif once or not console.is_terminal:
            view.take(await read_installation(log), time.monotonic())
            console.print(view)
        else:
            stop = stop_on_signals()
            screen = Console(highlight=False, markup=False)
            async with shown_live(view, screen), in_background(view.follow(log, interval)):
                await stop.wait()
        return 0

    raise typer.Exit(over_nats(nats, "top", work))
