"""Makes the reference of the gRPC API from the contract's own comments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

from tools.docs.descriptors import described
from tools.docs.tables import cell, table

_PATH: Final = "inferencecache/v1alpha1/inferencecache.proto"
_ABOUT: Final = f"""\
The contract is [`{Path(_PATH).name}`](../../proto/{_PATH}). Routers serve it on `--grpc-bind-address`, with
reflection and the standard health service; what each call answers is in [reason codes](reason-codes.md) and
[worked cases](../rpc-cases.md)."""
_PACKAGE: Final = ".inferencecache.v1alpha1."
_MESSAGES, _ENUMS, _SERVICES = 4, 5, 6
"""Numbers of the parts of a file in the paths of its comments."""


class _Comments:
    def __init__(self, file: FileDescriptorProto) -> None:
        self._leading = {
            tuple(at.path): at.leading_comments
            for at in file.source_code_info.location
            if at.leading_comments
        }
        detached = (at.leading_detached_comments for at in file.source_code_info.location)
        lines = "\n".join(next(filter(None, detached), ())).splitlines()
        self.head = "\n".join(line.strip() for line in lines)

    def at(self, *path: int) -> str:
        return cell(self._leading.get(path, ""))


def contract_page() -> dict[str, str]:
    """One page: the calls, then every message and enum."""
    files: FileDescriptorSet = described(_PATH)
    file = next(one for one in files.file if one.name == _PATH)
    comments = _Comments(file)
    lines = [
        "# gRPC API",
        "",
        comments.head,
        "",
        _ABOUT,
        "",
    ]
    for number, service in enumerate(file.service):
        lines += [f"## Service {service.name}", ""]
        calls = [
            (
                f"`{call.name}`",
                _link(call.input_type, streams=call.client_streaming),
                _link(call.output_type, streams=call.server_streaming),
                comments.at(_SERVICES, number, 2, index),
            )
            for index, call in enumerate(service.method)
        ]
        lines += [*table(("Call", "Takes", "Answers", "Meaning"), calls), ""]
    for number, message in enumerate(file.message_type):
        lines += _message(message, comments, (_MESSAGES, number))
    for number, enum in enumerate(file.enum_type):
        lines += _enum(enum, enum.name, comments, (_ENUMS, number))
    return {"grpc.md": "\n".join([*lines, "Written by `make generate` from the contract.", ""])}


def _message(message: DescriptorProto, comments: _Comments, path: Sequence[int]) -> Iterator[str]:
    yield from (f"## {message.name}", "")
    if about := comments.at(*path):
        yield from (about, "")
    entries = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
    rows = [
        (str(field.number), f"`{field.name}`", _type(field, entries), comments.at(*path, 2, index))
        for index, field in enumerate(message.field)
    ]
    yield from (*table(("Number", "Field", "Type", "Meaning"), rows), "")
    for index, enum in enumerate(message.enum_type):
        yield from _enum(enum, f"{message.name}.{enum.name}", comments, (*path, 4, index))


def _enum(enum: EnumDescriptorProto, name: str, comments: _Comments, path: Sequence[int]) -> Iterator[str]:
    yield from (f"## {name}", "")
    if about := comments.at(*path):
        yield from (about, "")
    rows = [
        (str(value.number), f"`{value.name}`", comments.at(*path, 2, index))
        for index, value in enumerate(enum.value)
    ]
    yield from (*table(("Number", "Value", "Meaning"), rows), "")


def _type(field: FieldDescriptorProto, entries: dict[str, DescriptorProto]) -> str:
    entry = entries.get(field.type_name.rpartition(".")[2])
    if entry is not None:
        return f"map of {_type(entry.field[0], {})} to {_type(entry.field[1], {})}"
    kind = _link(field.type_name) if field.type_name else _scalar(field)
    return f"list of {kind}" if field.label == FieldDescriptorProto.LABEL_REPEATED else kind


def _scalar(field: FieldDescriptorProto) -> str:
    return FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()


def _link(type_name: str, *, streams: bool = False) -> str:
    name = type_name.removeprefix(_PACKAGE)
    return f"{'stream of ' if streams else ''}[{name}](#{name.lower().replace('.', '')})"
