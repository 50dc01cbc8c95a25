"""`inferencecache tail`."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING, Annotated, Final, get_args

import msgspec
import typer

from inferencecache.cli.connected import over_nats
from inferencecache.cli.form import Form, console_of_answers, takes_form
from inferencecache.cli.nats import takes_nats
from inferencecache.cli.options import seconds
from inferencecache.cli.running import finished_before, stop_on_signals
from inferencecache.core.log import Log
from inferencecache.core.service import NatsSettings
from inferencecache.schemas.records import AnyRecord

if TYPE_CHECKING:
    from inferencecache.core.replay import Told

_NAMES: Final[dict[str, str]] = {kind.__name__.lower(): kind.__name__ for kind in get_args(AnyRecord)}


@takes_nats
@takes_form()
def tail(
    tenant: Annotated[str | None, typer.Option(help="Only records about this tenant.")] = None,
    model: Annotated[str | None, typer.Option(help="Only records about this model.")] = None,
    replica: Annotated[str | None, typer.Option(help="Only records about this replica.")] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND",
            help=f"Only records of this kind; may be repeated: {', '.join(sorted(_NAMES))}.",
        ),
    ] = None,
    control: Annotated[
        bool,
        typer.Option("--control", help="Also what owners, routers and the controller say of partitions."),
    ] = False,
    count: Annotated[int, typer.Option(min=0, help="End after so many records; 0: never.")] = 0,
    within: Annotated[str, typer.Option("--for", help="End after this time, as in 10s; 0: never.")] = "0",
    *,
    output: Form,
    nats: NatsSettings,
) -> None:
    """Show the records of the log as they come: what engines stored and evicted, and what else happens.

    A line is partition:sequence, time, replica, record. Prompts are not in the log, only hashes of their
    blocks. What came before is shown by 'inferencecache replay --events'.

    \b
    Try:
      inferencecache tail --for 5s
      inferencecache tail --tenant demo --kind stored --kind evicted --for 5s
      inferencecache tail --control --count 3 --json
    """  # noqa: D301 - click takes \b for: keep these lines as they are
    # What reads records loads compiled kernels, which takes seconds; no other command should wait for them.
    from inferencecache.cli.replaying.report import event_line  # noqa: PLC0415
    from inferencecache.cli.tailing import Wanted, follow  # noqa: PLC0415
    from inferencecache.core.replay import Filter  # noqa: PLC0415

    limit_s = seconds(within, "--for")
    kinds = [_kind(each) for each in kind or ()]
    wanted = Wanted(Filter(tenant, model, replica), kinds, control=control)
    console = console_of_answers()
    shown = 0

    def show(record: Told) -> bool:
        nonlocal shown
        shown += 1
        if output is Form.JSON:
            sys.stdout.write(msgspec.json.encode(record).decode() + "\n")
            sys.stdout.flush()
        else:
            console.print(event_line(record), soft_wrap=True)
        return shown != count

    async def work(log: Log) -> int:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s or None):
                await finished_before(stop_on_signals(), follow(log, wanted, show))
        return 0

    raise typer.Exit(over_nats(nats, "tail", work))


def _kind(text: str) -> str:
    if text.lower() not in _NAMES:
        raise typer.BadParameter(f"--kind: {text!r} is none of {', '.join(sorted(_NAMES))}")
    return _NAMES[text.lower()]
