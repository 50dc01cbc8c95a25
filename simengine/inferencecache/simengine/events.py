"""What a cache tells about itself, in no engine's words; a `Form` writes it as one engine would."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from inferencecache.simengine.cache import BlockHash, Stored

Encoding = Literal["map", "tuple"]
Place = Literal["device", "host"]


class BlocksStored(NamedTuple):
    """Blocks became reusable, or were copied to the host."""

    run: Stored
    place: Place = "device"


class BlocksRemoved(NamedTuple):
    """Blocks were evicted from one place."""

    hashes: Sequence[BlockHash]
    place: Place = "device"


class AllCleared(NamedTuple):
    """The whole cache was reset, in all places."""


Event = BlocksStored | BlocksRemoved | AllCleared


class Form(Protocol):
    """How one engine, in some of its releases, writes events."""

    def wire_hash(self, hash_: BlockHash) -> int | bytes:
        """A block's hash as the engine shows it."""

    def payload(self, events: Sequence[Event], time_s: float) -> bytes:
        """Payload of one message; `time_s` is Unix time. Rank 0, as with one data-parallel rank."""


class UnwritableError(ValueError):
    """An engine has no words for what it should say; the message names the setting to change."""
