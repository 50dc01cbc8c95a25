"""What a served `LookupRoute` costs a router: `python -m benchmarks.served_bench`.

A real nats-server, an indexer and routers hold a million entries; a lookup is for a prompt of 64 blocks
that 8 replicas hold to different depths. The router that is measured has a core of its own and everything
else shares the others. For each front end, by the name that `--front-ends` gives it:

- processor time of the router's whole process for a call, beside that of a call without any work (gRPC's
  health check), in turns;
- how long callers wait at half of the calls a second that it can answer, while 20,000 entries a second come
  in;
- how many calls two routers answer, beside one, in turns: each on a core, which the load has to share.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import numpy as np
import uvloop

from benchmarks.calling import Answered, Caller, calling
from benchmarks.figures import hand_in, median_ratio
from benchmarks.million import (
    ENTRIES,
    HOLDERS,
    LAYOUT,
    chains,
    fill,
    keep_storing,
    until_seen,
)
from benchmarks.programs import (
    CORES,
    Program,
    core_seconds,
    end_all,
    kept_to,
    measured_core,
    other_cores,
)
from inferencecache.cli.stack.ports import Ports
from inferencecache.core.log import Log
from inferencecache.core.service import NatsSettings
from inferencecache.v1alpha1.inferencecache_pb2 import LookupRouteResponse
from tests.support.nats import NatsServer

LOOKUP: Final = "/inferencecache.v1alpha1.InferenceCache/LookupRoute"
BARE: Final = "/grpc.health.v1.Health/Check"
DEFAULT_FRONT_END: Final = "grpcio"
FRONT_END_FLAG: Final = "--grpc-front-end"
"""The router's setting; the default front end is asked for without it."""
CONNECTIONS: Final = 4
CALLS_AT_ONCE: Final = 8
"""On each connection."""
PAIRS: Final = 5
WRITTEN_A_SECOND: Final = 20_000
ROOM: Final = 3 * ENTRIES
"""The cap: nothing is evicted."""


class Settings(NamedTuple):
    """`seconds` of one round."""

    entries: int
    seconds: float
    pairs: int
    front_ends: tuple[str, ...]


class Router(NamedTuple):
    """A router and where it serves."""

    program: Program
    address: str


async def start_router(front_end: str, url: str, folder: Path, on: set[int]) -> Router:
    """One that is ready."""
    address = f"127.0.0.1:{Ports(well_known=False).take(0)}"
    flags = () if front_end == DEFAULT_FRONT_END else (FRONT_END_FLAG, front_end)
    log = folder / f"router-{front_end}-{address.rpartition(':')[2]}.log"
    program = Program(
        "router", url, log, "--grpc-bind-address", address, "--log-level=warning", *flags, on=on
    )
    return Router(await program.until_ready(), address)


class Load(NamedTuple):
    """What calling without pause came to: calls a second, and µs of the routers' processor time a call."""

    rate: float
    cost_us: float


async def load(caller: Caller, routers: Sequence[Router], seconds: float) -> Load:
    """Call without pause. The processor time is the routers' together."""
    before = sum(core_seconds(each.program.pid) for each in routers)
    answers = await caller.as_fast_as_possible(seconds, CALLS_AT_ONCE)
    used = sum(core_seconds(each.program.pid) for each in routers) - before
    return Load(len(answers) / seconds, used / max(1, len(answers)) * 1e6)


async def check(caller: Caller, request: bytes) -> None:
    """Is a lookup answered with all holders and their depths?"""
    answers = []

    def is_whole(message: bytes) -> bool:
        answers.append(LookupRouteResponse.FromString(message))
        return len({score.matched_tokens for score in answers[-1].replica_scores}) == HOLDERS

    if await caller.until(request, is_whole, 60.0, 0.01) is None:
        raise RuntimeError(f"a lookup was answered otherwise than the index is: {answers[-1]}")


def waits_ms(answers: Sequence[Answered]) -> tuple[float, float]:
    """Median and 99th percentile."""
    waits = [1e3 * (each.at_s - each.due_s) for each in answers]
    p50, p99 = np.percentile(waits, [50, 99], method="higher")
    return float(p50), float(p99)


async def measure(
    front_end: str, requests: Sequence[bytes], log: Log, url: str, folder: Path, settings: Settings
) -> dict[str, float]:
    """One front end's figures."""
    seconds = settings.seconds
    router = await start_router(front_end, url, folder, measured_core())
    routers = [router]
    figures: dict[str, float] = {}
    try:
        async with (
            calling([router.address], LOOKUP, requests, CONNECTIONS) as lookups,
            calling([router.address], BARE, [b""], CONNECTIONS) as bare,
        ):
            await check(lookups, requests[0])
            await load(lookups, routers, seconds)  # to be warm
            idle_s = core_seconds(router.program.pid)
            await asyncio.sleep(seconds)
            idle_s = core_seconds(router.program.pid) - idle_s
            figures[f"share of a core without calls, {front_end}"] = idle_s / seconds
            pairs = [
                (await load(bare, routers, seconds), await load(lookups, routers, seconds))
                for _ in range(settings.pairs)
            ]
            rate = statistics.median(lookup.rate for _, lookup in pairs)
            figures[f"processor time a call, {front_end}, us"] = statistics.median(
                lookup.cost_us for _, lookup in pairs
            )
            figures[f"processor time a bare call, {front_end}, us"] = statistics.median(
                nothing.cost_us for nothing, _ in pairs
            )
            figures[f"calls a second, {front_end}"] = rate
            writing = asyncio.create_task(keep_storing(log, WRITTEN_A_SECOND))
            before, began_s = router.program.entries, time.monotonic()
            p50, p99 = waits_ms(await lookups.at_rate(5 * seconds, rate / 2))
            came = (router.program.entries - before) / (time.monotonic() - began_s)
            if writing.done():
                writing.result()
            writing.cancel()
            figures[f"p50 at half saturation, {front_end}, ms"] = p50
            figures[f"p99 at half saturation, {front_end}, ms"] = p99
            figures[f"entries a second that came in meanwhile, {front_end}"] = came
        second_core = {CORES[1 % len(CORES)]}
        routers.append(await start_router(front_end, url, folder, second_core))
        async with (
            calling([router.address], LOOKUP, requests, 2 * CONNECTIONS) as by_one,
            calling([each.address for each in routers], LOOKUP, requests, CONNECTIONS) as by_two,
        ):
            grown = [
                ((await load(by_one, routers[:1], seconds)).rate, (await load(by_two, routers, seconds)).rate)
                for _ in range(settings.pairs)
            ]
        figures[f"calls a second, two routers over one, {front_end}"] = median_ratio(grown)
    finally:
        end_all([each.program for each in routers])
    return figures


async def run(settings: Settings) -> dict[str, float]:
    """All figures; what has a target is that of the default front end, or of the fastest one."""
    figures: dict[str, float] = {}
    all_chains = chains(settings.entries)
    requests = [chain.request() for chain in Random(1).sample(all_chains, len(all_chains))]
    with tempfile.TemporaryDirectory() as name, kept_to(other_cores()), NatsServer(Path(name)) as server:
        folder = Path(name)
        log = await Log.connect(NatsSettings(server.url, insecure=True), name="bench", timeout_s=60)
        indexer = Program("indexer", server.url, folder / "indexer.log", "--max-entries", str(ROOM))
        try:
            await indexer.until_ready()
            await fill(log, all_chains)
            await until_seen(lambda: round(indexer.metric("inferencecache_index_entries")), all_chains)
            for front_end in settings.front_ends:
                of_it = await measure(front_end, requests, log, server.url, folder, settings)
                for figure, value in of_it.items():
                    print(f"{figure:>60} {value:10.2f}", flush=True)
                figures |= of_it
        finally:
            indexer.end()
            await log.close()
    first = settings.front_ends[0]
    figures["processor time a call, fastest front end, us"] = min(
        figures[f"processor time a call, {front_end}, us"] for front_end in settings.front_ends
    )
    of_the_first = (
        ("p99 at half saturation", ", ms"),
        ("entries a second that came in meanwhile", ""),
        ("calls a second, two routers over one", ""),
    )
    for figure, unit in of_the_first:
        figures[figure + unit] = figures[f"{figure}, {first}{unit}"]
    return figures


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=ENTRIES)
    parser.add_argument("--seconds", type=float, default=2.0, help="of one round")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument(
        "--front-ends", nargs="+", default=[DEFAULT_FRONT_END], help="names; the first one's wait counts"
    )
    arguments = parser.parse_args()
    settings = Settings(arguments.entries, arguments.seconds, arguments.pairs, tuple(arguments.front_ends))
    print(f"{settings.entries} entries in {LAYOUT.partitions} partitions", flush=True)
    hand_in(uvloop.run(run(settings)))


if __name__ == "__main__":
    main()
