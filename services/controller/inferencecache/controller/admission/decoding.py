"""Whether an object can be read at all: durations, quantities and integers of its declared fields [ADM-13].

What the schema refuses better, with the field's own error, is left to it: enums, bounds, required
fields. A value of the wrong type is told apart, because the API server looks at the schema only after
the webhooks that complete an object, and before those that judge it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import inspect

from inferencecache.controller.admission.reviews import Document
from inferencecache.schemas.resources import parse_duration
from inferencecache.schemas.resources.core_types import INT_OR_STRING
from inferencecache.schemas.resources.quantities import parse_quantity

_DURATIONS: Final = ("spec.evictionTTL", "spec.observation.firstEventTimeout")
_INTEGERS: Final = {"int32": 2**31, "int64": 2**63}
_JSON_TYPES: Final[Mapping[type[inspect.Type], tuple[type, str]]] = {
    inspect.StructType: (dict, "an object"),
    inspect.DictType: (dict, "an object"),
    inspect.VarTupleType: (list, "a list"),
    inspect.BoolType: (bool, "true or false"),
    inspect.IntType: (int, "a whole number"),
    inspect.StrType: (str, "text"),
    inspect.LiteralType: (str, "text"),
}


class Unreadable(NamedTuple):
    """`is_type` where the value is of a wrong type, which the schema refuses too."""

    path: str
    problem: str
    is_type: bool

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


def unreadable_values(document: Document, kind: type[msgspec.Struct]) -> list[Unreadable]:
    """All of them, in the order of the declared fields. Only the spec counts; null is absent, except as an
    item of a list.
    """
    spec = next(field for field in _fields(kind) if field.encode_name == "spec")
    return list(_in_value(document.get("spec"), spec.type, "spec"))


@cache
def _fields(struct: type[msgspec.Struct]) -> tuple[inspect.Field, ...]:
    info = inspect.type_info(struct)
    return info.fields if isinstance(info, inspect.StructType) else ()


def _in_value(value: Any, declared: inspect.Type, path: str) -> Iterator[Unreadable]:
    if value is None:
        return
    type_, schema = _plain(declared)
    if INT_OR_STRING in schema:
        yield from _in_quantity(value, path)
        return
    if isinstance(type_, inspect.IntType) and isinstance(value, float) and value.is_integer():
        value = int(value)  # an integer beyond 64 bits travels as a float
    wanted = _JSON_TYPES.get(type(type_))
    if wanted is not None and type(value) is not wanted[0]:
        yield Unreadable(path, f"must be {wanted[1]}", is_type=True)
        return
    match type_:
        case inspect.StructType():
            for field in _fields(type_.cls):
                yield from _in_value(value.get(field.encode_name), field.type, f"{path}.{field.encode_name}")
        case inspect.DictType():
            for key, item in value.items():
                yield from _in_value(item, type_.value_type, f"{path}[{key}]")
        case inspect.VarTupleType():
            for position, item in enumerate(value):
                if item is None:  # a null in a list is not dropped, unlike one in an object
                    yield Unreadable(f"{path}[{position}]", "must not be null", is_type=True)
                yield from _in_value(item, type_.item_type, f"{path}[{position}]")
        case inspect.IntType():
            limit = _INTEGERS.get(schema.get("format", ""))
            if limit is not None and not -limit <= value < limit:
                yield Unreadable(path, f"{value} does not fit an {schema['format']}", is_type=False)
        case inspect.StrType() if path in _DURATIONS:
            try:
                parse_duration(value)
            except ValueError as error:
                yield Unreadable(path, str(error), is_type=False)


def _plain(type_: inspect.Type) -> tuple[inspect.Type, dict[str, Any]]:
    """The type below annotations and `None`, and what the annotations add to its JSON Schema."""
    schema: dict[str, Any] = {}
    while True:
        match type_:
            case inspect.Metadata():
                schema |= type_.extra_json_schema or {}
                type_ = type_.type
            case inspect.UnionType() if INT_OR_STRING not in schema:
                type_ = next(option for option in type_.types if not isinstance(option, inspect.NoneType))
            case _:
                return type_, schema


def _in_quantity(value: Any, path: str) -> Iterator[Unreadable]:
    if type(value) not in (int, str):
        yield Unreadable(path, "must be a quantity such as 500m or 8Gi", is_type=True)
        return
    try:
        parse_quantity(value)
    except ValueError as error:
        yield Unreadable(path, str(error), is_type=False)
