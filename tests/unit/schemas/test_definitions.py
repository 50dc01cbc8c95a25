"""CustomResourceDefinitions are made from the structs alone, and say everything that the structs say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from msgspec import Meta

from inferencecache.schemas.resources import KINDS
from inferencecache.schemas.resources.definitions import (
    declared_fields,
    definition_of,
    description_of,
    schema_of,
)
from inferencecache.schemas.resources.fields import fields_of
from inferencecache.schemas.resources.objects import LISTED, LOCAL_ONLY, Count32, Count64, Part
from tools.resources import reference

Schema = dict[str, Any]


class Inner(Part, frozen=True):
    """What is inside [CRD-16]."""

    text: Annotated[str, Meta(min_length=1, max_length=3, pattern="^a", description="Text.")]


class Outer(Part, frozen=True):
    """What is outside [CRD-07, CRD-08], and more."""

    inner: Inner
    count: Annotated[Count32 | None, Meta(description="Count.", extra_json_schema={"default": 7})] = None
    total: Count64 | None = None
    flags: Annotated[dict[str, bool] | None, Meta(extra={LISTED: True})] = None
    many: tuple[Inner, ...] | None = None
    here: Annotated[str | None, Meta(extra={LOCAL_ONLY: True})] = None
    wrong: float | None = None


def schema(name: str) -> Schema:
    return schema_of(next(field for field in fields_of(Outer) if field.encoded == name))


def test_limits_and_defaults_stand_in_the_schema() -> None:
    limits = {"minimum": 0, "maximum": 2**31 - 1}
    assert (
        schema("count")
        == {
            "description": "Count.",
            "type": "integer",
            "format": "int32",
            "default": 7,
        }
        | limits
    )
    assert schema("total") == {"type": "integer", "format": "int64", "minimum": 0}
    assert schema("flags") == {"type": "object", "additionalProperties": {"type": "boolean"}}


def test_a_struct_is_a_closed_object_that_lists_what_it_needs() -> None:
    inner = {
        "description": "What is inside.",
        "type": "object",
        "properties": {
            "text": {
                "description": "Text.",
                "type": "string",
                "minLength": 1,
                "maxLength": 3,
                "pattern": "^a",
            }
        },
        "required": ["text"],
    }
    assert schema("inner") == inner
    assert schema("many") == {"type": "array", "items": inner}


def test_fields_for_places_without_a_cluster_are_left_out() -> None:
    assert "here" not in [field.encoded for field in declared_fields(Outer)]


def test_a_type_that_the_api_has_no_form_for_is_an_error() -> None:
    with pytest.raises(TypeError, match="no form"):
        schema("wrong")


def test_a_docstring_is_told_without_the_rules_it_cites() -> None:
    assert description_of(Outer) == "What is outside, and more."


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_every_field_says_what_it_means(kind: Any) -> None:
    [version] = definition_of(kind)["spec"]["versions"]
    root = version["schema"]["openAPIV3Schema"]
    silent = [path for path, found in _properties(root, "") if not found.get("description")]
    assert silent == ["metadata"]


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_the_reference_has_a_row_for_every_field(kind: Any) -> None:
    page = reference()[f"{kind.name.lower()}.md"]
    [version] = definition_of(kind)["spec"]["versions"]
    for part in ("spec", "status"):
        for name in version["schema"]["openAPIV3Schema"]["properties"][part].get("properties", ()):
            assert f"| `{part}.{name}` | " in page
    assert all(f"{column.name} (`{column.path}`)" in page for column in kind.columns)


def _properties(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    for name, found in schema.get("properties", {}).items():
        yield f"{path}{name}", found
        yield from _properties(found, f"{path}{name}.")
        yield from _properties(found.get("items", {}), f"{path}{name}[].")
