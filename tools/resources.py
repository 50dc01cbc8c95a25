"""Makes the manifests and the reference pages of the custom resources, from their structs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from inferencecache.schemas.resources import API_VERSION, KINDS, Kind, core_types
from inferencecache.schemas.resources.definitions import (
    columns_of,
    declared_fields,
    definition_of,
    description_of,
    is_listed,
    schema_of,
)
from inferencecache.schemas.resources.fields import FieldFacts
from tools.manifests import manifest

_SOURCE = "schemas/inferencecache/schemas/resources"
_LARGEST_INT32 = 2**31 - 1


def definitions() -> dict[str, str]:
    """A manifest of each kind by file name."""
    return {f"{kind.plural}.yaml": manifest([definition_of(kind)], source=_SOURCE) for kind in KINDS.values()}


def reference() -> dict[str, str]:
    """A page of each kind by file name."""
    return {f"{kind.name.lower()}.md": _page(kind) for kind in KINDS.values()}


def _page(kind: Kind) -> str:
    columns = ", ".join(f"{column.name} (`{column.path}`)" for column in columns_of(kind))
    about = (
        f"`{API_VERSION}`, {kind.scope.lower()}; `kubectl get {kind.plural}`, for short `{kind.short}`, "
        f"shows {columns}. A field that is left out stays absent unless a default is named; a default fills "
        "in only where its parent is present. Types that begin with a capital letter are Kubernetes' own."
    )
    lines = [
        f"# {kind.name}",
        "",
        description_of(kind.struct),
        "",
        about,
    ]
    for part in (field for field in declared_fields(kind.struct) if field.name != "metadata"):
        rows = list(_rows(part, f"{part.encoded}."))
        lines += ["", f"## {part.encoded}", "", schema_of(part)["description"]]
        if rows:
            lines += ["", "| Field | Type | Default | Meaning |", "|---|---|---|---|", *rows]
    return "\n".join([*lines, "", f"Written by `make generate` from `{_SOURCE}`.", ""])


def _rows(parent: FieldFacts, path: str) -> Iterator[str]:
    """The fields below one, and below those; Kubernetes' own types are named and not opened."""
    for field in declared_fields(parent.part) if parent.part is not None else ():
        schema = schema_of(field)
        where = path + field.encoded
        meaning = schema["description"].replace("|", "\\|")
        yield f"| `{where}` | {_type(field, schema)} | {_default(field, schema)} | {meaning} |"
        if not _is_foreign(field.part):
            yield from _rows(field, f"{where}[]." if field.is_list else f"{where}.")


def _type(field: FieldFacts, schema: dict[str, Any]) -> str:
    if field.part is not None and _is_foreign(field.part):
        return f"list of {field.part.__name__}" if field.is_list else field.part.__name__
    return _type_of(schema)


def _type_of(schema: dict[str, Any]) -> str:
    if core_types.INT_OR_STRING in schema:
        return "quantity"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    match schema["type"]:
        case "array":
            return f"list of {_type_of(schema['items'])}"
        case "object" if "additionalProperties" in schema:
            return f"map to {_type_of(schema['additionalProperties'])}"
        case "integer":
            return f"integer{_range(schema)}"
    return str(schema.get("format", schema["type"]))


def _range(schema: dict[str, Any]) -> str:
    low, high = schema.get("minimum"), schema.get("maximum", _LARGEST_INT32)
    if low is None:
        return ""
    return f", {low} or more" if high == _LARGEST_INT32 else f", {low} to {high}"


def _default(field: FieldFacts, schema: dict[str, Any]) -> str:
    if "default" in schema:
        default = schema["default"]
        return f"`{msgspec.json.encode(default).decode()}`"
    return "required" if is_listed(field) else ""


def _is_foreign(part: type[msgspec.Struct] | None) -> bool:
    return part is not None and part.__module__ == core_types.__name__
