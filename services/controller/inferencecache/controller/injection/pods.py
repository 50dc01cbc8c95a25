"""Pods as documents: what injection reads of one, and how it finds and places named parts.

A pod stays a JSON document, so that fields nobody here knows survive. Lists of containers, volumes and
variables are keyed by `name`: a part of ours replaces the one of its name where that stands, so that
wiring a wired pod again changes nothing [ADM-240].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from inferencecache.controller.admission.reviews import Document
from inferencecache.controller.injection.refusals import NotWiredError
from inferencecache.schemas.resources.core_types import Quantity


class _Part(msgspec.Struct, rename="camel"):
    """Base of what is read; everything else of the document is neither checked nor lost."""


class _Named(_Part):
    name: str


class _Mount(_Part):
    mount_path: str
    name: str
    sub_path: str | None = None
    sub_path_expr: str | None = None
    read_only: bool | None = None


class _Resources(_Part):
    requests: dict[str, Quantity] | None = None
    limits: dict[str, Quantity] | None = None


class _FieldReference(_Part):
    field_path: str


class _Source(_Part):
    field_ref: _FieldReference | None = None


class _Variable(_Part):
    name: str
    value: str | None = None
    value_from: _Source | None = None


class _Container(_Part):
    name: str
    image: str | None = None
    restart_policy: str | None = None
    command: list[str] | None = None
    args: list[str] | None = None
    env: list[_Variable] | None = None
    volume_mounts: list[_Mount] | None = None
    resources: _Resources | None = None


class _EmptyDir(_Part):
    medium: str | None = None
    size_limit: Quantity | None = None


class _HostPath(_Part):
    path: str
    type: str | None = None


class _Volume(_Part):
    name: str
    empty_dir: _EmptyDir | None = None
    host_path: _HostPath | None = None


class _System(_Part):
    name: str | None = None


class _Spec(_Part):
    containers: list[_Container]
    os: _System | None = None
    resources: _Resources | None = None
    init_containers: list[_Container] | None = None
    volumes: list[_Volume] | None = None


class _Metadata(_Part):
    name: str | None = None
    namespace: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Pod(_Part):
    spec: _Spec
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


def problem_of(pod: object) -> str:
    """What is wrong with the shape of a pod, empty when it can be read [ADM-242]."""
    try:
        msgspec.convert(pod, _Pod)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def metadata_of(pod: Document, key: str) -> dict[str, str]:
    """Labels or annotations, as they stand; empty when there are none."""
    return (pod.get("metadata") or {}).get(key) or {}


def parts(owner: Document, key: str) -> list[Any]:
    """A list of the document, empty when it is absent; not to be changed."""
    return owner.get(key) or []


def find(named: Sequence[Document], name: str) -> Document | None:
    """The first part of a name."""
    return next((part for part in named if part["name"] == name), None)


def find_own(pod: Document, name: str, marker: str) -> Document | None:
    """The init container of this name, which must have the variable that marks it as the webhook's.

    Raises `NotWiredError` when the name is somebody else's, be it an ordinary container's: the API refuses
    a pod in which a name is there twice.
    """
    spec = pod["spec"]
    there: Document | None = find(parts(spec, "initContainers"), name)
    entry = find(parts(there, "env"), marker) if there is not None else None
    foreign = there is not None and (entry or {}).get("value") != "true"
    if foreign or find(parts(spec, "containers"), name) is not None:
        raise NotWiredError(f"the pod has a container {name} of its own; rename it")
    return there


def put(owner: Document, key: str, part: Document) -> None:
    """Replace the part of this name where it stands, else append it."""
    named = list(parts(owner, key))
    at = next((i for i, other in enumerate(named) if other["name"] == part["name"]), len(named))
    named[at : at + 1] = [part]
    owner[key] = named


def drop(owner: Document, key: str, name: str) -> None:
    """Remove the parts of a name; the list goes with its last part."""
    named = parts(owner, key)
    rest = [part for part in named if part["name"] != name]
    if len(rest) == len(named):
        return
    if rest:
        owner[key] = rest
    else:
        del owner[key]


def covers(stored: object, part: object) -> bool:
    """Does a stored part say all that `part` says? It may say more, which the API server fills in."""
    if isinstance(part, dict):
        return isinstance(stored, dict) and all(covers(stored.get(key), part[key]) for key in part)
    if isinstance(part, list):
        return isinstance(stored, list) and len(stored) == len(part) and all(map(covers, stored, part))
    return stored == part


def find_engine(pod: Document, runtime: str) -> Document | None:
    """The engine's container: the one that has the runtime's name, or the only one [ADM-148]."""
    containers = parts(pod["spec"], "containers")
    named = find(containers, runtime)
    if named is not None or len(containers) != 1:
        return named
    only: Document = containers[0]
    return only


def engine_of(pod: Document, runtime: str) -> Document:
    """As `find_engine`; raises `NotWiredError`."""
    engine = find_engine(pod, runtime)
    if engine is None:
        names = ", ".join(container["name"] for container in parts(pod["spec"], "containers"))
        raise NotWiredError(f"no container can be told to be the engine among {names}; name it {runtime}")
    return engine
