"""What the structs of resources declare about their fields, for everything that walks over them.

Descriptions, defaults and limits stand beside each field once; defaulting, the check for unknown
fields, error texts and the generated CRDs all read them there.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import inspect

_Part = TypeVar("_Part", bound=msgspec.Struct)


class FieldFacts(NamedTuple):
    """One field. `shape` is its whole type with its limits, `schema` what its declaration adds to the JSON
    Schema of that: `description`, `default` and so on; `extra` what it says of itself besides; `part`
    is the struct that it, or each item of its list, is.
    """

    name: str
    encoded: str
    shape: inspect.Type
    required: bool
    schema: dict[str, Any]
    extra: dict[str, Any]
    part: type[msgspec.Struct] | None
    is_list: bool


@cache
def fields_of(struct: type[msgspec.Struct]) -> tuple[FieldFacts, ...]:
    """The fields of a struct, in order."""
    info = inspect.type_info(struct)
    if not isinstance(info, inspect.StructType):
        raise TypeError(f"{struct.__name__} is no struct")
    return tuple(_facts(field) for field in info.fields)


def _facts(field: inspect.Field) -> FieldFacts:
    schema: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    part: type[msgspec.Struct] | None = None
    is_list = False
    type_ = field.type
    while True:
        match type_:
            case inspect.Metadata():
                schema |= {k: v for k, v in (type_.extra_json_schema or {}).items() if k not in schema}
                extra |= type_.extra or {}
                type_ = type_.type
            case inspect.UnionType():
                type_ = next(option for option in type_.types if not isinstance(option, inspect.NoneType))
            case inspect.VarTupleType():
                is_list = True
                type_ = type_.item_type
            case inspect.StructType():
                part = type_.cls
                break
            case _:
                break
    return FieldFacts(
        name=field.name,
        encoded=field.encode_name,
        shape=field.type,
        required=field.required,
        schema=schema,
        extra=extra,
        part=part,
        is_list=is_list,
    )


def defaulted(part: _Part) -> _Part:
    """The struct with the defaults that the API server would fill in: those of absent fields, inside
    parents that are present [CRD-10].
    """
    filled: dict[str, Any] = {}
    for field in fields_of(type(part)):
        value = getattr(part, field.name)
        if value is None:
            if "default" in field.schema:
                filled[field.name] = field.schema["default"]
        elif field.part is not None:
            filled[field.name] = tuple(map(defaulted, value)) if field.is_list else defaulted(value)
    return msgspec.structs.replace(part, **filled)


def unknown_fields(document: object, struct: type[msgspec.Struct], path: str = "") -> list[str]:
    """Paths of the keys, at any depth, that the struct does not declare."""
    if not isinstance(document, dict):
        return []
    known = {field.encoded: field for field in fields_of(struct)}
    unknown: list[str] = []
    for key, value in document.items():
        field = known.get(key)
        where = f"{path}{key}"
        if field is None:
            unknown.append(where)
        elif field.part is not None and field.is_list:
            items = value if isinstance(value, list) else []
            for position, item in enumerate(items):
                unknown += unknown_fields(item, field.part, f"{where}[{position}].")
        elif field.part is not None:
            unknown += unknown_fields(value, field.part, f"{where}.")
    return unknown
