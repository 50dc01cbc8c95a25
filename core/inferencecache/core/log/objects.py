"""Objects: large values in chunks, in the layout of JetStream's object store (`nats object` reads them).

Names are unique and written once, so an object never changes under its reader. Reading asks for one
chunk at a time: memory stays at a chunk however slow the consumer is, and a chunk that does not come
within the idle limit ends the reading: damaged is what the server answers to be so, what it does not
answer says nothing about the object.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, NoReturn

import msgspec

from inferencecache.core.log import jetstream
from inferencecache.core.log.connection import Log
from inferencecache.core.log.inbox import NoAnswerError
from inferencecache.schemas.unreadable import UNREADABLE

CHUNK_BYTES: Final = 1024 * 1024
IDLE_LIMIT_S: Final = 5.0
_POLL_S: Final = 0.05
_DIGEST: Final = "SHA-256="


class ObjectMissingError(Exception):
    """There is no object of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no object {name}")
        self.name = name


class ObjectDamagedError(Exception):
    """Chunks are missing, or are not what was written: reading it again will not help."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"object {name}: {reason}")
        self.name = name
        self.reason = reason


class StoredObject(NamedTuple):
    """What an object is; `size` in bytes, `written_s` the writer's clock in seconds since the Unix epoch."""

    name: str
    size: int
    digest: str
    written_s: float


class _Meta(msgspec.Struct):
    name: str
    bucket: str
    nuid: str
    size: int = 0
    chunks: int = 0
    digest: str = ""
    mtime: str = ""
    deleted: bool = False
    options: dict[str, Any] = {}


class Objects:
    """One object store."""

    def __init__(self, log: Log, bucket: str) -> None:
        self.bucket = bucket
        self._log = log
        self._stream = f"OBJ_{bucket}"

    async def put(self, name: str, chunks: Iterable[bytes] | AsyncIterable[bytes]) -> StoredObject:
        """Store an object under a new name. Raises NotStoredError; nothing is visible until all is stored.

        Pieces of any size are repacked into chunks of 1 MiB, or of what one message may carry.
        """
        chunk_bytes = min(CHUNK_BYTES, self._log.publisher.payload_limit)
        chunk_id = _chunk_id(name)
        digest = hashlib.sha256()
        size = count = 0
        async for chunk in _repack(chunks, chunk_bytes):
            digest.update(chunk)
            size += len(chunk)
            count += 1
            await self._log.publisher.publish(
                self._chunks(chunk_id), chunk, msg_id=f"{chunk_id}.{count}", timeout_s=IDLE_LIMIT_S
            )
        written = datetime.now(UTC)
        meta = _Meta(
            name=name,
            bucket=self.bucket,
            nuid=chunk_id,
            size=size,
            chunks=count,
            digest=_DIGEST + base64.urlsafe_b64encode(digest.digest()).decode(),
            mtime=written.isoformat(),
            options={"max_chunk_size": chunk_bytes},
        )
        await self._log.publisher.publish(
            self._meta(name),
            msgspec.json.encode(meta),
            headers={"Nats-Rollup": "sub"},
            timeout_s=IDLE_LIMIT_S,
        )
        return StoredObject(name, size, meta.digest, written.timestamp())

    async def read(self, name: str) -> AsyncIterator[bytes]:
        """The chunks in order; believe them only when the iteration has ended without an error.

        Raises ObjectMissingError, ObjectDamagedError; NoAnswerError, ApiError: it is out of reach for now.
        """
        meta = await self._read_meta(name)
        subject = self._chunks(meta.nuid)
        digest = hashlib.sha256()
        size = 0
        sequence = 1
        for number in range(meta.chunks):
            stored = await self._next_chunk(name, subject, sequence, number)
            sequence = stored.sequence + 1
            size += len(stored.payload)
            digest.update(stored.payload)
            yield stored.payload
        if size != meta.size:
            raise ObjectDamagedError(name, f"{size} bytes of {meta.size}")
        if _DIGEST + base64.urlsafe_b64encode(digest.digest()).decode() != meta.digest:
            raise ObjectDamagedError(name, "the digest differs")

    async def purge(self, name: str) -> None:
        """Remove the object without leaving a tombstone; one that is gone is no error."""
        await jetstream.purge_stream(self._log, self._stream, subject=self._meta(name))
        await jetstream.purge_stream(self._log, self._stream, subject=self._chunks(_chunk_id(name)))

    async def stored(self, prefix: str = "") -> list[StoredObject]:
        """All whole objects whose names begin with `prefix`."""
        found: list[StoredObject] = []
        for token in await self._subjects("M"):
            name = _name_of(token)
            if name is not None and name.startswith(prefix):
                try:
                    meta = await self._read_meta(name)
                except ObjectMissingError:
                    continue  # purged since
                found.append(StoredObject(name, meta.size, meta.digest, _seconds(meta.mtime)))
        return found

    async def room(self) -> int:
        """Bytes that the store may hold in all, -1 for no limit."""
        return int((await jetstream.stream_info(self._log, self._stream)).config.get("max_bytes", -1))

    async def unfinished(self, prefix: str = "") -> list[StoredObject]:
        """Uploads that still run, or were interrupted: chunks without a description, the last one's time."""
        whole = set(await self._subjects("M"))
        found: list[StoredObject] = []
        for token in await self._subjects("C"):
            name = _name_of(token)
            if name is None or not name.startswith(prefix):
                continue
            if self._meta(name).rpartition(".")[2] not in whole:
                last = await jetstream.read_message(self._log, self._stream, last_of=self._chunks(token))
                if last is not None:
                    found.append(StoredObject(name, 0, "", last.time_ns / 1e9))
        return found

    async def _subjects(self, kind: str) -> list[str]:
        prefix = f"$O.{self.bucket}.{kind}."
        info = await jetstream.stream_info(self._log, self._stream, subjects=prefix + ">")
        return [subject[len(prefix) :] for subject in info.state.subjects or ()]

    async def _read_meta(self, name: str) -> _Meta:
        stored = await jetstream.read_message(self._log, self._stream, last_of=self._meta(name))
        if stored is None:
            raise ObjectMissingError(name)
        try:
            meta = msgspec.json.decode(stored.payload, type=_Meta)
        except UNREADABLE as error:
            raise ObjectDamagedError(name, f"unreadable description: {error}") from None
        if meta.deleted:
            raise ObjectMissingError(name)
        return meta

    async def _next_chunk(
        self, name: str, subject: str, sequence: int, number: int
    ) -> jetstream.StoredMessage:
        """A replica of the stream may lag behind its leader, so a missing chunk is awaited."""
        deadline = time.monotonic() + IDLE_LIMIT_S
        while True:
            stored = await jetstream.read_direct(
                self._log, self._stream, sequence=sequence, next_of=subject, timeout_s=IDLE_LIMIT_S
            )
            if stored is not None:
                return stored
            if time.monotonic() >= deadline:
                await self._give_up(name, subject, sequence, number)
            await asyncio.sleep(_POLL_S)

    async def _give_up(self, name: str, subject: str, sequence: int, number: int) -> NoReturn:
        """Whether the chunk is missing, or only from replicas that lag, the stream's leader knows."""
        last = await jetstream.read_message(self._log, self._stream, last_of=subject)
        if last is None or last.sequence < sequence:
            raise ObjectDamagedError(name, f"chunk {number} is not there")
        raise NoAnswerError(subject, "timeout")

    def _chunks(self, chunk_id: str) -> str:
        return f"$O.{self.bucket}.C.{chunk_id}"

    def _meta(self, name: str) -> str:
        return f"$O.{self.bucket}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"


def _seconds(rfc3339: str) -> float:
    return jetstream.nanoseconds(rfc3339) / 1e9


def _chunk_id(name: str) -> str:
    """Token of an object's chunks; it tells the name, so that what an interrupted upload left has one too."""
    return base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")


def _name_of(token: str) -> str | None:
    """The name that a token tells; None of what was stored with another tool, whose chunks tell none."""
    try:
        return base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
    except ValueError:
        return None


async def _repack(pieces: Iterable[bytes] | AsyncIterable[bytes], size: int) -> AsyncIterator[bytes]:
    """Pieces of `size` bytes, the last one shorter."""
    waiting = bytearray()
    async for piece in _each(pieces):
        if not waiting and len(piece) == size:
            yield piece
            continue
        waiting += piece
        while len(waiting) >= size:
            yield bytes(waiting[:size])
            del waiting[:size]
    if waiting:
        yield bytes(waiting)


async def _each(pieces: Iterable[bytes] | AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    if isinstance(pieces, AsyncIterable):
        async for piece in pieces:
            yield piece
    else:
        for piece in pieces:
            yield piece
