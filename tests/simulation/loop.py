"""One event loop for many simulated processes: time is virtual, and nothing happens but by the schedule.

Whatever runs belongs to a process, known by a context variable that tasks inherit. A paused process's
turns wait until it goes on, a dead one's never come.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, Final

MOST_TURNS: Final = 400_000
"""Ten times what a plan takes."""
_MOST_WAITS: Final = 20
"""So often a coroutine that is ended may wait for something while it clears up."""


class Process:
    """A simulated process. `clock_us` is how far its wall clock is off."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.paused = False
        self.dead = False
        self.clock_us = 0
        self.backlog: deque[_Turn] = deque()

    def __repr__(self) -> str:
        return self.name


PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)


class ProcessFailedError(AssertionError):
    """Something in a process raised what nothing there handles."""


class _Turn:
    """A callback that is to run: asyncio's `Handle` and `TimerHandle` in one."""

    __slots__ = ("_arguments", "_at", "_callback", "_cancelled", "_context", "process")

    def __init__(
        self, at: float, callback: Callable[..., object], arguments: tuple[Any, ...], context: Context
    ) -> None:
        self._at = at
        self._callback: Callable[..., object] | None = callback
        self._arguments = arguments
        self._context = context
        self._cancelled = False
        self.process = context.get(PROCESS)

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = None
        self._arguments = ()

    def cancelled(self) -> bool:
        return self._cancelled

    def when(self) -> float:
        return self._at

    def run(self) -> None:
        if self._callback is not None:
            self._context.run(self._callback, *self._arguments)


class _Task(asyncio.Task[Any]):
    """Has a number for a hash, so that sets of tasks have the same order in every run."""

    def __init__(self, number: int, work: Coroutine[Any, Any, Any], **options: Any) -> None:
        self._number = number
        super().__init__(work, **options)

    def __hash__(self) -> int:
        return self._number


class SimulatedLoop(asyncio.AbstractEventLoop):
    """Runs turns in order of time, and of their asking within one time."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._number = 0
        self._ready: deque[_Turn] = deque()
        self._timers: list[tuple[float, int, _Turn]] = []
        self.failure: BaseException | None = None
        self.turns = 0
        self.tasks: list[_Task] = []

    # -- what asyncio asks of a loop ----------------------------------------------------------------

    def time(self) -> float:
        return self._now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Turn:
        turn = _Turn(self._now, callback, args, copy_context() if context is None else context)
        self._ready.append(turn)
        return turn

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Turn:
        turn = _Turn(when, callback, args, copy_context() if context is None else context)
        self._number += 1
        heapq.heappush(self._timers, (when, self._number, turn))
        return turn

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Turn:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        self._number += 1
        task = _Task(self._number, coro, loop=self, **options)
        self.tasks.append(task)
        if len(self.tasks) > 1024:
            self.tasks = [each for each in self.tasks if not each.done()]
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A callback of a future raised; what tasks leave unread is found by garbage collection, at no
        time that repeats, and is not counted.
        """

    # -- the schedule --------------------------------------------------------------------------------

    def run_until(self, end: float, done: Callable[[], bool] | None = None) -> bool:
        """Run until `end`, or until `done`, which is looked at whenever time moves on."""
        asyncio._set_running_loop(self)
        try:
            while self.failure is None:
                if self.turns > MOST_TURNS:
                    raise ProcessFailedError("something goes round in circles")
                if self._ready:
                    self._run(self._ready.popleft())
                    continue
                if done is not None and done():
                    return True
                if not self._timers or self._timers[0][0] > end:
                    self._now = max(self._now, end)
                    return False
                at, _, turn = heapq.heappop(self._timers)
                self._now = max(self._now, at)
                self._run(turn)
            raise self.failure
        finally:
            asyncio._set_running_loop(None)

    def start(self, process: Process, work: Callable[[], Coroutine[Any, Any, Any]]) -> asyncio.Task[Any]:
        """Begin a process's work; an exception out of it ends the simulation."""
        context = copy_context()
        context.run(PROCESS.set, process)

        def begin() -> asyncio.Task[Any]:
            asyncio._set_running_loop(self)
            try:
                return self.create_task(work())
            finally:
                asyncio._set_running_loop(running)

        running = asyncio._get_running_loop()
        task = context.run(begin)
        task.add_done_callback(lambda ended: self._ended(process, ended))
        return task

    def call_in(
        self, process: Process | None, at: float, callback: Callable[..., object], *args: Any
    ) -> None:
        """Call something at a time as a part of a process, or of none."""
        context = copy_context()
        context.run(PROCESS.set, process)
        self.call_at(at, callback, *args, context=context)

    def resume(self, process: Process) -> None:
        """Let a paused process go on: first with what it missed."""
        process.paused = False
        self._ready.extend(process.backlog)
        process.backlog.clear()

    def close(self) -> None:
        """End what still waits. Nothing of it runs any more but its own clearing up."""
        asyncio._set_running_loop(self)
        try:
            for task in self.tasks:
                if not task.done():
                    work: Any = task.get_coro()
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    for _ in range(_MOST_WAITS):
                        with contextlib.suppress(BaseException):  # clearing up may wait, or raise in turn
                            work.close()
                        if work.cr_frame is None:
                            break
        finally:
            asyncio._set_running_loop(None)
        self.tasks.clear()
        self._ready.clear()
        self._timers.clear()

    def _run(self, turn: _Turn) -> None:
        process = turn.process
        if process is not None and (process.dead or process.paused):
            if not process.dead:
                process.backlog.append(turn)
            return
        self.turns += 1
        try:
            turn.run()
        except Exception as error:  # noqa: BLE001 - whatever it is, it ends the simulation
            self._failed(process, error)

    def _ended(self, process: Process, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(process, error)

    def _failed(self, process: Process | None, error: BaseException) -> None:
        failure = ProcessFailedError(f"{process or 'the simulation'} failed: {error!r}")
        failure.__cause__ = error
        self.failure = self.failure or (failure if process is not None else error)
