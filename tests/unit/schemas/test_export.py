"""The committed JSON Schemas are those of the structs."""

from __future__ import annotations

from pathlib import Path

from inferencecache.schemas.export import schemas

GENERATED = Path(__file__).parents[3] / "schemas" / "generated" / "json-schema"


def test_the_committed_json_schemas_are_those_of_the_structs() -> None:
    committed = {path.name: path.read_text() for path in GENERATED.glob("*.json")}
    assert committed == schemas()
