"""The life of a process: an event loop, a stop that is asked for by signal and bounded in time.

SIGTERM or SIGINT sets the stop event; the process's coroutine then drains and returns its exit code.
Whatever hangs, the process is gone 8 s after the first signal: first its coroutine is cancelled, then
the process ends without asking. A second signal cancels at once.

What has drained leaves at once: the interpreter would take everything apart first, compiled kernels and the
whole index, which takes a second or two for nothing.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import gc
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn

import uvloop

from inferencecache.core.service.errors import ListenError, RefusedError
from inferencecache.core.service.logs import get_logger

STOP_LIMIT_S: Final = 8.0
_CANCEL_AFTER_S: Final = STOP_LIMIT_S - 1.0

log = get_logger("service")


def run(main: Callable[[asyncio.Event], Awaitable[int]]) -> NoReturn:
    """Run `main(stop)` to its end and exit with what it returns; 1 when it raises [WIRE-202, WIRE-203].

    A drain that has to be cut is a warning and leaves the exit code 0.
    """
    # What has been imported stays: walking it, as a full collection does, stops everything for tens of ms.
    gc.freeze()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code = runner.run(_supervise(main))
    _leave(code)


def _leave(code: int) -> NoReturn:
    """Do what `sys.exit` does for others, exit handlers and what is still to be written, and end.

    A thread that the process would wait for has it end as always, behind that thread.
    """
    others = threading.enumerate()
    others.remove(threading.main_thread())
    if not all(thread.daemon for thread in others):
        raise SystemExit(code)
    atexit._run_exitfuncs()  # noqa: SLF001 - as multiprocessing does it before it ends a process this way
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
            stream.flush()
    os._exit(code)


async def _supervise(main: Callable[[asyncio.Event], Awaitable[int]]) -> int:
    stop = asyncio.Event()
    work: asyncio.Future[int] = asyncio.ensure_future(main(stop))
    loop = asyncio.get_running_loop()

    def asked_to_stop() -> None:
        if stop.is_set():
            work.cancel()
            return
        stop.set()
        _end_process_after(STOP_LIMIT_S)
        loop.call_later(_CANCEL_AFTER_S, work.cancel)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked_to_stop)
    try:
        return await work
    except asyncio.CancelledError:
        log.warning("stop_cut_short", msg="the process did not drain in time", limit_s=STOP_LIMIT_S)
        return 0
    except ListenError as error:
        log.error("serve_error", msg=str(error))  # noqa: TRY400 - its message says all, a trace nothing
        return 1
    except RefusedError as error:
        log.error("start_refused", msg=str(error))  # noqa: TRY400 - as above
        return 1
    except Exception:
        log.exception("process_failed")
        return 1


def _end_process_after(seconds: float) -> None:
    """A thread of its own, so that a blocked event loop or a hanging executor cannot outlive the limit."""
    timer = threading.Timer(seconds, os._exit, (0,))
    timer.daemon = True
    timer.start()
