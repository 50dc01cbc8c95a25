"""Environment variables of a container, as entries of its `env`."""

from __future__ import annotations

from collections.abc import Sequence

from inferencecache.controller.admission.reviews import Document


def literal(name: str, value: str) -> Document:
    """A variable with a value; an empty one is left out, as the API stores it."""
    return {"name": name, "value": value} if value else {"name": name}


def from_field(name: str, path: str) -> Document:
    """A variable with the value of a field of the pod."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def from_secret(name: str, secret: str, key: str) -> Document:
    """A variable with the value of a Secret's key."""
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def same(one: Document, other: Document) -> bool:
    """Are two entries the same once the API server has filled in what it assumes [ADM-193]?"""
    return _filled(one) == _filled(other)


def _filled(entry: Document) -> Document:
    source = entry.get("valueFrom")
    if not source:
        return {"name": entry["name"], "value": entry.get("value") or ""}
    reference = source.get("fieldRef")
    if reference:
        source = source | {"fieldRef": {"apiVersion": "v1"} | reference}
    return {"name": entry["name"], "value": entry.get("value") or "", "valueFrom": source}


def last_of(env: Sequence[Document], name: str) -> Document | None:
    """The entry that a container goes by: of several the last."""
    return by_name(env).get(name)


def by_name(env: Sequence[Document]) -> dict[str, Document]:
    """The entries that a container goes by, by their names."""
    return {entry["name"]: entry for entry in env}


def set_variable(env: Sequence[Document], entry: Document) -> list[Document]:
    """Replace the first entry of the name where it stands, else append [ADM-152]."""
    at = next((i for i, other in enumerate(env) if other["name"] == entry["name"]), None)
    if at is None:
        return [*env, entry]
    return [*env[:at], env[at] if same(env[at], entry) else entry, *env[at + 1 :]]


def reset_variable(env: Sequence[Document], entry: Document) -> list[Document]:
    """Remove all entries of the name and append this one [ADM-153].

    A single equal entry stays where it is: otherwise a variable that overrides put behind it would
    change places with it each time the pod is wired again [ADM-240].
    """
    named = [other for other in env if other["name"] == entry["name"]]
    if len(named) == 1 and same(named[0], entry):
        return list(env)
    return [*(other for other in env if other["name"] != entry["name"]), entry]
