"""A slice in a file as a source: no network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from inferencecache.cli.connected import CommandError
from inferencecache.cli.replaying.source import Base
from inferencecache.core.replay import Point, RawMessage, Slice, UnreadableSliceError, read_slice
from inferencecache.schemas.layout import Layout
from inferencecache.schemas.positions import Position

_CHUNK_BYTES = 1 << 20


class SlicedLog:
    """The log as far as a slice has it."""

    def __init__(self, slice_: Slice) -> None:
        self._slice = slice_

    @classmethod
    def open(cls, path: Path, generation: int | None) -> SlicedLog:
        """Read a file, which has to be of that generation if one is given. Raises `CommandError`."""
        try:
            read = read_slice(_chunks(path))
        except OSError as error:
            raise CommandError(f"cannot read {path}: {error.strerror}") from None
        except UnreadableSliceError as error:
            raise CommandError(f"{path}: {error}; export it again") from None
        has = read.layout.generation
        if generation is not None and generation != has:
            raise CommandError(f"{path} is of generation {has}, not {generation}; leave --generation out")
        return cls(read)

    @property
    def layout(self) -> Layout:
        return self._slice.layout

    @property
    def partitions(self) -> Sequence[int]:
        return sorted(self._slice.partitions)

    @property
    def now_ns(self) -> int:
        return max((part.last.time_ns for part in self._slice.partitions.values()), default=0)

    async def bases(self, partition: int) -> list[Base]:
        part = self._slice.partitions[partition]

        async def load() -> Sequence[bytes]:
            return part.base

        return [Base("the slice's base", part.at, load)]

    async def last(self, partition: int) -> int:
        return self._slice.partitions[partition].last.sequence

    async def read(
        self, partition: int, after: Position, until: Point | None, take: Callable[[RawMessage], None]
    ) -> None:
        for message in self._slice.partitions[partition].messages():
            if until is not None and until.offset(message.position) > 0:
                return
            if message.position.sequence > after.sequence:
                take(message)

    async def policy_set(self, revision: int) -> bytes | None:
        return self._slice.policies.get(revision)


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk
