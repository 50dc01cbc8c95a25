"""From ZMQ message parts to topic, number and payload: the engine's framing, and nothing of its content.

Live messages and replayed ones are both read from their tail, because engines put a topic, or
nothing, in front [SUB-011, SUB-012, SUB-054].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

END_OF_REPLAY: Final = 2**64 - 1
_NUMBER_BYTES: Final = 8


class Frame(NamedTuple):
    """A live message. `sequence` is None when it carries no number, `malformed` when the number's part is
    not one.
    """

    payload: bytes
    sequence: int | None = None
    malformed: bool = False


class Reply(NamedTuple):
    """One message of a replay; number `END_OF_REPLAY` ends it."""

    sequence: int
    payload: bytes


def read_message(parts: Sequence[bytes]) -> Frame | None:
    """A live message from its parts; None when there are none [SUB-012]."""
    if not parts:
        return None
    if len(parts) < 3:
        return Frame(parts[-1])
    if len(parts[-2]) != _NUMBER_BYTES:
        return Frame(parts[-1], malformed=True)
    return Frame(parts[-1], int.from_bytes(parts[-2], "big"))


def read_reply(parts: Sequence[bytes]) -> Reply | None:
    """One message of a replay from its parts, in both shapes; None when it is neither [SUB-054]."""
    rest = parts[1:] if parts and not parts[0] else parts
    if len(rest) < 2 or len(rest[-2]) != _NUMBER_BYTES:
        return None
    return Reply(int.from_bytes(rest[-2], "big"), rest[-1])


def replay_request(first: int) -> list[bytes]:
    """Parts that ask for every kept message from number `first` on."""
    return [b"", first.to_bytes(_NUMBER_BYTES, "big")]
