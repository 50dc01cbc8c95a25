"""How long a prompt takes to fingerprint.

Run it with `python -m benchmarks.fingerprint_bench`; it prints the best and the median of a number of
runs for prompts of several lengths, in blocks of 16 tokens.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from random import Random

from inferencecache.core.fingerprint import prefix_digests

BLOCK_SIZE = 16
ROUNDS = 200
LENGTHS = (1024, 8192, 32_768, 131_072)


def measure(work: Callable[[], object], rounds: int = ROUNDS) -> list[float]:
    """Seconds that each of `rounds` calls took, ascending."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return sorted(times)


def main() -> None:
    """Print one line for each prompt length."""
    random = Random(1)
    print(f"{'tokens':>8} {'blocks':>7} {'best ms':>8} {'median ms':>10}")
    for length in LENGTHS:
        tokens = [random.randrange(150_000) for _ in range(length)]
        times = measure(lambda tokens=tokens: prefix_digests(tokens, BLOCK_SIZE))  # type: ignore[misc]
        best, median = times[0] * 1e3, statistics.median(times) * 1e3
        print(f"{length:8} {length // BLOCK_SIZE:7} {best:8.3f} {median:10.3f}")


if __name__ == "__main__":
    main()
