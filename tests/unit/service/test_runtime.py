"""Start and stop of real processes: signals, exit codes, and the bound on a stop."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator

import pytest

PROGRAM = """
import asyncio, sys, time
from inferencecache.core.service import ListenError, RefusedError, configure_logging, run, runtime
configure_logging("json", "info")
async def main(stop):
{body}
run(main)
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def begin(body: str, before: str = "") -> subprocess.Popen[str]:
        program = PROGRAM.format(body=textwrap.indent(textwrap.dedent(body), "    "))
        process = subprocess.Popen(
            [sys.executable, "-c", program.replace("async def", f"{before}\nasync def", 1)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


def events(process: subprocess.Popen[str], code: int) -> list[str]:
    _, errors = process.communicate(timeout=20)
    assert process.returncode == code, errors
    return [json.loads(line).get("event", "") for line in errors.splitlines()]


@pytest.mark.rule("WIRE-202")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_process_drain_and_exit_with_its_code(start: Start, number: signal.Signals) -> None:
    process = start("print('ready', flush=True); await stop.wait(); print('drained'); return 0")
    ready(process)
    process.send_signal(number)
    output, _ = process.communicate(timeout=20)
    assert (process.returncode, output) == (0, "drained\n")


def test_the_code_that_main_returns_is_the_exit_code(start: Start) -> None:
    assert events(start("return 3"), code=3) == []


def test_what_was_imported_before_the_start_is_no_work_for_the_collector(start: Start) -> None:
    process = start("import gc; print(any(each is vars(asyncio) for each in gc.get_objects())); return 0")
    output, _ = process.communicate(timeout=20)
    assert output == "False\n"


def test_a_process_leaves_behind_its_exit_handlers_without_being_taken_apart(start: Start) -> None:
    process = start(
        "print('written'); return 3",
        before="""
import atexit
class Large:
    def __del__(self): print("taken apart", flush=True)
large = Large()
atexit.register(print, "handled")
""",
    )
    output, errors = process.communicate(timeout=20)
    assert (process.returncode, output) == (3, "written\nhandled\n"), errors


def test_a_thread_that_is_still_at_work_is_waited_for(start: Start) -> None:
    process = start(
        "threading.Thread(target=work).start(); print('ready', flush=True); return 3",
        before="""
import threading
def work():
    sys.stdin.read()
    print("worked", flush=True)
""",
    )
    ready(process)
    output, errors = process.communicate("", timeout=20)
    assert (process.returncode, output) == (3, "worked\n"), errors


@pytest.mark.rule("WIRE-203")
def test_a_listener_that_cannot_be_opened_is_a_serve_error(start: Start) -> None:
    process = start("raise ListenError('--http-bind-address', '0.0.0.0', 80, 'in use')")
    assert events(process, code=1) == ["serve_error"]


def test_what_the_process_cannot_work_with_is_refused_by_its_message(start: Start) -> None:
    process = start("raise RefusedError('the layout names schema 99; upgrade')")
    _, errors = process.communicate(timeout=20)
    line = json.loads(errors)
    assert (process.returncode, line["event"], line["msg"]) == (
        1,
        "start_refused",
        "the layout names schema 99; upgrade",
    )


def test_a_failure_is_logged_and_exits_with_1(start: Start) -> None:
    assert events(start("raise KeyError('x')"), code=1) == ["process_failed"]


def test_a_drain_that_hangs_is_cut_and_the_exit_code_stays_0(start: Start) -> None:
    process = start(
        "print('ready', flush=True); await asyncio.sleep(60)", before="runtime._CANCEL_AFTER_S = 0.1"
    )
    ready(process)
    process.terminate()
    assert events(process, code=0) == ["stop_cut_short"]


def test_a_second_signal_cuts_the_drain_at_once(start: Start) -> None:
    process = start(
        """
        print('ready', flush=True)
        await stop.wait()
        print('ready', flush=True)
        await asyncio.sleep(60)
        """
    )
    ready(process)
    process.terminate()
    ready(process)
    began = time.monotonic()
    process.terminate()
    assert events(process, code=0) == ["stop_cut_short"]
    assert time.monotonic() - began < 5


def test_a_blocked_event_loop_does_not_outlive_the_limit(start: Start) -> None:
    process = start(
        "print('ready', flush=True); await stop.wait(); time.sleep(60)", before="runtime.STOP_LIMIT_S = 0.3"
    )
    ready(process)
    process.terminate()
    assert events(process, code=0) == []
