"""What is in force, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from inferencecache.cli.policies.store import (
    Change,
    Contents,
    RouterStanding,
    documents_of,
    effects_of,
)
from inferencecache.core.policy import Effect
from inferencecache.schemas.resources import AnyResource, ResourceRef


def as_yaml(resources: Sequence[AnyResource]) -> str:
    """Documents that `apply` takes."""
    return yaml.safe_dump_all(documents_of(resources), sort_keys=False, allow_unicode=True)


def as_json(contents: Contents, resources: Sequence[AnyResource], routers: Sequence[RouterStanding]) -> str:
    """One object: the set in force with its revision, who runs it, and the resources with their effects."""
    refs = {resource.ref for resource in resources}
    document = {
        "revision": contents.set_entry.revision if contents.set_entry else 0,
        "set": json.loads(contents.set_entry.value) if contents.set_entry else None,
        "routers": [router._asdict() for router in routers],
        "resources": documents_of(resources),
        "effects": [_effect(effect) for effect in effects_of(contents) if effect.ref in refs],
        "unreadable": [ref._asdict() | {"problem": un.problem} for ref, un in contents.unreadable.items()],
    }
    return json.dumps(document)


def changes_as_json(changes: Sequence[Change], revision: int, effects: Sequence[Effect]) -> str:
    """What a writing command did."""
    done = [change.ref._asdict() | {"change": change.change} for change in changes]
    return json.dumps({"revision": revision, "resources": done, "effects": [_effect(e) for e in effects]})


def show(
    contents: Contents,
    resources: Sequence[AnyResource],
    routers: Sequence[RouterStanding],
    console: Console,
) -> None:
    """The same for people."""
    console.print(_headline(contents, routers), soft_wrap=True)
    if not resources:
        console.print(
            "no objects are kept here; 'inferencecache policy apply -f FILE' adds some", soft_wrap=True
        )
    else:
        refs = {resource.ref for resource in resources}
        table = Table(box=None, pad_edge=False)
        for heading in ("KIND", "NAMESPACE", "NAME", "EFFECT"):
            table.add_column(heading, overflow="fold")
        shown = [effect for effect in effects_of(contents) if effect.ref in refs]
        for effect in shown:
            table.add_row(effect.ref.kind, effect.ref.namespace, effect.ref.name, effect.text)
        console.print(table)
        show_warnings(shown, console)
    for ref, unreadable in contents.unreadable.items():
        problem = f"cannot be read and has no effect: {unreadable.problem}; apply it anew or delete it"
        console.print(f"warning: {ref} {problem}", style="yellow", soft_wrap=True)


def show_changes(
    changes: Sequence[Change], revision: int, effects: Sequence[Effect], console: Console
) -> None:
    """One line an object, and the revision that routers will report."""
    texts: dict[ResourceRef, str] = {effect.ref: effect.text for effect in effects}
    for change in changes:
        text = texts.get(change.ref, "")
        console.print(f"{change.ref}: {change.change}{f' ({text})' if text else ''}", soft_wrap=True)
    show_warnings(effects, console)
    console.print(f"policy set: revision {revision}" if revision else "policy set: none yet")


def show_warnings(effects: Sequence[Effect], console: Console) -> None:
    """What is probably not meant."""
    for effect in effects:
        if effect.warning:
            console.print(f"warning: {effect.ref}: {effect.warning}", style="yellow", soft_wrap=True)


def _effect(effect: Effect) -> dict[str, Any]:
    return effect.ref._asdict() | {
        "inForce": effect.in_force,
        "text": effect.text,
        "warning": effect.warning,
    }


def _headline(contents: Contents, routers: Sequence[RouterStanding]) -> str:
    entry = contents.set_entry
    if entry is None:
        return "policy set: none yet, all tenants have the defaults"
    document = json.loads(entry.value)
    current = sum(router.revision >= entry.revision for router in routers)
    counts = f"{len(document.get('policies', ()))} policies, {len(document.get('tenants', ()))} quotas"
    return (
        f"policy set: revision {entry.revision}, version {document.get('version')}, {counts}; "
        f"run by {current} of {len(routers)} routers"
    )
