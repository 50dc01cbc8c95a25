"""Ways to damage bytes, MessagePack, and scripts of messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, Final, NamedTuple

import msgspec

from tests.fuzz.target import Mutate

MAX_BYTES: Final = 1 << 18
MAX_MESSAGES: Final = 64
NUMBERS: Final = (
    *(0, 1, -1, 2, 3, 7, 8, 9, 15, 16, 17, 64, 127, 128, 255, 256, 65_535, 65_536, 1 << 20, 1 << 24),
    *(2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32 - 1, 2**32, 2**40, 2**53 + 1),
    *(2**62, 2**63 - 1, 2**63, -(2**63), 2**64 - 1),
)
TEXTS: Final = ("", "a", "_", "=", "\0", "é", "\U0001f511", "ÿ" * 128, "x" * 255, "x" * 256, "a.b", "*", ">")
_ODD: Final[tuple[Any, ...]] = (
    *(None, True, False, 0.0, -0.0, 0.5, 1e300, -1e300, float("nan"), float("inf"), float("-inf")),
    *([], {}, [[]], {"": None}, {"a": {"b": []}}, b"", b"\0", b"\xff" * 8, msgspec.msgpack.Ext(5, b"ext")),
)
_PIECES: Final = (
    # Lengths that nothing behind them fulfils, nesting, and values of other kinds.
    *(b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff"),
    *(b"\xdd\x7f\xff\xff\xff", b"\xdc\xff\xff", b"\xc9\xff\xff\xff\xff\x01", b"\xc7\x0c\xff" + b"\xff" * 12),
    *(b"\x91" * 3000, b"\x81" * 3000, b"\x81\xa0" * 2000, b"\x92\x90" * 1000, b"\xc1", b"\xc0", b"\x90"),
    *(b"\xcf" + b"\xff" * 8, b"\xd3\x80" + b"\0" * 7, b"\xcb\x7f\xf8" + b"\0" * 6, b"\xa2\xff\xfe"),
    *(b"\xff" * 10, b"\0" * 64, b"\x80" * 12),
)


# ------------------------------------------------------------------------------------------- bytes


def mutate_bytes(random: Random, data: bytes) -> bytes:
    """One change somewhere."""
    at = random.randrange(len(data) + 1)
    end = min(len(data), at + random.choice((1, 1, 2, 4, 8, 12, 64, 1024)))
    match random.randrange(8):
        case 0 | 1 if at < len(data):
            return data[:at] + bytes((data[at] ^ 1 << random.randrange(8),)) + data[at + 1 :]
        case 2 if at < len(data):
            return data[:at] + bytes((random.choice((0, 1, 0x7F, 0x80, 0xFF)),)) + data[at + 1 :]
        case 3:
            return data[:at]
        case 4:
            return data[:at] + data[end:]
        case 5:
            return data[:at] + data[at:end] * random.choice((2, 2, 3, 50)) + data[end:]
        case 6:
            return data[:at] + random.choice(_PIECES) + data[random.choice((at, end)) :]
        case _:
            return data[:at] + random.randbytes(random.choice((1, 2, 8))) + data[end:]


# -------------------------------------------------------------------------------------- MessagePack

_Place = tuple[list[Any] | dict[Any, Any], Any]
"""A container and the index or key of a value in it."""


def mutate_msgpack(random: Random, payload: bytes) -> bytes:
    """Change one value of a MessagePack tree; bytes where there is no tree."""
    try:
        tree = [msgspec.msgpack.decode(payload)]
        places = list(_places(tree))
        container, key = random.choice(places)
        _change(random, container, key, places)
        return msgspec.msgpack.encode(tree[0]) if tree else b""
    except (msgspec.DecodeError, ValueError, TypeError, OverflowError, RecursionError):
        return mutate_bytes(random, payload)


def _places(container: list[Any] | dict[Any, Any]) -> Iterator[_Place]:
    keys: Sequence[Any] = list(container) if isinstance(container, dict) else range(len(container))
    for key in keys:
        yield container, key
        value = container[key]
        if isinstance(value, (list, dict)):
            yield from _places(value)


def _change(random: Random, container: Any, key: Any, places: list[_Place]) -> None:
    value = container[key]
    match random.randrange(10):
        case 0:
            del container[key]
        case 1:
            other, other_key = random.choice(places)
            container[key] = other[other_key]
        case 2 if isinstance(container, list):
            container[key:key] = [value] * random.choice((1, 1, 2, 300))
        case 3 if isinstance(container, list):
            swapped = random.randrange(len(container))
            container[key], container[swapped] = container[swapped], value
        case 4:
            container[key] = random.choice(_ODD)
        case 5:
            container[key] = random.choice(NUMBERS)
        case _:
            container[key] = _changed(random, value)


def _changed(random: Random, value: Any) -> Any:
    """Another value of the same kind."""
    match value:
        case bool():
            return not value
        case int():
            more = random.choice(NUMBERS), random.choice(NUMBERS), random.choice(NUMBERS)
            return random.choice((value + 1, value - 1, -value, value + 1_000_000, *more))
        case float():
            return random.choice((-value, value * 1e300, float("nan"), float("inf"), 2.5))
        case str():
            return random.choice((*TEXTS, value[:-1], value + value, value + "\U0001f511", value * 100))
        case bytes():
            return random.choice((mutate_bytes(random, value), value[:-1], value[:-4], value * 2, value * 99))
        case list():
            return random.choice((value[:-1], value[::-1], value * 2, [value], value[1:]))
        case dict():
            return {random.choice(TEXTS): None, **value}
        case _:
            return random.choice(NUMBERS)


# ------------------------------------------------------------------------------------------ scripts


class Message(NamedTuple):
    """One message of a script; what `kind`, a byte, means is the target's affair."""

    kind: int
    payload: bytes


def join(messages: Sequence[Message]) -> bytes:
    """A script as an input: kind, three bytes of length (little-endian) and payload of each message."""
    return b"".join(
        bytes((kind,)) + len(payload).to_bytes(3, "little") + payload for kind, payload in messages
    )


def split(data: bytes) -> list[Message]:
    """The script that any input is."""
    messages: list[Message] = []
    at = 0
    while at < len(data) and len(messages) < MAX_MESSAGES:
        start = at + 4
        end = start + int.from_bytes(data[at + 1 : start], "little")
        messages.append(Message(data[at], data[start:end]))
        at = end
    return messages


def script_parts(data: bytes) -> list[bytes]:
    """The messages of a script as inputs of their own."""
    return [join([message]) for message in split(data)]


def script_mutation(mutate_payload: Mutate, kinds: Callable[[Random], int]) -> Mutate:
    """Changes of a script: of a payload, of a kind, or of the order of messages."""

    def mutate(random: Random, data: bytes) -> bytes:
        messages = split(data)
        if not messages or random.randrange(20) == 0:
            return mutate_bytes(random, data)
        at = random.randrange(len(messages))
        kind, payload = messages[at]
        match random.randrange(10):
            case 0:
                messages[at] = Message(kinds(random), payload)
            case 1:
                del messages[at]
            case 2:
                messages.insert(at, messages[at])
            case 3:
                other = random.randrange(len(messages))
                messages[at], messages[other] = messages[other], messages[at]
            case 4:
                messages[at] = Message(kind, mutate_bytes(random, payload))
            case _:
                messages[at] = Message(kind, mutate_payload(random, payload))
        return join(messages)

    return mutate
