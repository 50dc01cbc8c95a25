"""What makes the kinds known to an API server: one CustomResourceDefinition each, from its struct.

The schemas are structural and closed, so that a server drops what no struct declares [CRD-07].
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
from msgspec import inspect

from inferencecache.schemas.resources.fields import FieldFacts, fields_of
from inferencecache.schemas.resources.kinds import Column, Kind
from inferencecache.schemas.resources.objects import GROUP, LISTED, LOCAL_ONLY, VERSION

Schema = dict[str, Any]

_AGE: Final = Column("Age", "date", ".metadata.creationTimestamp")
_RULE_IDS: Final = re.compile(r" \[[A-Z]+-[^]]*\]")
_OF_SERVER: Final[Schema] = {
    "apiVersion": {"type": "string", "description": f"{GROUP}/{VERSION}."},
    "kind": {"type": "string", "description": "The kind."},
    "metadata": {"type": "object"},
}
_LARGEST: Final = 2**63 - 1


def definition_of(kind: Kind) -> Schema:
    """The CustomResourceDefinition, legal as JSON and as YAML [CRD-01..06]."""
    singular = kind.name.lower()
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": kind.scope,
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": singular,
                "shortNames": [kind.short],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [_column(column) for column in columns_of(kind)],
                    "schema": {"openAPIV3Schema": _of_root(kind)},
                }
            ],
        },
    }


def columns_of(kind: Kind) -> tuple[Column, ...]:
    """The columns of a listing behind the name."""
    return (*kind.columns, _AGE)


def declared_fields(struct: type[msgspec.Struct]) -> list[FieldFacts]:
    """The fields of a struct that exist in a cluster, in order."""
    return [field for field in fields_of(struct) if not field.extra.get(LOCAL_ONLY)]


def schema_of(field: FieldFacts) -> Schema:
    """The OpenAPI schema of a field; its own description comes first, else that of its struct."""
    schema = _of_type(field.shape)
    description = {"description": schema.pop("description")} if "description" in schema else {}
    return description | schema


def is_listed(field: FieldFacts) -> bool:
    """Does the schema call the field required?"""
    return field.required or bool(field.extra.get(LISTED))


def description_of(struct: type[msgspec.Struct]) -> str:
    """The struct's docstring for readers who do not have the rules of the contract."""
    return _RULE_IDS.sub("", " ".join((struct.__doc__ or "").split()))


def _column(column: Column) -> Schema:
    return {"name": column.name, "type": column.type, "jsonPath": column.path}


def _of_root(kind: Kind) -> Schema:
    schema = _of_struct(kind.struct)
    return schema | {
        "properties": _OF_SERVER | {k: v for k, v in schema["properties"].items() if k != "metadata"}
    }


def _of_struct(struct: type[msgspec.Struct]) -> Schema:
    fields = declared_fields(struct)
    schema: Schema = {"description": description_of(struct), "type": "object"}
    if properties := {field.encoded: schema_of(field) for field in fields}:
        schema["properties"] = properties
    if listed := sorted(field.encoded for field in fields if is_listed(field) and field.name != "metadata"):
        schema["required"] = listed
    return schema


def _of_type(type_: inspect.Type) -> Schema:
    match type_:
        case inspect.Metadata():
            return _of_type(type_.type) | (type_.extra_json_schema or {})
        case inspect.UnionType():
            options = [option for option in type_.types if not isinstance(option, inspect.NoneType)]
            return _of_type(options[0]) if len(options) == 1 else {}  # its declaration says what it may be
        case inspect.StructType():
            return _of_struct(type_.cls)
        case inspect.VarTupleType():
            return {"type": "array", "items": _of_type(type_.item_type)}
        case inspect.DictType(value_type=inspect.AnyType()):
            return _limited({"type": "object"}, maxProperties=type_.max_length)
        case inspect.DictType():
            return {"type": "object", "additionalProperties": _of_type(type_.value_type)}
        case inspect.LiteralType():
            return {"type": "string", "enum": list(type_.values)}
        case inspect.BoolType():
            return {"type": "boolean"}
        case inspect.IntType():
            low, high = type_.ge, type_.le
            return _limited(
                {"type": "integer"},
                minimum=None if low is None or low < -_LARGEST else low,
                maximum=None if high == _LARGEST else high,
            )
        case inspect.StrType():
            return _limited(
                {"type": "string"},
                minLength=type_.min_length,
                maxLength=type_.max_length,
                pattern=type_.pattern,
            )
    raise TypeError(f"{type_} has no form in a CustomResourceDefinition")


def _limited(schema: Schema, **limits: object) -> Schema:
    return schema | {name: limit for name, limit in limits.items() if limit is not None}
