"""What is to be reached: every figure that has a limit, with the measurement that gives it.

The limits hold on a quiet machine of two cores, with a single measured process on a core of its own. Where
the wish is a word and not a number ("flat", "grows"), `note` says how it is read.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Direction = Literal["at most", "at least"]


class Target(NamedTuple):
    """`bench` and `name` are those under which a measurement hands the figure in."""

    bench: str
    name: str
    limit: float
    unit: str
    direction: Direction
    note: str = ""

    def is_reached(self, measured: float) -> bool:
        """Does a measured figure keep to the limit?"""
        return measured <= self.limit if self.direction == "at most" else measured >= self.limit


FOLD_SIZES: Final = (10_000, 100_000, 1_000_000, 10_000_000)
"""Entries that an index holds while more are folded."""


def _folding() -> tuple[Target, ...]:
    flat = "flat: an entry of the largest index costs at most twice one of the smallest"
    return (
        *(Target("fold", f"folded at {size:,} entries", 5.0, "M/s", "at least") for size in FOLD_SIZES),
        Target("fold", "rate at the largest over the smallest", 0.5, "", "at least", flat),
    )


_CONDITION: Final = "a condition of the measurement"

TARGETS: Final = (
    *_folding(),
    Target("index", "lookup of 64 blocks, kernel, us", 5.0, "us", "at most"),
    Target("lookup", "64 blocks of 8 holders, kernel, us", 5.0, "us", "at most"),
    Target("lookup", "64 blocks, request to answer, us", 25.0, "us", "at most", "from bytes to bytes"),
    Target("index", "bytes an entry", 64.0, "bytes", "at most"),
    Target("index", "snapshot written, ms", 200.0, "ms", "at most"),
    Target("index", "snapshot loaded, ms", 300.0, "ms", "at most"),
    Target("served", "processor time a call, fastest front end, us", 85.0, "us", "at most"),
    Target("served", "processor time a call, grpcio, us", 300.0, "us", "at most"),
    Target("served", "p99 at half saturation, ms", 5.0, "ms", "at most", "20,000 entries a second come in"),
    Target("served", "entries a second that came in meanwhile", 19_000, "", "at least", _CONDITION),
    Target(
        "served", "calls a second, two routers over one", 1.5, "", "at least", "grows: by half for a second"
    ),
    Target("drain", "drained, M entries/s", 1.5, "M/s", "at least", "one core, from JetStream into deltas"),
    Target("drain", "published meanwhile, M entries/s", 1.5, "M/s", "at least", _CONDITION),
    Target("drain", "lag was shown", 1.0, "", "at least", "1 when the metric rose in the burst"),
    Target("drain", "lag fell to nothing", 1.0, "", "at least", "1 when the metric was 0 after the burst"),
    Target("dataplane", "event to answer, p50 ms", 10.0, "ms", "at most", "2,000 batches a second beside it"),
    Target("dataplane", "event to answer, p99 ms", 20.0, "ms", "at most", "2,000 batches a second beside it"),
    Target("dataplane", "batches a second", 1_900, "", "at least", _CONDITION),
    Target("dataplane", "events that were not seen", 0, "", "at most", "within five seconds"),
    Target("cold_router", "ready, s", 1.5, "s", "at most", "a million entries"),
    Target("sidecar", "share of a core", 0.25, "cores", "at most", "20,000 blocks a second"),
    Target("sidecar", "blocks a second", 19_500, "", "at least", _CONDITION),
    Target("sidecar", "resident, MiB", 128.0, "MiB", "at most"),
    Target("memory", "router, resident, MiB", 270.0, "MiB", "at most", "a million entries, grpcio"),
    Target("memory", "indexer, resident, MiB", 300.0, "MiB", "at most", "a million entries"),
)
