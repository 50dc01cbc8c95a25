"""`inferencecache layout`: show, set, prune."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console

from inferencecache.cli.connected import over_nats
from inferencecache.cli.form import Form, console_of_answers, takes_form, write_json
from inferencecache.cli.layouts.options import MOST_PARTITIONS, InvalidOptionError, lanes
from inferencecache.cli.layouts.report import (
    change_document,
    document,
    headline,
    pruned_document,
    routers_line,
    show,
)
from inferencecache.cli.layouts.store import LayoutStore, State
from inferencecache.cli.nats import takes_nats
from inferencecache.cli.options import seconds
from inferencecache.core.log import Log
from inferencecache.core.protocol.layouts import (
    UnchangedLayoutError,
)
from inferencecache.core.service import NatsSettings

layout_app = typer.Typer(
    name="layout",
    help="How the log is cut into partitions, and which models are spread over several (lanes). It changes "
    "while everything runs: a new generation is built beside the old one, and lookups move to it when it "
    "can answer them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@layout_app.command(name="show")
@takes_nats
@takes_form()
def show_layout(*, output: Form, nats: NatsSettings) -> None:
    """Show the generations that exist, who owns their partitions, and which routers answer by them.

    ENTRIES are distinct prefixes, as the partition's owner counted them within the last seconds.

    \b
    Try:
      inferencecache layout show
      inferencecache layout show --json
    """  # noqa: D301 - click takes \b for: keep these lines as they are

    async def work(log: Log) -> int:
        store = LayoutStore(log)
        state = await store.read()
        if output is Form.JSON:
            write_json(document(state))
        else:
            show(state, console_of_answers())
        return 0

    raise typer.Exit(over_nats(nats, "layout show", work))


@layout_app.command(name="set")
@takes_nats
@takes_form()
def set_layout(
    partitions: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_PARTITIONS, help="Partitions of the new generation; default: as now."),
    ] = None,
    lanes_of: Annotated[
        list[str] | None,
        typer.Option(
            "--lanes",
            metavar="TENANT/MODEL=N",
            help="Spread the replicas of a model over N partitions; may be repeated. Models that are not "
            "named stay as they are; 1 is the default.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check and say what would be written, without writing.")
    ] = False,
    wait: Annotated[
        str,
        typer.Option(
            "--wait",
            help="How long to wait until all routers answer by the new generation, as in 60s; exit code 1 "
            "after that.",
        ),
    ] = "0",
    *,
    output: Form,
    nats: NatsSettings,
) -> None:
    """Put a new generation of the layout in force.

    Indexers create its streams, sidecars tell there anew what their engines hold, and routers answer by
    the old generation until the new one is as good, or for 30 s more after it could answer. Reports over
    gRPC are not carried over: they count again as producers report again. The old generation stays until
    'inferencecache layout prune'; until then indexers hold both.

    \b
    Try:
      inferencecache layout set --partitions 4 --wait 60s
      inferencecache layout set --lanes team-a/org/model=3 --dry-run
    """  # noqa: D301 - click takes \b for: keep these lines as they are
    limit_s = seconds(wait, "--wait")
    if partitions is None and not lanes_of:
        raise typer.BadParameter("say what is to change: --partitions N, --lanes TENANT/MODEL=N, or both")
    try:
        wanted = [lanes(text) for text in lanes_of or ()]
    except InvalidOptionError as error:
        raise typer.BadParameter(str(error)) from None

    async def work(log: Log) -> int:
        store = LayoutStore(log)
        try:
            new = await store.put_in_force(partitions, wanted, dry_run=dry_run)
        except UnchangedLayoutError as error:
            new, is_written = (await store.read()).layout, False
            done = f"unchanged: {error}"
        else:
            is_written = not dry_run
            done = f"{'would be set' if dry_run else 'set'}: {headline(new)}"
        if output is Form.TABLE:
            typer.echo(done)
        state: State | None = None
        if limit_s > 0 and not dry_run:
            with _progress() as report:
                state = await store.wait_for_routers(limit_s, report)
        if output is Form.JSON:
            write_json(change_document(new, written=is_written, state=state))
        elif state is not None:
            typer.echo(routers_line(state))
        if state is None or state.is_followed:
            return 0
        in_force = state.layout.generation
        for router in state.behind:
            typer.echo(
                f"router {router.id} answers by generation {router.generation}, not yet {in_force}", err=True
            )
        if not state.routers:
            typer.echo(f"no router is running that could answer by generation {in_force}", err=True)
        return 1

    raise typer.Exit(over_nats(nats, "layout set", work))


@layout_app.command(name="prune")
@takes_nats
@takes_form()
def prune_layout(
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Remove them although a router may need them: it answers by what it has, which ages.",
        ),
    ] = False,
    *,
    output: Form,
    nats: NatsSettings,
) -> None:
    """Remove the older generations: their streams, references, counts and snapshots, for good.

    Refused while a router does not answer by the generation in force. A prune that was interrupted is
    completed by the next one.

    \b
    Try:
      inferencecache layout prune
    """  # noqa: D301 - click takes \b for: keep these lines as they are

    async def work(log: Log) -> int:
        store = LayoutStore(log)
        pruned = await store.prune(force=force)
        if output is Form.JSON:
            write_json(pruned_document(pruned))
        elif not pruned.generations:
            typer.echo("there is no older generation")
        else:
            numbers = ", ".join(map(str, pruned.generations))
            typer.echo(
                f"removed generation {numbers}: {pruned.streams} streams and {pruned.objects} snapshots"
            )
        return 0

    raise typer.Exit(over_nats(nats, "layout prune", work))


@contextmanager
def _progress() -> Iterator[Callable[[State], None]]:
    """A line that says how far routers are, on a terminal; nothing elsewhere."""
    console = Console(stderr=True, highlight=False, markup=False)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status("waiting for routers") as status:
        yield lambda state: status.update(routers_line(state))
