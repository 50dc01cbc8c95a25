"""From a payload to a batch of events: the engine's MessagePack in all its forms, errors kept to their event.

A payload is `[time, events, rank]`. Each event is a map with a `type` or an array that begins with
it, in one batch side by side; absent, null and left-out trailing fields are equal [SUB-034..037]. An
event that cannot be read becomes `Malformed` in its place and harms no other [SUB-035]; a payload
whose envelope cannot be read is an `UnreadableBatchError` as a whole [SUB-033]. Errors carry a
reason and lengths, never content [SUB-002].
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

BlockHash = bytes
"""The engine's own identity of a block, of any length; integers are brought to 8 bytes [SUB-040]."""
EnvelopeFault = Literal["not_msgpack", "envelope", "ts", "events"]

_INT32_MAX: Final = 2**31 - 1
_INT64: Final = range(-(2**63), 2**63)
_ALL_BITS: Final = 2**64 - 1
_HASHES: Final = range(-(2**63), 2**64)


class UnreadableBatchError(ValueError):
    """The payload is dropped as a whole; its number counts as received [SUB-033]."""

    def __init__(self, reason: EnvelopeFault, length: int) -> None:
        super().__init__(f"{reason} in a payload of {length} bytes")
        self.reason: EnvelopeFault = reason
        self.length = length


class Stored(msgspec.Struct, frozen=True, gc=False):
    """Blocks became reusable. `parent` None marks the root of a sequence; `tokens` is an array("I").

    `group`, `kind`, `locality` and `ownership` are None when the engine said nothing.
    """

    hashes: tuple[BlockHash, ...]
    parent: BlockHash | None
    tokens: array[int]
    block_size: int
    lora_id: int | None = None
    lora_name: str | None = None
    medium: str | None = None
    extra_keys: tuple[Sequence[Any] | None, ...] | None = None
    group: int | None = None
    kind: str | None = None
    locality: str | None = None
    ownership: str | None = None
    cache_salt: str | None = None


class Removed(msgspec.Struct, frozen=True, gc=False):
    """Blocks left one medium."""

    hashes: tuple[BlockHash, ...]
    medium: str | None = None
    group: int | None = None
    locality: str | None = None
    ownership: str | None = None


class AllCleared(msgspec.Struct, frozen=True, gc=False):
    """The engine reset its prefix cache."""


class Unknown(msgspec.Struct, frozen=True, gc=False):
    """An event of a type that this version does not know; skipped [SUB-036]."""

    type: str


class Malformed(msgspec.Struct, frozen=True, gc=False):
    """An event that cannot be read, and why. `takes_away` unless it is known to be no removal."""

    reason: str
    takes_away: bool = False


Event = Stored | Removed | AllCleared | Unknown | Malformed


class Batch(msgspec.Struct, frozen=True, gc=False):
    """One message's content. `time_s` is the engine's Unix time, 0 for NaN and what is infinite in µs."""

    time_s: float
    events: tuple[Event, ...]
    rank: int | None = None

    @property
    def time_us(self) -> int:
        """Microseconds, truncated; anything that is not positive is 0, "now" [SUB-031]."""
        return max(0, int(self.time_s * 1_000_000))


class _MalformedEventError(Exception):
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


_array_of_raw: Final = msgspec.msgpack.Decoder(list[msgspec.Raw])
_one_value: Final = msgspec.msgpack.Decoder(msgspec.Raw)
_any: Final = msgspec.msgpack.Decoder()


def decode_batch(payload: bytes) -> Batch:
    """Read a payload. Raises `UnreadableBatchError` when its envelope is broken."""
    try:
        parts = _array_of_raw.decode(payload)
    except msgspec.ValidationError:
        raise UnreadableBatchError(_fault_of_no_array(payload), len(payload)) from None
    except (msgspec.DecodeError, RecursionError):
        raise UnreadableBatchError("not_msgpack", len(payload)) from None
    if len(parts) < 2:
        raise UnreadableBatchError("envelope", len(payload))
    time_s = _decoded(parts[0])
    if type(time_s) not in (int, float):
        raise UnreadableBatchError("ts", len(payload))
    try:
        events = _array_of_raw.decode(parts[1])
    except (msgspec.DecodeError, RecursionError):
        raise UnreadableBatchError("events", len(payload)) from None
    rank = _decoded(parts[2]) if len(parts) > 2 else None
    return Batch(
        time_s=time_s if math.isfinite(time_s * 1e6) else 0.0,
        events=tuple(map(_decode_event, events)),
        rank=rank if type(rank) is int else None,
    )


def _fault_of_no_array(payload: bytes) -> EnvelopeFault:
    try:
        _one_value.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return "not_msgpack"
    return "envelope"


def _decoded(raw: msgspec.Raw) -> Any:
    try:
        return _any.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None


def _decode_event(raw: msgspec.Raw) -> Event:
    try:
        value = _any.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return Malformed("not_msgpack", takes_away=True)
    try:
        if type(value) is dict:
            return _from_map(value)
        if type(value) is list:
            return _from_array(value)
    except _MalformedEventError as error:
        return Malformed(error.reason, takes_away=_tag_of(value) != "BlockStored")
    return Malformed("not_map_or_tuple", takes_away=True)


def _tag_of(event: dict[Any, Any] | list[Any]) -> Any:
    if isinstance(event, dict):
        return event.get("type")
    return event[0] if event else None


def _from_map(event: dict[Any, Any]) -> Event:
    match event.get("type"):
        case "BlockStored":
            for name in ("block_hashes", "token_ids", "block_size"):
                if name not in event:
                    raise _MalformedEventError(f"missing_{name}")
            return _stored(event)
        case "BlockRemoved":
            if "block_hashes" not in event:
                raise _MalformedEventError("missing_block_hashes")
            return _removed(event)
        case "AllBlocksCleared":
            return AllCleared()
        case str() as unknown:
            return Unknown(unknown)
        case None:
            raise _MalformedEventError("no_type")
        case _:
            raise _MalformedEventError("tag_type")


_STORED_POSITIONS: Final = (
    "type",
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
    "kv_cache_spec_kind",
)
_REMOVED_POSITIONS: Final = ("type", "block_hashes", "medium", "group_idx")
_METADATA_POSITION: Final = 7


def _from_array(event: list[Any]) -> Event:
    if not event:
        raise _MalformedEventError("empty_tuple")
    match event[0]:
        case "BlockStored":
            if len(event) < 5:
                raise _MalformedEventError("truncated")
            return _stored(_named(event))
        case "BlockRemoved":
            if len(event) < 2:
                raise _MalformedEventError("truncated")
            return _removed(dict(zip(_REMOVED_POSITIONS, event, strict=False)))
        case "AllBlocksCleared":
            return AllCleared()
        case str() as unknown:
            return Unknown(unknown)
        case _:
            raise _MalformedEventError("tag_type")


def _named(event: list[Any]) -> dict[str, Any]:
    """A store in array form by field name; SGLang puts a map in the place of the LoRA name [SUB-038]."""
    if len(event) > _METADATA_POSITION and type(event[_METADATA_POSITION]) is dict:
        named = dict(zip(_STORED_POSITIONS, event[:_METADATA_POSITION], strict=False))
        named["cache_salt"] = event[_METADATA_POSITION].get("cache_salt")
        return named
    return dict(zip(_STORED_POSITIONS, event, strict=False))


def _stored(event: Mapping[str, Any]) -> Stored:
    hashes = _hashes(event["block_hashes"])
    tokens = _tokens(event["token_ids"])
    parent = event.get("parent_block_hash")
    lora_id = event.get("lora_id")
    if lora_id is not None and (type(lora_id) is not int or lora_id not in _INT64):
        raise _MalformedEventError("lora_id")
    return Stored(
        hashes=hashes,
        parent=None if parent is None else _hash(parent),
        tokens=tokens,
        block_size=_block_size(event["block_size"], tokens),
        lora_id=lora_id,
        lora_name=_text(event, "lora_name") or None,
        medium=_text(event, "medium"),
        extra_keys=_extra_keys(event.get("extra_keys"), len(hashes)),
        group=_group(event),
        kind=_text(event, "kv_cache_spec_kind"),
        locality=_text(event, "locality"),
        ownership=_text(event, "ownership"),
        cache_salt=_text(event, "cache_salt"),
    )


def _removed(event: Mapping[str, Any]) -> Removed:
    return Removed(
        hashes=_hashes(event["block_hashes"]),
        medium=_text(event, "medium"),
        group=_group(event),
        locality=_text(event, "locality"),
        ownership=_text(event, "ownership"),
    )


def _hashes(values: Any) -> tuple[BlockHash, ...]:
    if type(values) is not list:
        raise _MalformedEventError("block_hashes")
    return tuple(map(_hash, values))


def _hash(value: Any) -> BlockHash:
    """Integers as 8 bytes of two's complement, so that 7 and its binary form are one block [SUB-040]."""
    if type(value) is int and value in _HASHES:
        return (value & _ALL_BITS).to_bytes(8, "big")
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise _MalformedEventError("hash_type")


def _tokens(values: Any) -> array[int]:
    """Token ids, null being none; of SGLang's pairs the first member [SUB-042, SUB-043]."""
    if values is None:
        return array("I")
    if type(values) is not list:
        raise _MalformedEventError("token_ids")
    kinds = set(map(type, values))
    if kinds == {list}:
        if set(map(len, values)) != {2}:
            raise _MalformedEventError("token_type")
        values = [pair[0] for pair in values]
        kinds = set(map(type, values))
    if kinds - {int}:
        raise _MalformedEventError("token_type")
    try:
        return array("I", values)
    except OverflowError:
        raise _MalformedEventError("token_range") from None


def _block_size(value: Any, tokens: array[int]) -> int:
    if type(value) is not int or not 0 <= value <= _INT32_MAX or (value == 0 and tokens):
        raise _MalformedEventError("block_size")
    return value


def _text(event: Mapping[str, Any], name: str) -> str | None:
    value = event.get(name)
    if value is None or type(value) is str:
        return value
    raise _MalformedEventError(name)


def _group(event: Mapping[str, Any]) -> int | None:
    value = event.get("group_idx")
    if value is None or type(value) is int:
        return value
    raise _MalformedEventError("group_idx")


def _extra_keys(values: Any, count: int) -> tuple[Sequence[Any] | None, ...] | None:
    if values is None:
        return None
    if type(values) is not list or len(values) != count:
        raise _MalformedEventError("extra_keys")
    if any(entry is not None and type(entry) is not list for entry in values):
        raise _MalformedEventError("extra_keys")
    return tuple(values)
