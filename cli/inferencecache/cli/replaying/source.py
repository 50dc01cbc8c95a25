"""Where a replay reads from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from inferencecache.cli.connected import CommandError
from inferencecache.core.replay import Point, RawMessage
from inferencecache.schemas.layout import Layout
from inferencecache.schemas.positions import Position


class UnusableBaseError(Exception):
    """A snapshot cannot be read; another one may."""


class LogCutError(CommandError):
    """Messages went from the log while they were read."""


class Base(NamedTuple):
    """Where a replay can begin: behind message `at`. `load` gives the bytes of the snapshot, none for the
    start of the log, and raises `UnusableBaseError`.
    """

    name: str
    at: Position
    load: Callable[[], Awaitable[Sequence[bytes]]]


class Source(Protocol):
    """The log of one generation of the layout."""

    @property
    def layout(self) -> Layout:
        """The generation."""
        ...

    @property
    def partitions(self) -> Sequence[int]:
        """Those that can be read."""
        ...

    @property
    def now_ns(self) -> int:
        """The moment that a time "ago" counts from."""
        ...

    async def bases(self, partition: int) -> list[Base]:
        """Where replays of a partition can begin, the oldest first."""
        ...

    async def last(self, partition: int) -> int:
        """The log sequence of the partition's last message."""
        ...

    async def read(
        self, partition: int, after: Position, until: Point | None, take: Callable[[RawMessage], None]
    ) -> None:
        """Hand over the messages behind a position, up to a point or to what is last now.

        Raises `LogCutError`.
        """
        ...

    async def policy_set(self, revision: int) -> bytes | None:
        """The policy set of a revision, if it is still known."""
        ...
