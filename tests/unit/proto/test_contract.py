"""Our stubs and a copy of the contract made from its tables alone understand each other byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from inferencecache.v1alpha1 import inferencecache_pb2, inferencecache_pb2_grpc
from tests.unit.proto.tables import ENUMS, FILE, MESSAGES, METHODS, PACKAGE, Field, classes, fields_of

OURS: dict[str, type[Message]] = {name: getattr(inferencecache_pb2, name) for name in MESSAGES}
THEIRS = classes()
THEIRS_UNPACKED = classes(packed=False)
THEIRS_LATER = classes(unknown_field="added_later")

SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    "bytes": st.binary(max_size=40),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bool": st.booleans(),
}
SET_SCALARS = {kind: values.filter(bool) for kind, values in SCALARS.items()}


def values_of(message: str, *, every_field: bool) -> st.SearchStrategy[dict[str, Any]]:
    """Plain values for one message, nested ones as dictionaries; `every_field` leaves none at its default."""
    strategies = {field.name: _value(field, every_field=every_field) for field in fields_of(message)}
    return st.fixed_dictionaries(strategies)


def _value(field: Field, *, every_field: bool) -> st.SearchStrategy[Any]:
    least = 1 if every_field else 0
    scalars = SET_SCALARS if every_field else SCALARS
    if field.kind == "map<string,string>":
        return st.dictionaries(SCALARS["string"], SCALARS["string"], min_size=least, max_size=4)
    if field.kind in MESSAGES:
        single = values_of(field.kind, every_field=every_field)
    elif field.kind in ENUMS:
        # Enums are open: any number is legal.
        single = scalars["int32"]
    else:
        single = scalars[field.kind]
    if field.repeated:
        return st.lists(single, min_size=least, max_size=4)
    return single


def encode(kind: type[Message], values: dict[str, Any]) -> bytes:
    return kind(**values).SerializeToString(deterministic=True)


def decode(kind: type[Message], data: bytes) -> Message:
    message = kind()
    message.ParseFromString(data)
    return message


@pytest.mark.rule("WIRE-001", "WIRE-003", "WIRE-004", "WIRE-006")
@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_has_exactly_the_fields_of_its_table(name: str) -> None:
    assert _rows(OURS[name]) == _rows(THEIRS[name])


def test_there_is_no_message_beyond_the_tables() -> None:
    assert set(inferencecache_pb2.DESCRIPTOR.message_types_by_name) == set(MESSAGES)
    assert inferencecache_pb2.DESCRIPTOR.name == FILE
    assert inferencecache_pb2.DESCRIPTOR.package == PACKAGE


def _rows(kind: type[Message]) -> set[tuple[object, ...]]:
    return {
        (
            field.number,
            field.name,
            field.type,
            field.is_repeated,
            field.is_packed,
            field.has_presence and field.type != FieldDescriptor.TYPE_MESSAGE,
            _type_name(field),
        )
        for field in kind.DESCRIPTOR.fields
    }


def _type_name(field: Any) -> str:
    named = field.message_type or field.enum_type
    return str(named.full_name) if named else ""


@pytest.mark.rule("WIRE-003", "WIRE-010")
def test_enums_have_exactly_the_numbers_and_names_of_their_tables() -> None:
    ours = {
        enum.full_name.removeprefix(f"{PACKAGE}."): dict(kind.items())
        for kind in (inferencecache_pb2.CacheTier, inferencecache_pb2.CacheEvent.Type)
        for enum in [kind.DESCRIPTOR]
    }
    assert ours == ENUMS


@pytest.mark.rule("WIRE-001", "WIRE-002")
def test_the_service_has_exactly_the_methods_of_its_table() -> None:
    called: dict[str, str] = {}

    class Recorder:
        def __getattr__(self, kind: str) -> Callable[..., None]:
            def register(path: str, **_: object) -> None:
                called[path] = kind

            return register

    inferencecache_pb2_grpc.InferenceCacheStub(cast("Any", Recorder()))
    assert called == {f"/{PACKAGE}.InferenceCache/{name}": method.kind for name, method in METHODS.items()}
    (service,) = inferencecache_pb2.DESCRIPTOR.services_by_name.values()
    assert {method.name: (method.input_type.name, method.output_type.name) for method in service.methods} == {
        name: (method.request, method.response) for name, method in METHODS.items()
    }


@pytest.mark.rule("WIRE-001", "WIRE-011")
@pytest.mark.parametrize("every_field", [True, False])
@pytest.mark.parametrize("name", MESSAGES)
@settings(max_examples=25)
@given(data=st.data())
def test_a_message_survives_the_way_to_the_other_copy_and_back(
    name: str, every_field: bool, data: st.DataObject
) -> None:
    values = data.draw(values_of(name, every_field=every_field))
    assert_understood_both_ways(name, values)
    if every_field:
        assert len(OURS[name](**values).ListFields()) == len(fields_of(name))


@pytest.mark.long
@pytest.mark.rule("WIRE-001")
@pytest.mark.parametrize("name", MESSAGES)
@settings(max_examples=2000)
@given(data=st.data())
def test_thousands_of_messages_survive_the_way_to_the_other_copy_and_back(
    name: str, data: st.DataObject
) -> None:
    assert_understood_both_ways(name, data.draw(values_of(name, every_field=False)))


def assert_understood_both_ways(name: str, values: dict[str, Any]) -> None:
    ours = encode(OURS[name], values)
    theirs = encode(THEIRS[name], values)
    assert ours == theirs
    received_there = decode(THEIRS[name], ours)
    received_here = decode(OURS[name], theirs)
    assert received_there.SerializeToString(deterministic=True) == ours
    assert received_here.SerializeToString(deterministic=True) == theirs
    assert _json(received_there) == _json(received_here)


def _json(message: Message) -> dict[str, Any]:
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


PACKABLE = [name for name in MESSAGES if any(field.packable for field in fields_of(name))]


@pytest.mark.rule("WIRE-007")
@pytest.mark.parametrize("name", PACKABLE)
@settings(max_examples=25)
@given(data=st.data())
def test_numbers_are_written_packed_and_read_either_way(name: str, data: st.DataObject) -> None:
    values = data.draw(values_of(name, every_field=True))
    packed = encode(OURS[name], values)
    unpacked = encode(THEIRS_UNPACKED[name], values)
    assert packed == encode(THEIRS[name], values)
    assert packed != unpacked
    assert decode(OURS[name], unpacked).SerializeToString(deterministic=True) == packed
    assert decode(THEIRS_UNPACKED[name], packed).SerializeToString(deterministic=True) == unpacked


@pytest.mark.rule("WIRE-008")
@pytest.mark.parametrize("name", MESSAGES)
@settings(max_examples=25)
@given(data=st.data())
def test_a_field_of_a_later_version_is_ignored_and_survives(name: str, data: st.DataObject) -> None:
    values = data.draw(values_of(name, every_field=False))
    later = encode(THEIRS_LATER[name], values | {"added_later": "x"})
    received = decode(OURS[name], later)
    assert _json(received) == _json(decode(OURS[name], encode(OURS[name], values)))
    assert received.SerializeToString(deterministic=True) == later


@pytest.mark.rule("WIRE-008")
@pytest.mark.parametrize("number", [-1, 4, 77, 99, 2**31 - 1, -(2**31)])
def test_an_unknown_enum_number_is_legal_and_survives(number: int) -> None:
    tier = inferencecache_pb2.PrefixEntry(tier=cast("Any", number))
    event = inferencecache_pb2.CacheEvent(type=cast("Any", number + 10 if number == 4 else number))
    assert inferencecache_pb2.PrefixEntry.FromString(tier.SerializeToString()).tier == number
    assert inferencecache_pb2.CacheEvent.FromString(event.SerializeToString()).type == event.type
