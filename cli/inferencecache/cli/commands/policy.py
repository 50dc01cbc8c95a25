"""`inferencecache policy`: apply, get, delete."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from inferencecache.cli.connected import failed, over_nats
from inferencecache.cli.form import Form, console_of_answers, takes_form
from inferencecache.cli.nats import takes_nats
from inferencecache.cli.options import seconds
from inferencecache.cli.policies.files import POLICY_KINDS, UnusableFilesError, read_files
from inferencecache.cli.policies.report import (
    as_json,
    as_yaml,
    changes_as_json,
    show,
    show_changes,
)
from inferencecache.cli.policies.store import Change, PolicyError, PolicyStore, effects_of
from inferencecache.core.log import Log
from inferencecache.core.service import NatsSettings
from inferencecache.schemas.resources import AnyResource, Kind, ResourceRef, find_kind

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


@policy_app.command()
@takes_nats
@takes_form()
def apply(
    file: _Files = None,
    wait: _Wait = "0",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the files and say what would change, without writing.")
    ] = False,
    take_over: _TakeOver = False,
    *,
    output: Form,
    nats: NatsSettings,
) -> None:
    """Put objects from files in force.

    Every object is checked first, as a cluster would; if anything is wrong, nothing is written and every
    problem is named with its field. Objects that were applied before and are not in the files stay.

    A tenant's quota is about the whole index. With several partitions each has a part of it, by demand, and
    the parts together are never more; it takes some seconds until room has moved where it is needed.

    \b
    Try:
      inferencecache policy apply -f policy.yaml --wait 10s
      inferencecache policy get -o yaml > all.yaml
      inferencecache policy apply -f all.yaml --dry-run
    """  # noqa: D301 - click takes \b for: keep these lines as they are
    limit_s = seconds(wait, "--wait")
    if not file:
        raise typer.BadParameter("give at least one -f FILE")
    try:
        resources = read_files(file)
    except UnusableFilesError as error:
        raise failed("policy apply", error) from None
    if not resources:
        raise typer.BadParameter(f"there is no object in {', '.join(map(str, file))}")

    async def work(log: Log) -> int:
        store = PolicyStore(log)
        changes, revision = await store.apply(resources, take_over=take_over, dry_run=dry_run)
        return await _say(store, changes, revision, 0.0 if dry_run else limit_s, output)

    raise typer.Exit(over_nats(nats, "policy apply", work))


@policy_app.command()
@takes_nats
@takes_form(Output, "table; json: the set in force and all objects; yaml: objects to apply again.")
def get(
    kind: Annotated[str | None, typer.Argument(help="Only objects of this kind, as in cachepolicy.")] = None,
    name: Annotated[str | None, typer.Argument(help="Only this one: NAMESPACE/NAME.")] = None,
    *,
    output: Output,
    nats: NatsSettings,
) -> None:
    """Show the objects that are kept and what is in force of them.

    \b
    Try:
      inferencecache policy get
      inferencecache policy get cachepolicy team-a/lookup -o yaml
    """  # noqa: D301 - click takes \b for: keep these lines as they are
    wanted_kind = None if kind is None else _kind(kind)
    wanted = None if name is None or wanted_kind is None else _ref(wanted_kind, name)

    def is_wanted(resource: AnyResource) -> bool:
        if wanted is not None:
            return resource.ref == wanted
        return wanted_kind is None or isinstance(resource, wanted_kind.struct)

    async def work(log: Log) -> int:
        store = PolicyStore(log)
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
                show(contents, resources, routers, console_of_answers())
        return 0

    raise typer.Exit(over_nats(nats, "policy get", work))


@policy_app.command()
@takes_nats
@takes_form()
def delete(
    kind: Annotated[str | None, typer.Argument(help="Kind of the object, as in cachepolicy.")] = None,
    name: Annotated[str | None, typer.Argument(help="The object: NAMESPACE/NAME.")] = None,
    file: _Files = None,
    wait: _Wait = "0",
    take_over: _TakeOver = False,
    *,
    output: Form,
    nats: NatsSettings,
) -> None:
    """Delete an object, or those of files; tenants that it was about go back to the defaults.

    \b
    Try:
      inferencecache policy delete cachepolicy team-a/lookup
      inferencecache policy delete -f policy.yaml
    """  # noqa: D301 - click takes \b for: keep these lines as they are
    limit_s = seconds(wait, "--wait")
    if (kind is not None and name is not None) == bool(file) or (kind is None) != (name is None):
        raise typer.BadParameter("give either KIND NAMESPACE/NAME or -f FILE")
    try:
        refs = (
            [resource.ref for resource in read_files(file)] if file else [_ref(_kind(kind or ""), name or "")]
        )
    except UnusableFilesError as error:
        raise failed("policy delete", error) from None

    async def work(log: Log) -> int:
        store = PolicyStore(log)
        changes, revision = await store.delete(refs, take_over=take_over)
        return await _say(store, changes, revision, limit_s, output)

    raise typer.Exit(over_nats(nats, "policy delete", work))


async def _say(store: PolicyStore, changes: list[Change], revision: int, limit_s: float, output: Form) -> int:
    refs = {change.ref for change in changes}
    effects = [effect for effect in effects_of(await store.read()) if effect.ref in refs]
    if output is Form.JSON:
        sys.stdout.write(changes_as_json(changes, revision, effects) + "\n")
    else:
        show_changes(changes, revision, effects, console_of_answers())
    behind = await store.wait_for_routers(revision, limit_s) if limit_s > 0 else []
    for router in behind:
        typer.echo(f"router {router.id} runs revision {router.revision}, not yet {revision}", err=True)
    return 1 if behind else 0


def _kind(text: str) -> Kind:
    kind = find_kind(text)
    if kind is None or kind.only_in_cluster:
        raise typer.BadParameter(f"{text!r} is no kind; write {', '.join(POLICY_KINDS)}")
    return kind


def _ref(kind: Kind, text: str) -> ResourceRef:
    namespace, slash, name = text.partition("/")
    if not (slash and namespace and name) or "/" in name:
        raise typer.BadParameter(f"{text!r} names no object; write NAMESPACE/NAME")
    return ResourceRef(kind.name, namespace, name)
