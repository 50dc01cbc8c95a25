"""Writing `IC_POLICY` by compare-and-set, and only what differs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from inferencecache.controller.reconciling.queue import RetryError
from inferencecache.core.log import (
    ApiError,
    Bucket,
    Entry,
    Gone,
    Log,
    NoAnswerError,
    NotStoredError,
    WrongLastSequenceError,
    finds_no_stream,
)
from inferencecache.core.log.subjects import POLICY

CALL_LIMIT_S: Final = 5.0
"""Longest round trip to the bucket [CTL-05]."""
RETRY_WITHIN_S: Final = 5.0
"""How soon something is written that could not be, however long NATS was away."""
_ATTEMPTS: Final = 5

_T = TypeVar("_T")


class IntentBucket:
    """The bucket, and who hears of its changes. All calls raise `RetryError`."""

    def __init__(
        self,
        log: Log,
        changed: Callable[[str], None],
        may_write: Callable[[], bool] = lambda: True,
        on_missing: Callable[[], None] = lambda: None,
    ) -> None:
        """`changed` is called with the key of every change, whoever made it, and of every key at first.
        Nothing is written while `may_write` is false. `on_missing` is called when there is no bucket.
        """
        self._bucket = Bucket(log, POLICY)
        self._changed = changed
        self._may_write = may_write
        self._on_missing = on_missing

    async def run(self) -> None:
        """Follow until cancelled."""
        await self._bucket.watch(self._seen).run()

    async def put(self, key: str, value: bytes) -> int:
        """Make it the value of the key; the revision that has it, an older one where it was there."""
        return await self._tried(lambda: self._put(key, value))

    async def remove(self, key: str) -> None:
        """Take the key away if it is there."""
        await self._tried(lambda: self._remove(key))

    async def _put(self, key: str, value: bytes) -> int:
        entry = await self._bucket.get(key)
        if entry is None:
            self._check()
            return await self._bucket.create(key, value)
        if entry.value == value:
            return entry.revision
        self._check()
        return await self._bucket.update(key, value, entry.revision)

    async def _remove(self, key: str) -> None:
        entry = await self._bucket.get(key)
        if entry is not None:
            self._check()
            await self._bucket.delete(key, entry.revision)

    def _check(self) -> None:
        if not self._may_write():
            raise _retry("nothing is written, since another process may lead by now")

    async def _tried(self, call: Callable[[], Awaitable[_T]]) -> _T:
        for _ in range(_ATTEMPTS):
            try:
                async with asyncio.timeout(CALL_LIMIT_S):
                    return await call()
            except WrongLastSequenceError:
                continue
            except (ApiError, NoAnswerError, NotStoredError) as error:
                if finds_no_stream(error):
                    self._on_missing()
                raise _retry(str(error)) from error
            except TimeoutError:
                raise _retry(f"no answer within {CALL_LIMIT_S:g} s") from None
        raise _retry("others keep writing the same key")

    def _seen(self, change: Entry | Gone) -> None:
        self._changed(change.key)


def _retry(problem: str) -> RetryError:
    return RetryError(f"bucket {POLICY}: {problem}", RETRY_WITHIN_S)
