"""Runs a target over mutated inputs, reproducibly: a seed decides every input, time only how many.

What an input may take is bounded: CPU time by a timer, memory by the peak of this process. The first
failure ends the run, with the shortest input found to fail in the same way.
"""

from __future__ import annotations

import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from random import Random
from types import FrameType
from typing import Final, NamedTuple

from tests.fuzz.mutation import MAX_BYTES, mutate_bytes
from tests.fuzz.target import Target

MOST_CPU_S: Final = 5.0
MOST_GROWTH_BYTES: Final = 256 << 20
MOST_MINIMIZING_S: Final = 10.0
_POOL: Final = 512
_RSS_UNIT: Final = 1 if sys.platform == "darwin" else 1024


class TooSlowError(Exception):
    """An input took more CPU time than any should."""


class TooLargeError(Exception):
    """An input took more memory than any should."""


class Failure(NamedTuple):
    """What went wrong, and the shortest input for which it does."""

    input: bytes
    trace: str


class Result(NamedTuple):
    """How many inputs were run, and what the last of them found."""

    inputs: int
    failure: Failure | None


Note = Callable[[bytes], None]
"""Told of each input before it runs, for whoever has to say which one a process died of."""


def fuzz(target: Target, seed: int, seconds: float, most: int, note: Note) -> Result:
    """Run the seeds and then mutations of them, for so long or so many inputs."""
    signal.signal(signal.SIGVTALRM, _interrupt)
    deadline = time.monotonic() + seconds
    count = 0
    for data in _inputs(target, Random(seed)):
        if count >= most or time.monotonic() >= deadline:
            break
        count += 1
        note(data)
        error = attempt(target, data)
        if error is not None:
            return Result(count, _failure(target, data, error))
    return Result(count, None)


def attempt(target: Target, data: bytes) -> Exception | None:
    """Run one input; answers how it failed."""
    before = _peak()
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_CPU_S)
    try:
        target.run(data)
    except Exception as error:  # noqa: BLE001 - whatever is raised is what is looked for
        return error
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    grown = _peak() - before
    if grown > MOST_GROWTH_BYTES:
        return TooLargeError(f"{grown >> 20} MiB for an input of {len(data)} bytes")
    return None


def _inputs(target: Target, random: Random) -> Iterator[bytes]:
    """Endless: the seeds, then changes of them and, so that changes add up, of some changed inputs."""
    seeds = list(target.seeds())
    yield from seeds
    yield b""
    pool = list(seeds)
    while True:
        data = random.choice(pool)
        for _ in range(random.choice((1, 1, 1, 2, 2, 3, 5, 9))):
            change = mutate_bytes if random.randrange(8) == 0 else target.mutate
            data = change(random, data)[:MAX_BYTES]
        yield data
        if random.randrange(8) == 0:
            if len(pool) < _POOL:
                pool.append(data)
            else:
                pool[random.randrange(len(seeds), _POOL)] = data


def _failure(target: Target, data: bytes, error: Exception) -> Failure:
    shortest = data
    if not isinstance(error, TooLargeError):  # a peak that was reached once is not reached again
        shortest = _minimized(target, data, _place_of(error))
    return Failure(shortest, "".join(traceback.format_exception(error)))


def _minimized(target: Target, data: bytes, place: str) -> bytes:
    """The shortest input found that fails at the same place: without parts, then without bytes."""
    deadline = time.monotonic() + MOST_MINIMIZING_S

    def fails(shorter: bytes) -> bool:
        error = attempt(target, shorter) if time.monotonic() < deadline else None
        return error is not None and _place_of(error) == place

    parts = _needed(list(target.parts(data)), lambda parts: fails(b"".join(parts)))
    single = [bytes((byte,)) for byte in b"".join(parts)]
    return b"".join(_needed(single, lambda single: fails(b"".join(single))))


def _needed(parts: list[bytes], fails: Callable[[list[bytes]], bool]) -> list[bytes]:
    """Leave out runs of parts, half of them down to one, as long as what is left fails."""
    size = max(1, len(parts) // 2)
    while size:
        start = 0
        while start < len(parts):
            fewer = parts[:start] + parts[start + size :]
            if fails(fewer):
                parts = fewer
            else:
                start += size
        size //= 2
    return parts


def _place_of(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    last = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__} {last}"


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT


def _interrupt(_: int, __: FrameType | None) -> None:
    raise TooSlowError(f"more than {MOST_CPU_S:g} s of CPU time")
