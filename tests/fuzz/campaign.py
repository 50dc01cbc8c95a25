"""One target in a process of its own, so that not even a crash or a standstill passes unseen."""

from __future__ import annotations

import importlib
import multiprocessing
import resource
import sys
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from tests.fuzz.driver import Failure, Result, fuzz
from tests.fuzz.target import Target

NAMES: Final = ("records", "deltas", "snapshots", "slices", "calls", "engine_events", "gateway_requests")
MOST_INPUTS: Final = 1 << 30
_STARTING_S: Final = 300.0
"""Kernels may have to be compiled first."""
_GRACE_S: Final = 40.0
"""For the last input, and for making a failure's input short."""
_READY: Final = "ready"
_MOST_BYTES: Final = 8 << 30
"""Of addresses, most of which threads reserve and never touch."""
_SHOWN: Final = 20_000


class FuzzFailureError(AssertionError):
    """The product misbehaved over an input, which the message shows."""


def load(name: str) -> Target:
    """The target of that name."""
    target = importlib.import_module(f"tests.fuzz.{name}").TARGET
    assert isinstance(target, Target)
    return target


def run(name: str, seed: int, seconds: float, most: int = MOST_INPUTS) -> int:
    """Fuzz a target; answers how many inputs it took. Raises `FuzzFailureError`."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        last = Path(folder) / "input"
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(there, last, name, seed, seconds, most))
        process.start()
        there.close()
        is_ready = here.poll(_STARTING_S) and _receive(here) == _READY
        stands_still = not here.poll(seconds + _GRACE_S if is_ready else 0)
        if stands_still:
            process.kill()
        result = _receive(here)
        process.join()
        if not isinstance(result, Result):
            ending = "it stood still" if stands_still else f"exit code {process.exitcode}"
            data = last.read_bytes() if last.exists() else b""
            result = Result(0, Failure(data, f"the process ended without a result: {ending}"))
    if result.failure is not None:
        raise FuzzFailureError(_told(name, seed, result.failure))
    return result.inputs


def _receive(connection: Connection) -> object:
    try:
        received: object = connection.recv()
    except EOFError:
        return None
    return received


def _work(connection: Connection, last: Path, name: str, seed: int, seconds: float, most: int) -> None:
    target = load(name)
    target.seeds()
    if sys.platform == "linux":
        # What asks for more at once gets a MemoryError, which no target expects.
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most_bytes = pages * resource.getpagesize() + _MOST_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
    connection.send(_READY)
    try:
        connection.send(fuzz(target, seed, seconds, most, lambda data: _write(last, data)))
    finally:
        target.close()


def _told(name: str, seed: int, failure: Failure) -> str:
    shown = failure.input.hex()
    if len(shown) > _SHOWN:
        shown = f"{shown[:_SHOWN]}... ({len(failure.input)} bytes)"
    again = f"again with: python -m tools.fuzz {name} --input {shown}"
    return f"{failure.trace}\ntarget {name}, seed {seed}; {again}"


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)
