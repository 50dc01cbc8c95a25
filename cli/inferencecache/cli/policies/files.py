"""Custom resources from YAML or JSON files, all problems of all files at once."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from inferencecache.schemas.resources import (
    KINDS,
    AnyResource,
    InvalidResourceError,
    ResourceRef,
    defaulted,
    read_resource,
    violations,
)

STDIN: Final = Path("-")
_ENDINGS: Final = (".yaml", ".yml", ".json")
_LONGEST_ID: Final = 253
POLICY_KINDS: Final = tuple(name for name, kind in KINDS.items() if not kind.only_in_cluster)
"""The kinds that mean something without a cluster."""


class UnusableFilesError(Exception):
    """Nothing was done: `problems` are all that is wrong, each with its place."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class _Loader(yaml.SafeLoader):
    """Timestamps stay text, which is what the fields that hold some are; no key may stand twice."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as the base class declares it
        first: [(tag, form) for tag, form in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """As the base class, which would let the last of several equal keys win silently."""
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                continue
            if (key.tag, key.value) in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {key.value!r} stands twice", problem_mark=key.start_mark
                )
            seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)


def read_files(paths: Sequence[Path]) -> list[AnyResource]:
    """All resources of the files, defaulted as by the API server; a folder stands for the files in it.

    Raises `UnusableFilesError`.
    """
    resources: dict[ResourceRef, AnyResource] = {}
    problems: list[str] = []
    for path in paths:
        try:
            documents = list(_documents_of(path))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            problems.append(f"{path}: {_words(error)}")
            continue
        for place, document in documents:
            name = document.get("kind") if isinstance(document, dict) else None
            if name in KINDS and name not in POLICY_KINDS:
                problems.append(
                    f"{place}: {_named(document)}kind: {name} is for kubectl and a cluster's controller, "
                    f"this command does not handle it; it takes {', '.join(POLICY_KINDS)}"
                )
                continue
            try:
                resource = defaulted(read_resource(document))
            except InvalidResourceError as error:
                problems.append(f"{place}: {_named(document)}{error}")
                continue
            found = [*_problems_of_name(resource), *(f"{v.path}: {v.problem}" for v in violations(resource))]
            if resource.ref in resources:
                found.append("metadata.name: the files have this object twice")
            problems += [f"{place}: {resource.ref}: {problem}" for problem in found]
            resources[resource.ref] = resource
    if problems:
        raise UnusableFilesError(problems)
    return list(resources.values())


def _documents_of(path: Path) -> Iterator[tuple[str, Any]]:
    """Every document with its place; those of a `List` one by one."""
    if path != STDIN and path.is_dir():
        for file in sorted(path.iterdir()):
            if file.suffix in _ENDINGS and file.is_file():
                yield from _documents_of(file)
        return
    text = sys.stdin.read() if path == STDIN else path.read_text("utf-8")
    name = "standard input" if path == STDIN else str(path)
    for number, document in enumerate(yaml.load_all(text, _Loader), start=1):
        if document is None:
            continue
        place = f"{name}, document {number}"
        if isinstance(document, dict) and document.get("kind") == "List":
            for position, item in enumerate(document.get("items") or []):
                yield f"{place}, item {position}", item
        else:
            yield place, document


def _problems_of_name(resource: AnyResource) -> Iterator[str]:
    if not resource.metadata.namespace:
        yield "metadata.namespace: is required (for a CachePolicy it is the tenant that the policy is about)"
    for field in ("namespace", "name"):
        text = getattr(resource.metadata, field)
        if "/" in text or len(text.encode()) > _LONGEST_ID:
            yield f"metadata.{field}: write at most {_LONGEST_ID} bytes without a slash"


def _named(document: object) -> str:
    """Which object a document is about, as far as it says so."""
    if not isinstance(document, dict) or not isinstance(document.get("metadata"), dict):
        return ""
    namespace, name = (document["metadata"].get(key, "") for key in ("namespace", "name"))
    return f"{document.get('kind', 'object')} {namespace}/{name}: "


def _words(error: Exception) -> str:
    match error:
        case yaml.MarkedYAMLError(problem=str(problem), problem_mark=mark) if mark is not None:
            return f"line {mark.line + 1}, column {mark.column + 1}: no YAML: {problem}"
        case OSError(strerror=str(text)):
            return text
    return str(error)
