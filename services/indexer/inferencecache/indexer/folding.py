"""One partition's log, folded as it is read."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Final

from inferencecache.core.index.fold import Fold, Folded, ResyncWanted
from inferencecache.core.log import Log, Reader, StreamMessage
from inferencecache.core.partitions.messages import log_message
from inferencecache.core.protocol.position import Lost
from inferencecache.core.service import tracing
from inferencecache.core.service.tracing import Carried
from inferencecache.schemas.positions import Position

SLICE_S: Final = 0.01
"""Of folding, after which whatever else the process does has its turn; a message is folded whole."""

Hold = Callable[[], bool]


class Folding:
    """Feeds a fold from its stream. While `is_held()` nothing is folded and little more is read.

    Messages are folded as they come. What takes longer than `slice_s` at once waits for its next turn,
    in order, and the reader pauses until all is folded. `on_folded` is called after every turn with what
    producers should be asked.
    """

    def __init__(
        self,
        log: Log,
        stream: str,
        fold: Fold,
        start: Position,
        traces: Carried,
        *,
        is_held: Hold,
        on_open: Callable[[int], None],
        on_folded: Callable[[list[ResyncWanted]], None],
        on_lost: Callable[[Lost], None],
        slice_s: float = SLICE_S,
    ) -> None:
        self.fold = fold
        self._traces = traces
        self._is_held = is_held
        self._on_folded = on_folded
        self._on_open = on_open
        self._slice_s = slice_s
        self._waiting: deque[StreamMessage] = deque()
        self._turn = asyncio.Event()
        self._head_at = time.monotonic()
        self._is_at_head = False
        self.caught_up = False
        """Has the fold been at the head of the log since it began?"""
        self.bytes_folded = 0
        self.dropped: Counter[str] = Counter()
        self.folded = 0
        self.reader = Reader(log, stream, start, self._deliver, on_lost, name="fold", on_open=self._opened)

    async def run(self) -> None:
        """Fold until the log is lost, or until cancelled."""
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(self._fold_waiting())
            await self.reader.run()
            waiting.cancel()

    @property
    def pending(self) -> int:
        """Messages of the log that are not folded yet, as far as the server has said."""
        return (self.reader.pending or 0) + len(self._waiting)

    @property
    def waiting(self) -> int:
        """Messages that are here and not folded: held back, or their turn has not come."""
        return len(self._waiting)

    def lag_s(self) -> float:
        """Time since the fold was last at the head of the log; no clock but this process's counts."""
        return time.monotonic() - self._head_at if self.pending and not self._is_at_head else 0.0

    def release(self) -> None:
        """Nothing is held back any more: fold what has waited."""
        if self._waiting and not self._is_held():
            self._turn.set()

    async def _fold_waiting(self) -> None:
        while True:
            await self._turn.wait()
            self._turn.clear()
            while self._waiting and not self._is_held():
                self._fold()
                await asyncio.sleep(0)
            if not self._waiting:
                self.reader.resume()

    def _opened(self, pending: int) -> None:
        self._is_at_head = False
        if pending == 0 and not self._waiting:
            self._at_head()
        self._on_open(pending)

    def _at_head(self) -> None:
        self.caught_up = self._is_at_head = True
        self._head_at = time.monotonic()

    def _deliver(self, messages: list[StreamMessage]) -> None:
        if self._is_at_head:
            self._is_at_head, self._head_at = False, time.monotonic()
        is_next = not self._waiting
        self._waiting += messages
        if is_next and not self._is_held():
            self._fold()
        if self._waiting:
            self.reader.pause()
            self._turn.set()

    def _fold(self) -> None:
        """Fold what waits, for one turn."""
        end = time.monotonic() + self._slice_s
        wanted: list[ResyncWanted] = []
        pending = 0
        while self._waiting:
            message = self._waiting.popleft()
            with tracing.received("fold", message.headers, {"messaging.destination.name": message.subject}):
                folded = self.fold.fold(log_message(message.subject, message.payload, message.position))
                self._traces.note()
            wanted += folded.wanted
            self.bytes_folded += len(message.payload)
            self.folded += 1
            if folded.dropped is not None:
                self.dropped[folded.dropped] += 1
            for reason, count in _left_out(folded):
                self.dropped[reason] += count
            pending = message.pending
            if time.monotonic() >= end:
                break
        if pending == 0 and not self._waiting:
            self._at_head()
        self._on_folded(wanted)


def _left_out(folded: Folded) -> Iterator[tuple[str, int]]:
    """Records that did not count in batches that did."""
    if folded.malformed:
        yield "malformed_record", folded.malformed
    if folded.misplaced:
        yield "misplaced_record", folded.misplaced
    if folded.unknown:
        yield "unknown_record", folded.unknown
    if folded.outdated:
        yield "outdated_record", folded.outdated
