"""`inferencecache policy`: apply, get, delete."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from enum import Enum
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from inferencecache.cli.nats import takes_nats
from inferencecache.cli.policies.files import UnusableFilesError, read_files
from inferencecache.cli.policies.report import (
    as_json,
    as_yaml,
    changes_as_json,
    show,
    show_changes,
)
from inferencecache.cli.policies.store import Change, PolicyError, PolicyStore, effects_of
from inferencecache.core.log import Log, NoAnswerError, NotConnectedError, NotStoredError
from inferencecache.core.log.jetstream import ApiError
from inferencecache.core.log.subjects import InvalidIdError
from inferencecache.core.service import NatsSettings, configure_logging, duration
from inferencecache.schemas.resources import KINDS, AnyResource, Kind, ResourceRef, find_kind

CONNECT_S: Final = 5.0

policy_app = typer.Typer(
    name="policy",
    help="Policies, quotas, prompt templates and topologies without a cluster: the custom resources "
    "CachePolicy, CacheTenant, PromptTemplate and PDTopology from YAML files. Where a controller runs, the "
    "cluster's objects rule and these commands only read.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class Output(Enum):
    """Forms of an answer."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class Written(Enum):
    """Forms of the answer of a command that writes."""

    TABLE = "table"
    JSON = "json"


_Files = Annotated[
    list[Path] | None,
    typer.Option(
        "--file",
        "-f",
        help="YAML or JSON file with one or more objects, a folder of such files, or - for standard input; "
        "may be repeated.",
    ),
]
_TakeOver = Annotated[
    bool,
    typer.Option(
        "--take-over",
        help="Replace a set in force that a controller left behind; its policies and quotas go.",
    ),
]
_Wait = Annotated[
    str,
    typer.Option(
        "--wait",
        help="How long to wait until all routers run the new set, as in 10s; exit code 1 after that.",
    ),
]
_WrittenAs = Annotated[Written, typer.Option("--output", "-o", help="Form of the answer.")]


@policy_app.command()
@takes_nats
def apply(
    file: _Files = None,
    wait: _Wait = "0",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the files and say what would change, without writing.")
    ] = False,
    take_over: _TakeOver = False,
    output: _WrittenAs = Written.TABLE,
    *,
    nats: NatsSettings,
) -> None:
    """Put objects from files in force.

    Every object is checked first, as a cluster would; if anything is wrong, nothing is written and every
    problem is named with its field. Objects that were applied before and are not in the files stay.

    Try:

        inferencecache policy apply -f policy.yaml --wait 10s

        inferencecache policy get -o yaml > all.yaml, edit, then inferencecache policy apply -f all.yaml
    """
    limit_s = _seconds(wait)
    if not file:
        raise typer.BadParameter("give at least one -f FILE")
    try:
        resources = read_files(file)
    except UnusableFilesError as error:
        raise _failed(error, "apply") from None
    if not resources:
        raise typer.BadParameter(f"there is no object in {', '.join(map(str, file))}")

    async def work(store: PolicyStore) -> int:
        changes, revision = await store.apply(resources, take_over=take_over, dry_run=dry_run)
        return await _say(store, changes, revision, 0.0 if dry_run else limit_s, output)

    raise typer.Exit(_run(nats, "apply", work))


@policy_app.command()
@takes_nats
def get(
    kind: Annotated[str | None, typer.Argument(help="Only objects of this kind, as in cachepolicy.")] = None,
    name: Annotated[str | None, typer.Argument(help="Only this one: NAMESPACE/NAME.")] = None,
    output: Annotated[
        Output,
        typer.Option(
            "--output",
            "-o",
            help="table; json: the set in force and all objects; yaml: objects to apply again.",
        ),
    ] = Output.TABLE,
    *,
    nats: NatsSettings,
) -> None:
    """Show the objects that are kept and what is in force of them.

    Try:

        inferencecache policy get

        inferencecache policy get cachepolicy team-a/lookup -o yaml
    """
    wanted_kind = None if kind is None else _kind(kind)
    wanted = None if name is None or wanted_kind is None else _ref(wanted_kind, name)

    def is_wanted(resource: AnyResource) -> bool:
        if wanted is not None:
            return resource.ref == wanted
        return wanted_kind is None or isinstance(resource, wanted_kind.struct)

    async def work(store: PolicyStore) -> int:
        contents, routers = await store.read(), await store.routers()
        resources = [resource for resource in contents.resources if is_wanted(resource)]
        if wanted is not None and not resources:
            raise PolicyError(f"no {wanted} is kept here")
        match output:
            case Output.JSON:
                sys.stdout.write(as_json(contents, resources, routers) + "\n")
            case Output.YAML:
                sys.stdout.write(as_yaml(resources) if resources else "")
            case Output.TABLE:
                show(contents, resources, routers, _console())
        return 0

    raise typer.Exit(_run(nats, "get", work))


@policy_app.command()
@takes_nats
def delete(
    kind: Annotated[str | None, typer.Argument(help="Kind of the object, as in cachepolicy.")] = None,
    name: Annotated[str | None, typer.Argument(help="The object: NAMESPACE/NAME.")] = None,
    file: _Files = None,
    wait: _Wait = "0",
    take_over: _TakeOver = False,
    output: _WrittenAs = Written.TABLE,
    *,
    nats: NatsSettings,
) -> None:
    """Delete an object, or those of files; tenants that it was about go back to the defaults.

    Try:

        inferencecache policy delete cachepolicy team-a/lookup

        inferencecache policy delete -f policy.yaml
    """
    limit_s = _seconds(wait)
    if (kind is not None and name is not None) == bool(file) or (kind is None) != (name is None):
        raise typer.BadParameter("give either KIND NAMESPACE/NAME or -f FILE")
    try:
        refs = (
            [resource.ref for resource in read_files(file)] if file else [_ref(_kind(kind or ""), name or "")]
        )
    except UnusableFilesError as error:
        raise _failed(error, "delete") from None

    async def work(store: PolicyStore) -> int:
        changes, revision = await store.delete(refs, take_over=take_over)
        return await _say(store, changes, revision, limit_s, output)

    raise typer.Exit(_run(nats, "delete", work))


async def _say(
    store: PolicyStore, changes: list[Change], revision: int, limit_s: float, output: Written
) -> int:
    refs = {change.ref for change in changes}
    effects = [effect for effect in effects_of(await store.read()) if effect.ref in refs]
    if output is Written.JSON:
        sys.stdout.write(changes_as_json(changes, revision, effects) + "\n")
    else:
        show_changes(changes, revision, effects, _console())
    behind = await store.wait_for_routers(revision, limit_s) if limit_s > 0 else []
    for router in behind:
        typer.echo(f"router {router.id} runs revision {router.revision}, not yet {revision}", err=True)
    return 1 if behind else 0


def _run(nats: NatsSettings, command: str, work: Callable[[PolicyStore], Awaitable[int]]) -> int:
    async def connected() -> int:
        log = await Log.connect(nats, name=f"inferencecache policy {command}", timeout_s=CONNECT_S)
        try:
            return await work(PolicyStore(log))
        finally:
            await log.close()

    configure_logging("text", "error")
    try:
        return asyncio.run(connected())
    except (
        ApiError,
        InvalidIdError,
        NoAnswerError,
        NotConnectedError,
        NotStoredError,
        PolicyError,
    ) as error:
        raise _failed(error, command) from None


def _failed(error: Exception, command: str) -> typer.Exit:
    for line in str(error).splitlines():
        typer.echo(f"inferencecache policy {command}: {line}", err=True)
    return typer.Exit(1)


def _kind(text: str) -> Kind:
    kind = find_kind(text)
    if kind is None:
        raise typer.BadParameter(f"{text!r} is no kind; write {', '.join(KINDS)}")
    return kind


def _ref(kind: Kind, text: str) -> ResourceRef:
    namespace, slash, name = text.partition("/")
    if not (slash and namespace and name) or "/" in name:
        raise typer.BadParameter(f"{text!r} names no object; write NAMESPACE/NAME")
    return ResourceRef(kind.name, namespace, name)


def _seconds(text: str) -> float:
    try:
        return duration(text)
    except ValueError as error:
        raise typer.BadParameter(f"--wait: {error}") from None


def _console() -> Console:
    return Console(highlight=False, markup=False)
