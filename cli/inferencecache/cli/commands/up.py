"""`inferencecache up`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from inferencecache.cli.local import UpOptions
from inferencecache.cli.local import up as run_up


def up(
    state_dir: Annotated[
        Path | None,
        typer.Option(help="Keep JetStream's store and the logs here; default: a temporary folder."),
    ] = None,
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            help="A bounded run; exit code 0 only if hints raise the cached share by ten points or more.",
        ),
    ] = False,
    json: Annotated[
        bool,
        typer.Option("--json", help="Print the final figures as one JSON object; progress goes to stderr."),
    ] = False,
    load: Annotated[
        bool, typer.Option("--load/--no-load", help="Drive load, with a control group beside it.")
    ] = True,
    restart: Annotated[
        bool,
        typer.Option(
            "--restart/--no-restart",
            help="Start a process again when it dies; otherwise only print how to.",
        ),
    ] = True,
    indexers: Annotated[
        int, typer.Option(min=1, max=8, help="Indexers: each owns a part of the index, others stand by.")
    ] = 2,
    engines: Annotated[int, typer.Option(min=1, max=32, help="Simulated engines, each with a sidecar.")] = 4,
    users: Annotated[int, typer.Option(min=1, help="Conversations at the same time.")] = 24,
    turns: Annotated[int, typer.Option(min=1, help="Turns of all users together, with --once.")] = 600,
    seed: Annotated[int, typer.Option(help="What is said follows from it.")] = 1,
    free_ports: Annotated[
        bool, typer.Option("--free-ports", help="Use any free ports instead of the well-known ones.")
    ] = False,
    break_events: Annotated[bool, typer.Option("--break-events", hidden=True)] = False,
) -> None:
    """Run the whole system on this machine and show what hints are worth.

    Starts a nats-server, two indexers, two routers, simulated engines with sidecars, and as many engines
    without hints as a control group. Users hold conversations; each turn goes both to the engine that a
    router names and, round robin, to the control group. Ctrl-C stops everything.

    \b
    Try:
      inferencecache up
      inferencecache up --once --json
      inferencecache up --no-load --state-dir ./state
    """  # noqa: D301 - click takes \b for: keep these lines as they are
    raise typer.Exit(
        run_up(
            UpOptions(
                state_dir=state_dir,
                once=once,
                json=json,
                load=load,
                restart=restart,
                indexers=indexers,
                engines=engines,
                users=users,
                turns=turns,
                seed=seed,
                well_known_ports=not free_ports,
                break_events=break_events,
            )
        )
    )
