"""Work by object: marked as often as one likes, done once at a time, again later when it failed.

An object that is marked while it is worked on is worked on once more afterwards. What it asked to be
woken for is forgotten when work on it begins: each pass says anew when it wants to come back [CTL-13,
CTL-15, CTL-17].
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from inferencecache.core.kube.api import KubeError
from inferencecache.core.service import get_logger

FIRST_RETRY_S: Final = 0.005
LONGEST_RETRY_S: Final = 1000.0
AT_ONCE: Final = 64
"""So many wait for one listing of a namespace's pods, which costs more than everything else of a pass."""

K = TypeVar("K")
logger = get_logger("controller")


class RetryError(Exception):
    """Work on an object cannot be finished now; it is tried again later, at the latest in `within_s`
    seconds. The message says why.
    """

    def __init__(self, message: str, within_s: float = LONGEST_RETRY_S) -> None:
        super().__init__(message)
        self.within_s = within_s


class WorkQueue(Generic[K]):
    """`work` is called with a key, and answers in how many seconds it wants to be called again: None or 0
    for never. At most `at_once` keys are worked on side by side.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[K], Awaitable[float | None]],
        *,
        at_once: int = AT_ONCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._work = work
        self._at_once = at_once
        self._clock = clock
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._count = 0
        self._failures: dict[K, int] = {}
        self._running: dict[K, asyncio.Task[None]] = {}
        self._again: set[K] = set()
        self._changed = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Keys that wait or are worked on, those that sleep until a later time included."""
        return len(self._due) + len(self._running)

    @property
    def is_idle(self) -> bool:
        """Is nothing worked on, and nothing due now?"""
        return not self._running and all(due > self._clock() for due in self._due.values())

    def mark(self, key: K, after_s: float = 0.0) -> None:
        """Work on the key, at the latest in so many seconds."""
        if key in self._running and after_s <= 0:
            self._again.add(key)
            return
        due = self._clock() + max(after_s, 0.0)
        if due < self._due.get(key, float("inf")):
            self._due[key] = due
            self._count += 1
            heapq.heappush(self._heap, (due, self._count, key))
            self._changed.set()

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    self._changed.clear()
                    wait_s = self._start_due(group)
                    try:
                        async with asyncio.timeout(wait_s):
                            await self._changed.wait()
                    except TimeoutError:
                        continue
        finally:
            self._running.clear()

    def _start_due(self, group: asyncio.TaskGroup) -> float | None:
        """Start what is due, as far as there is room; seconds until the next is."""
        while self._heap:
            due, _, key = self._heap[0]
            if self._due.get(key) != due:  # it was marked for an earlier time
                heapq.heappop(self._heap)
                continue
            if key in self._running:  # its time came while it is worked on
                heapq.heappop(self._heap)
                del self._due[key]
                self._again.add(key)
                continue
            if len(self._running) >= self._at_once:
                return None
            wait_s = due - self._clock()
            if wait_s > 0:
                return wait_s
            heapq.heappop(self._heap)
            del self._due[key]
            self._running[key] = group.create_task(self._once(key))
        return None

    async def _once(self, key: K) -> None:
        wake_s: float | None = None
        try:
            wake_s = await self._work(key)
        except (KubeError, RetryError) as error:
            wake_s = self._failed(key, error.within_s if isinstance(error, RetryError) else LONGEST_RETRY_S)
            logger.warning(
                "reconcile_failed", queue=self.name, object=str(key), error=str(error), retry_s=wake_s
            )
        except Exception:
            # One object that breaks its controller must not keep the others from being looked at.
            wake_s = self._failed(key, LONGEST_RETRY_S)
            logger.exception("reconcile_broken", queue=self.name, object=str(key), retry_s=wake_s)
        else:
            self._failures.pop(key, None)
        finally:
            del self._running[key]
            self._changed.set()
        if key in self._again:
            self._again.discard(key)
            self.mark(key)
        elif wake_s:
            self.mark(key, wake_s)

    def _failed(self, key: K, longest_s: float) -> float:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        return min(FIRST_RETRY_S * 2.0 ** min(failures - 1, 30), longest_s)
