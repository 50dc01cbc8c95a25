"""`inferencecache doctor`."""

from __future__ import annotations

import asyncio
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer._click.exceptions import UsageError
from typer.core import TyperCommand

from inferencecache.cli.doctor.checks import judge
from inferencecache.cli.doctor.collecting.engines import EnginePages
from inferencecache.cli.doctor.facts import Unreachable
from inferencecache.cli.doctor.output import as_json, as_table, as_text
from inferencecache.cli.doctor.running import CannotStartError, DoctorOptions, collect, find_cluster
from inferencecache.cli.form import takes_form
from inferencecache.cli.nats import takes_nats
from inferencecache.cli.options import seconds
from inferencecache.cli.router import RouterTls, takes_router_tls
from inferencecache.core.service import NatsSettings, configure_logging


class Output(Enum):
    """Forms of a report."""

    HUMAN = "human"
    JSON = "json"
    TABLE = "table"


class DoctorCommand(TyperCommand):
    """Says `error: …` and ends with 1 where it cannot start: 2 means that something was found [OPS-73]."""

    def make_context(self, *given: Any, **more: Any) -> Any:
        try:
            return super().make_context(*given, **more)
        except UsageError as error:
            raise _refused(error.format_message()) from None

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except UsageError as error:
            raise _refused(error.format_message()) from None


@takes_nats
@takes_router_tls
@takes_form(Output, "human, json or table.")
def doctor(
    ctx: typer.Context,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            help="File with the way to the cluster; default: as kubectl, and in a pod its own account. "
            "Without any, only what needs no cluster is looked at."
        ),
    ] = None,
    context: Annotated[str, typer.Option(help="Context of the kubeconfig; default: its current one.")] = "",
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Look at objects of this namespace only.")
    ] = "",
    server_endpoint: Annotated[
        str,
        typer.Option(
            envvar="INFERENCECACHE_ROUTER",
            help="A router, as HOST[:PORT]; default: the Service of the install, without a cluster "
            "127.0.0.1:9090.",
        ),
    ] = "",
    engine: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=URL[,URL]",
            help="Metrics pages of an engine and of its sidecar, for engines outside of a cluster; may be "
            "repeated.",
        ),
    ] = None,
    nats_replicas: Annotated[
        int, typer.Option(min=1, help="Copies that every stream and bucket should have.")
    ] = 1,
    config_only: Annotated[
        bool,
        typer.Option("--config-only", help="Look at the cluster's objects alone, and connect to nothing."),
    ] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="No colours.")] = False,
    timeout: Annotated[str, typer.Option(help="Time for all of it.")] = "30s",
    *,
    output: Output,
    tls: RouterTls,
    nats: NatsSettings,
) -> None:
    """Find what is wrong with an installation, and say what to do. Nothing is changed.

    Each finding has a permanent code, which docs/doctor.md explains. The exit code is 2 where something
    failed, 1 where something is probably not meant or the doctor could not start, and else 0.

    \b
    Try:
      inferencecache doctor
      inferencecache doctor --json
      inferencecache doctor --engine engine-1=http://127.0.0.1:8001/metrics,http://127.0.0.1:8021/metrics
    """  # noqa: D301 - click takes \b for: keep these lines as they are
    options = DoctorOptions(
        nats,
        finds_nats=_is_default(ctx, "nats_url"),
        tls=tls,
        kubeconfig=kubeconfig,
        context=context,
        namespace=namespace,
        server_endpoint=server_endpoint,
        copies=nats_replicas,
        engines=tuple(map(_engine, engine or ())),
        config_only=config_only,
        timeout_s=seconds(timeout, "--timeout"),
    )
    configure_logging("text", "error")
    try:
        access = find_cluster(options)
        if access is None:
            typer.echo("there is no cluster here: only NATS, a router and engines are looked at", err=True)
        facts = asyncio.run(collect(options, access))
    except CannotStartError as error:
        raise _refused(str(error)) from None
    if facts.server is not None and isinstance(facts.server.health, Unreachable) and not facts.server.address:
        typer.echo(f"warning: {facts.server.health.reason}; name a router with --server-endpoint", err=True)
    report = judge(facts)
    match output:
        case Output.HUMAN:
            text = as_text(report, coloured=sys.stdout.isatty() and not no_color)
        case Output.JSON:
            text = as_json(report)
        case _:
            text = as_table(report)
    sys.stdout.write(text)
    raise typer.Exit(report.exit_code)


def _is_default(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "DEFAULT"


def _refused(problem: str) -> typer.Exit:
    typer.echo(f"error: {problem}", err=True)
    return typer.Exit(1)


def _engine(text: str) -> EnginePages:
    name, _, pages = text.partition("=")
    urls = pages.split(",")
    if not name or len(urls) > 2 or not all(url.startswith(("http://", "https://")) for url in urls):
        raise typer.BadParameter(f"--engine {text!r}: write NAME=URL or NAME=URL,URL of its sidecar")
    return EnginePages(name, *urls)
