"""From a decoded YAML or JSON document to a resource, with errors that a person can act on."""

from __future__ import annotations

import difflib
import re
from typing import Any, Final

import msgspec

from inferencecache.schemas.resources.fields import FieldFacts, fields_of, unknown_fields
from inferencecache.schemas.resources.kinds import KINDS, AnyResource
from inferencecache.schemas.resources.objects import API_VERSION

_AT: Final = re.compile(r"(.*) - at `\$\.?(.*)`", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(.*)`")
_MISTYPED: Final = re.compile(r"Expected `(\w+)(?: \| null)?`, got `(\w+)`")
_ENUM: Final = re.compile(r"Invalid enum value (.*)")
_WORDS: Final = {
    "int": "a whole number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
    "float": "a number",
    "null": "nothing",
}


class InvalidResourceError(ValueError):
    """A document is no resource. `path` names the field from the object's root, empty for the whole;
    `problem` says what is wrong with it and what to write.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path
        self.problem = problem


def read_resource(document: object, *, strict: bool = True) -> AnyResource:
    """One resource, with absent fields absent: `defaulted` fills them.

    With `strict` a field that no version here knows is an error, as with kubectl; without it it is
    ignored, as the API server does [CRD-07]. Raises `InvalidResourceError`.
    """
    if not isinstance(document, dict):
        raise InvalidResourceError("", f"a resource is a mapping with a kind, this is {_word_of(document)}")
    kind = _kind_of(document)
    if strict and (unknown := unknown_fields(_without_open_parts(document), kind)):
        raise InvalidResourceError(unknown[0], _unknown(kind, unknown[0]))
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise _invalid(kind, str(error)) from None


def document_of(resource: AnyResource) -> dict[str, Any]:
    """What `read_resource` reads, absent fields left out; legal as JSON and as YAML."""
    built: dict[str, Any] = msgspec.to_builtins(resource)
    head = {"apiVersion": API_VERSION, "kind": built.pop("kind"), "metadata": built.pop("metadata")}
    return head | built


def _kind_of(document: dict[Any, Any]) -> type[AnyResource]:
    name = document.get("kind")
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        written = "is missing" if name is None else f"{name!r} is not known here"
        near = difflib.get_close_matches(str(name), KINDS, n=1)
        raise InvalidResourceError("kind", f"{written}; write {near[0] if near else ', '.join(KINDS)}")
    version = document.get("apiVersion")
    if version != API_VERSION:
        written = "is missing" if version is None else f"{version!r} is not known here"
        raise InvalidResourceError("apiVersion", f"{written}; write {API_VERSION}")
    return kind.struct


def _without_open_parts(document: dict[Any, Any]) -> dict[Any, Any]:
    """What servers and other tools may add to: they know fields of it that are no concern here."""
    return {
        key: value
        for key, value in document.items()
        if key not in ("apiVersion", "kind", "metadata", "status")
    }


def _unknown(kind: type[AnyResource], path: str) -> str:
    parent, _, key = path.rpartition(".")
    field = _field_at(kind, parent)
    struct = kind if not parent else field.part if field is not None else None
    names = [known.encoded for known in fields_of(struct)] if struct is not None else []
    by_lower_case = {name.lower(): name for name in names}
    near = difflib.get_close_matches(key.lower(), by_lower_case, n=1)
    advice = f"did you mean {by_lower_case[near[0]]}?" if near else f"known here: {', '.join(names)}"
    return f"no such field; {advice}"


def _invalid(kind: type[AnyResource], text: str) -> InvalidResourceError:
    found = _AT.fullmatch(text)
    problem, path = (found[1], found[2]) if found else (text, "")
    if missing := _MISSING.fullmatch(problem):
        path = f"{path}.{missing[1]}" if path else missing[1]
        problem = "is required"
    elif mistyped := _MISTYPED.fullmatch(problem):
        wanted, got = mistyped.groups()
        problem = f"must be {_WORDS.get(wanted, wanted)}, not {_WORDS.get(got, got)}"
        if wanted == "str" and got in ("int", "float", "bool"):
            problem += "; put it in quotes"
    elif enum := _ENUM.fullmatch(problem):
        problem = f"{enum[1]} is not a legal value"
    else:
        problem = problem[:1].lower() + problem[1:].replace("`", "")
    field = _field_at(kind, path)
    if field is not None and (description := field.schema.get("description")):
        problem += f" ({description})"
    return InvalidResourceError(path, problem)


def _field_at(kind: type[msgspec.Struct], path: str) -> FieldFacts | None:
    """The field that a path as in error messages names, if it is a declared one."""
    struct: type[msgspec.Struct] | None = kind
    found: FieldFacts | None = None
    for key in filter(None, re.sub(r"\[[^]]*\]", "", path).split(".")):
        found = next((f for f in fields_of(struct) if f.encoded == key), None) if struct is not None else None
        struct = found.part if found is not None else None
    return found


def _word_of(value: object) -> str:
    return {list: "a list", str: "text", type(None): "empty"}.get(type(value), "a single value")
