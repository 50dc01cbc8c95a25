"""A slice of the log as a file: what one needs to replay it anywhere, format version 1.

A sequence of frames, each with a section in MessagePack: the header; then, partition by partition, the
base in pieces and the messages behind it without a hole; the policy sets that were in force; and the end,
which seals the frames before it. Messages are as the log has them, subject and payload. So a slice has what
the log has and no more: hashes, ids and figures, no prompt and no token.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from inferencecache.core.index.framing import DamagedFrameError, FrameReader, FrameWriter
from inferencecache.schemas.layout import Layout
from inferencecache.schemas.positions import Position
from inferencecache.schemas.unreadable import UNREADABLE

SLICE_FORMAT: Final = 1
MAGIC: Final = b"inferencecache slice\n"
_MESSAGES: Final = 2048
_MESSAGE_BYTES: Final = 1 << 20
"""Messages in a frame: no more than these, or about so many bytes."""


class UnreadableSliceError(Exception):
    """A file that is no slice, of an unknown format, damaged or incomplete."""


class RawMessage(NamedTuple):
    """A message of an events stream as it was stored."""

    subject: str
    payload: bytes
    position: Position


class _Section(msgspec.Struct, frozen=True, array_like=True, tag_field="t"):
    """Base of all sections; tag numbers never change and are never reused."""


class _Header(_Section, frozen=True, tag=1):
    """`layout` is the generation that the slice is of."""

    format: int
    layout: Layout


class _Partition(_Section, frozen=True, tag=2):
    """What follows is of this partition; `at` is the last message in its base, 0 for the start of the log."""

    partition: int
    at: Position


class _Base(_Section, frozen=True, tag=3):
    """A piece of the base, a snapshot."""

    piece: bytes


class _Messages(_Section, frozen=True, tag=4):
    """Messages in a row from `first` on; `times_ns` are int64, little-endian, `subjects` each named once."""

    first: int
    created_ns: int
    times_ns: bytes
    subjects: tuple[str, ...]
    subject_of: tuple[int, ...]
    payloads: tuple[bytes, ...]


class _Policy(_Section, frozen=True, tag=5):
    """The value of the policy set at this revision."""

    revision: int
    document: bytes


class _End(_Section, frozen=True, tag=6):
    """`seal` is that of all frames before this one."""

    seal: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Header | _Partition | _Base | _Messages | _Policy | _End)


# --------------------------------------------------------------------------------------------- writing


class SliceWriter:
    """Hands a slice to `write` as it grows."""

    def __init__(self, write: Callable[[bytes], object], layout: Layout) -> None:
        self._write = write
        self._frames = FrameWriter()
        self._waiting: list[RawMessage] = []
        self._waiting_bytes = 0
        write(MAGIC)
        self._put(_Header(SLICE_FORMAT, layout))

    def begin(self, partition: int, at: Position, base: Iterable[bytes]) -> None:
        """Go on with another partition; `base` are the bytes of a snapshot taken behind message `at`,
        none for the start of the log.
        """
        self._flush()
        self._put(_Partition(partition, at))
        for piece in base:
            self._put(_Base(piece))

    def add(self, message: RawMessage) -> None:
        """The partition's next message."""
        self._waiting.append(message)
        self._waiting_bytes += len(message.payload)
        if len(self._waiting) >= _MESSAGES or self._waiting_bytes >= _MESSAGE_BYTES:
            self._flush()

    def end(self, policies: Mapping[int, bytes]) -> None:
        """All is said but for the policy sets, which are given by revision."""
        self._flush()
        for revision, document in sorted(policies.items()):
            self._put(_Policy(revision, document))
        self._put(_End(self._frames.seal))

    def _flush(self) -> None:
        messages, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if not messages:
            return
        subjects: dict[str, int] = {}
        subject_of = tuple(subjects.setdefault(message.subject, len(subjects)) for message in messages)
        times = struct.pack(f"<{len(messages)}q", *(message.position.time_ns for message in messages))
        first, payloads = messages[0].position, tuple(message.payload for message in messages)
        self._put(_Messages(first.sequence, first.created_ns, times, tuple(subjects), subject_of, payloads))

    def _put(self, section: _Section) -> None:
        self._write(self._frames.frame(_encoder.encode(section)))


# --------------------------------------------------------------------------------------------- reading


class PartitionSlice:
    """One partition's part of a slice. `at` is the last message in its base, 0 for the start of the log."""

    def __init__(self, at: Position) -> None:
        self.at = at
        self.base: list[bytes] = []
        self._parts: list[_Messages] = []

    @property
    def count(self) -> int:
        """The number of messages."""
        return sum(len(part.payloads) for part in self._parts)

    @property
    def last(self) -> Position:
        """The last message, or that of the base."""
        if not self._parts:
            return self.at
        part = self._parts[-1]
        (time_ns,) = struct.unpack("<q", part.times_ns[-8:])
        return Position(part.first + len(part.payloads) - 1, time_ns, part.created_ns)

    def messages(self) -> Iterator[RawMessage]:
        """All messages in order."""
        for part in self._parts:
            times = struct.iter_unpack("<q", part.times_ns)
            for number, (payload, of, (time_ns,)) in enumerate(
                zip(part.payloads, part.subject_of, times, strict=True)
            ):
                position = Position(part.first + number, time_ns, part.created_ns)
                yield RawMessage(part.subjects[of], payload, position)

    def add(self, part: _Messages) -> None:
        """Take the next messages. Raises `UnreadableSliceError` where one is missing."""
        count = len(part.payloads)
        if not count or len(part.subject_of) != count or len(part.times_ns) != 8 * count:
            raise UnreadableSliceError("columns of different lengths")
        if not all(0 <= of < len(part.subjects) for of in part.subject_of):
            raise UnreadableSliceError("a message without a subject")
        last = self.last
        if part.first != last.sequence + 1 or last.created_ns not in (0, part.created_ns):
            raise UnreadableSliceError(f"messages are missing before {part.first}")
        self._parts.append(part)


class Slice:
    """A slice that was read: of a generation's `layout`, its partitions by number, and the policy sets by
    revision.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.partitions: dict[int, PartitionSlice] = {}
        self.policies: dict[int, bytes] = {}


def read_slice(chunks: Iterable[bytes]) -> Slice:
    """The slice of a file's bytes, cut anywhere. Raises `UnreadableSliceError`."""
    reader = _Reader()
    head = b""
    for chunk in chunks:
        if len(head) < len(MAGIC):
            head += chunk
            if len(head) < len(MAGIC):
                continue
            if not head.startswith(MAGIC):
                raise UnreadableSliceError("the file is no slice")
            reader.feed(head[len(MAGIC) :])
        else:
            reader.feed(chunk)
    return reader.finish()


class _Reader:
    def __init__(self) -> None:
        self._frames = FrameReader()
        self._slice: Slice | None = None
        self._current: PartitionSlice | None = None
        self._is_ended = False

    def feed(self, chunk: bytes) -> None:
        try:
            for payload in self._frames.feed(chunk):
                self._take(payload)
        except DamagedFrameError as error:
            raise UnreadableSliceError(str(error)) from None

    def finish(self) -> Slice:
        if self._slice is None or not (self._is_ended and self._frames.is_whole):
            raise UnreadableSliceError("the slice is incomplete")
        return self._slice

    def _take(self, payload: bytes) -> None:
        try:
            section = _decoder.decode(payload)
        except UNREADABLE as error:
            raise UnreadableSliceError(f"a section of {len(payload)} bytes: {error}") from None
        if isinstance(section, _Header) != (self._slice is None) or self._is_ended:
            raise UnreadableSliceError(f"{type(section).__name__} out of place")
        match section:
            case _Header():
                if section.format != SLICE_FORMAT:
                    text = f"slice format {section.format}, this version reads {SLICE_FORMAT}"
                    raise UnreadableSliceError(text)
                self._slice = Slice(section.layout)
            case _End():
                if section.seal != self._frames.seal:
                    raise UnreadableSliceError("frames are missing, repeated or out of place")
                self._is_ended = True
            case _ if self._slice is not None:
                self._read(self._slice, section)

    def _read(self, slice_: Slice, section: _Section) -> None:
        match section:
            case _Partition():
                is_new = section.partition not in slice_.partitions
                if not is_new or not 0 <= section.partition < slice_.layout.partitions:
                    raise UnreadableSliceError(f"partition {section.partition} out of place")
                self._current = slice_.partitions[section.partition] = PartitionSlice(section.at)
            case _Policy():
                slice_.policies[section.revision] = section.document
            case _Base() if self._current is not None and not self._current.count:
                self._current.base.append(section.piece)
            case _Messages() if self._current is not None:
                self._current.add(section)
            case _:
                raise UnreadableSliceError(f"{type(section).__name__} out of place")
