"""The fake engine: a publisher that repeats one message, for smoke tests of a sidecar [SUB-190..202].

All events ride in one message, so a subscriber that comes late never sees a suffix without its parent
[SUB-198]. Nothing here does I/O: `messages` says what is sent, `expectation` what the index must show.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, Literal, NamedTuple

import msgspec

from inferencecache.core.fingerprint import prefix_hashes
from inferencecache.simengine.events import Encoding
from inferencecache.simengine.vllm_form import HashKind

FIRST_HASH: Final = 0xE000
MAX_TOKENS: Final = 2**24

Kind = Literal["stored", "removed", "cleared"]


class RejectedError(ValueError):
    """The settings are readable, but nothing can be published with them; exit code 1 [SUB-201]."""


@dataclass(frozen=True)
class FakeSettings:
    """What is published. Raises `RejectedError` when it cannot be [SUB-201].

    `evict_after` is the number of messages after which the blocks are removed instead of stored,
    `clear_every` says which messages clear everything, `restart_every` after how many the numbers begin
    anew, `count` how many there are; 0 is never, and for `count` endlessly many.
    """

    block_size: int = 128
    num_blocks: int = 1
    events: int = 1
    start_token: int = 0
    interval_s: float = 0.5
    omit_token_ids: bool = False
    encoding: Encoding = "tuple"
    hash_kind: HashKind = "int"
    lora_id: int | None = None
    lora_name: str | None = None
    medium: str | None = None
    evict_after: int = 0
    clear_every: int = 0
    restart_every: int = 0
    count: int = 0

    def __post_init__(self) -> None:
        tokens = self.block_size * self.num_blocks
        wrong = {
            "--block-size must be at least 1": self.block_size < 1,
            "--num-blocks must be at least 1": self.num_blocks < 1,
            f"--block-size times --num-blocks must be at most {MAX_TOKENS}": tokens > MAX_TOKENS,
            "--start-token must be at least 0": self.start_token < 0,
            "the last token must be below 2**32; lower --start-token": self.start_token + tokens > 2**32,
            "--interval must be above 0": self.interval_s <= 0,
            "--evict-after must be at least 0": self.evict_after < 0,
            "--clear-every must be at least 0": self.clear_every < 0,
            "--restart-every must be at least 0": self.restart_every < 0,
            "--count must be at least 0": self.count < 0,
            "--events must be at least 1 and at most --num-blocks": not 1 <= self.events <= self.num_blocks,
        }
        for message, is_wrong in wrong.items():
            if is_wrong:
                raise RejectedError(message)

    @property
    def tokens(self) -> range:
        """All token ids, in order."""
        return range(self.start_token, self.start_token + self.block_size * self.num_blocks)


class Message(NamedTuple):
    """What one message says; `restarts` marks the first of another process."""

    kind: Kind
    restarts: bool


def messages(settings: FakeSettings) -> Iterator[Message]:
    """What is sent, in order."""
    for number in count(1):
        if number > settings.count > 0:
            return
        restarts = settings.restart_every > 0 and number > 1 and (number - 1) % settings.restart_every == 0
        yield Message(_kind(settings, number), restarts)


def _kind(settings: FakeSettings, number: int) -> Kind:
    if settings.clear_every and number % settings.clear_every == 0:
        return "cleared"
    return "removed" if number > settings.evict_after > 0 else "stored"


def payload(settings: FakeSettings, kind: Kind = "stored", time_s: float = 0.0) -> bytes:
    """One message: a time and events, and no rank [SUB-198, SUB-199]."""
    return msgspec.msgpack.encode([time_s, list(_events(settings, kind))])


def _events(settings: FakeSettings, kind: Kind) -> Iterator[object]:
    match kind:
        case "stored":
            yield from _stored(settings)
        case "removed":
            hashes = [_hash(settings, block) for block in range(settings.num_blocks)]
            yield _event(settings, "BlockRemoved", {"block_hashes": hashes}, {"medium": settings.medium})
        case "cleared":
            yield _event(settings, "AllBlocksCleared", {}, {})


def _stored(settings: FakeSettings) -> Iterator[object]:
    first = 0
    for index in range(settings.events):
        blocks = settings.num_blocks // settings.events + (index < settings.num_blocks % settings.events)
        tokens = settings.tokens[first * settings.block_size : (first + blocks) * settings.block_size]
        fields = {
            "block_hashes": [_hash(settings, block) for block in range(first, first + blocks)],
            "parent_block_hash": _hash(settings, first - 1) if first else None,
            "token_ids": None if settings.omit_token_ids else list(tokens),
            "block_size": settings.block_size,
            "lora_id": settings.lora_id,
        }
        yield _event(
            settings, "BlockStored", fields, {"medium": settings.medium, "lora_name": settings.lora_name}
        )
        first += blocks


def _hash(settings: FakeSettings, block: int) -> int | bytes:
    number = FIRST_HASH + block
    return number if settings.hash_kind == "int" else number.to_bytes(32, "big")


def _event(settings: FakeSettings, type_: str, fields: dict[str, Any], newer: dict[str, Any]) -> object:
    """An event with the fields that every release has, and newer ones if any of them is wanted."""
    if any(value is not None for value in newer.values()):
        fields |= newer
    return {"type": type_, **fields} if settings.encoding == "map" else (type_, *fields.values())


def expectation(settings: FakeSettings) -> str:
    """What the index must show, a line a block [SUB-200]."""
    if settings.omit_token_ids:
        return "EXPECT no index entries: the events carry no token ids"
    size = settings.block_size
    return "\n".join(
        f"EXPECT prefix_hash[{block}]={key:016x} token_count={(block + 1) * size}"
        for block, key in enumerate(prefix_hashes(settings.tokens, size))
    )
