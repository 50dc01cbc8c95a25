"""KV buckets: what there is one of, read as a value, written unconditionally or by compare-and-set.

A watch is a reader of the bucket's stream that begins with the last value of each key at every
opening, so nothing a server restart did escapes it: values come again (with their revision, so a
watcher may skip what it knows) and keys that vanished are reported as gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from inferencecache.core.log import jetstream
from inferencecache.core.log.connection import Log, Subscription
from inferencecache.core.log.publisher import WrongLastSequenceError
from inferencecache.core.log.reader import Reader, Start, StreamMessage
from inferencecache.core.protocol.position import Lost

_OPERATION: Final = "KV-Operation"
_MARKER: Final = "Nats-Marker-Reason"
_RETRY_S: Final = 0.5
_READ_AT_ONCE: Final = 64


class Entry(NamedTuple):
    """A key's value; `revision` grows with every write to the bucket."""

    key: str
    value: bytes
    revision: int


class Gone(NamedTuple):
    """In a watch: the key has no value any more. `revision` 0: it vanished with its bucket, or unseen."""

    key: str
    revision: int


class Bucket:
    """One bucket. Keys are made of `[-/_=.a-zA-Z0-9]`; `subjects.escape` makes such tokens of ids."""

    def __init__(self, log: Log, name: str) -> None:
        self.name = name
        self._log = log
        self._stream = f"KV_{name}"
        self._prefix = f"$KV.{name}."

    async def get(self, key: str) -> Entry | None:
        """The current value. Raises NoStreamError when there is no such bucket."""
        stored = await jetstream.read_message(self._log, self._stream, last_of=self._prefix + key)
        if stored is None or _is_deletion(stored.headers):
            return None
        return Entry(key, stored.payload, stored.sequence)

    async def at(self, key: str, revision: int) -> Entry | None:
        """The value that was written as this revision, if the bucket's history still has it."""
        stored = await jetstream.read_message(self._log, self._stream, sequence=revision)
        if stored is None or stored.subject != self._prefix + key or _is_deletion(stored.headers):
            return None
        return Entry(key, stored.payload, revision)

    async def entries(self, *, keys: str = ">") -> list[Entry]:
        """All current values, or those of keys that match a pattern, each read by itself, in order of keys.

        A key that changes meanwhile shows its later value. Raises NoStreamError.
        """
        info = await jetstream.stream_info(self._log, self._stream, subjects=self._prefix + keys)
        names = [subject[len(self._prefix) :] for subject in sorted(info.state.subjects or ())]
        found: list[Entry | None] = []
        for start in range(0, len(names), _READ_AT_ONCE):
            found += await asyncio.gather(*map(self.get, names[start : start + _READ_AT_ONCE]))
        return [entry for entry in found if entry is not None]

    async def put(self, key: str, value: bytes, *, timeout_s: float = 5.0) -> int:
        """Write whatever was there before; the revision. Raises NotStoredError."""
        return (await self._log.publisher.publish(self._prefix + key, value, timeout_s=timeout_s)).sequence

    async def create(self, key: str, value: bytes) -> int:
        """Write a key that has no value. Raises WrongLastSequenceError when it has one, NotStoredError."""
        try:
            return await self.update(key, value, 0)
        except WrongLastSequenceError as error:
            stored = await jetstream.read_message(self._log, self._stream, sequence=error.last)
            if stored is None or not _is_deletion(stored.headers):
                raise
        return await self.update(key, value, stored.sequence)

    async def update(self, key: str, value: bytes, revision: int) -> int:
        """Write if the key's last revision is still `revision` (0: none). Raises WrongLastSequenceError.

        A lost acknowledgement shows as that error too: who must know reads the key.
        """
        ack = await self._log.publisher.publish(
            self._prefix + key, value, expect_last_subject_sequence=revision
        )
        return ack.sequence

    async def delete(self, key: str, revision: int | None = None, *, timeout_s: float = 5.0) -> None:
        """Take the value away, if `revision` is given only if the key's last one is still that.

        Raises WrongLastSequenceError as `update` does, NotStoredError.
        """
        await self._log.publisher.publish(
            self._prefix + key,
            b"",
            expect_last_subject_sequence=revision,
            headers={_OPERATION: "DEL"},
            timeout_s=timeout_s,
        )

    async def listen(self, key: str, written: Callable[[], None]) -> Subscription:
        """Call `written` whenever somebody writes the key, as core NATS tells it.

        It costs the server less than a watch and promises nothing: a sign may be missed, come before the
        bucket shows the value, or be about a write that is refused.
        """
        return await self._log.subscribe(self._prefix + key, lambda _: written())

    def watch(
        self, changed: Callable[[Entry | Gone], None], *, keys: str = ">", heartbeat_s: float = 1.0
    ) -> Watch:
        """Call `changed` with every current value, then with every change. Run the result."""
        return Watch(self._log, self._stream, self._prefix, keys, changed, heartbeat_s)


class Watch:
    """A running view of a bucket, or of the keys that match a pattern. `ready` once all current values came.

    A bucket that does not exist (yet, or any more) is waited for; its keys are reported as gone.
    """

    def __init__(
        self,
        log: Log,
        stream: str,
        prefix: str,
        keys: str,
        changed: Callable[[Entry | Gone], None],
        heartbeat_s: float,
    ) -> None:
        self._log = log
        self._stream = stream
        self._prefix = prefix
        self._keys = keys
        self._changed = changed
        self._heartbeat_s = heartbeat_s
        self._known: dict[str, int] = {}
        self._seen: set[str] | None = None
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            reader = Reader(
                self._log,
                self._stream,
                Start.LAST_PER_SUBJECT,
                self._deliver,
                self._lost,
                subjects=[self._prefix + self._keys],
                name="watch",
                heartbeat_s=self._heartbeat_s,
                on_open=self._opened,
            )
            await reader.run()
            await asyncio.sleep(_RETRY_S)

    def _opened(self, pending: int) -> None:
        self._seen = set()
        if pending == 0:
            self._all_current_seen()

    def _deliver(self, messages: list[StreamMessage]) -> None:
        for message in messages:
            key = message.subject[len(self._prefix) :]
            revision = message.position.sequence
            if _is_deletion(message.headers):
                self._gone(key, revision)
            else:
                self._known[key] = revision
                if self._seen is not None:
                    self._seen.add(key)
                self._changed(Entry(key, message.payload, revision))
            if message.pending == 0:
                self._all_current_seen()

    def _all_current_seen(self) -> None:
        seen, self._seen = self._seen, None
        if seen is not None:
            for key in [key for key in self._known if key not in seen]:
                self._gone(key, 0)
        self.ready.set()

    def _gone(self, key: str, revision: int) -> None:
        if self._known.pop(key, None) is not None:
            self._changed(Gone(key, revision))

    def _lost(self, lost: Lost) -> None:
        for key in list(self._known):
            self._gone(key, 0)


def _is_deletion(headers: Mapping[str, str]) -> bool:
    return headers.get(_OPERATION, "") in ("DEL", "PURGE") or _MARKER in headers
