"""One trace through one fleet by all four policies at once, each with engines of its own."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.routing import stack as system
from benchmarks.routing.baselines import LeastOutstanding, RoundRobin
from benchmarks.routing.engine import Engine
from benchmarks.routing.figures import Account, CaseFigures, delays
from benchmarks.routing.gateways import Baseline, Gateway, Routers
from benchmarks.routing.publishing import Clock, MetricsPages, PublishingEngine, Statistics
from benchmarks.routing.trace import Digests, Trace
from benchmarks.routing.visibility import Visibility, router_ids
from inferencecache.cli.running import in_background
from inferencecache.cli.stack.plan import HOST
from inferencecache.core.log import Log
from inferencecache.core.service import NatsSettings

SETTLE_S: Final = 2.0
"""For the sidecars' first words to reach the routers."""
PROGRESS_S: Final = 10.0


class Fleet(NamedTuple):
    """N engines with room for C blocks and a prefill of R tokens a second."""

    engines: int
    blocks: int
    rate: float

    def made(self, policy: str) -> list[Engine]:
        """The engines of one policy."""
        return [Engine(f"{policy}-{number + 1}", self.blocks, self.rate) for number in range(self.engines)]


class Conditions(NamedTuple):
    """How a trace is replayed: so many times as fast, and with which engine statistics."""

    speed: float
    statistics: Statistics


async def replay(trace: Trace, fleet: Fleet, conditions: Conditions) -> CaseFigures:
    """Start the system, replay the trace, stop the system."""
    digests = Digests()
    chains = [digests.of(request.blocks) for request in trace.requests]
    async with AsyncExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="bench-routing-")))
        stack = system.plan_stack(fleet.engines, conditions.speed, folder)
        clock = Clock(conditions.speed)
        hinted = {tenant: fleet.made(tenant) for tenant in system.TENANTS}
        sockets = {each.name: each for each in stack.engines}
        publishing = {
            engine.name: PublishingEngine(engine, sockets[engine.name].events, sockets[engine.name].replay)
            for engines in hinted.values()
            for engine in engines
        }
        for each in publishing.values():
            await running.enter_async_context(in_background(each.run(clock)))
        pages = MetricsPages([each.engine for each in publishing.values()], clock, conditions.statistics)
        await running.enter_async_context(in_background(pages.serve(HOST, stack.metrics_port)))
        await running.enter_async_context(system.running(stack, folder))
        routers = Routers(stack.plan.routers)
        running.push_async_callback(routers.close)
        log = await Log.connect(NatsSettings(stack.plan.nats_url, insecure=True), name="bench-routing")
        running.push_async_callback(log.close)
        visibility = Visibility(log, await router_ids(log), system.BALANCED)
        plain, balanced = (Account(tenant, engines) for tenant, engines in hinted.items())
        gateways = [
            Gateway(plain, routers, publishing, clock),
            Gateway(balanced, routers, publishing, clock, visibility.stored),
        ]
        blind, seeing = fleet.made("round-robin"), fleet.made("least-outstanding")
        baselines = [
            Baseline(Account("round robin", blind), RoundRobin(blind)),
            Baseline(Account("least outstanding", seeing), LeastOutstanding(seeing)),
        ]
        await asyncio.sleep(SETTLE_S)
        clock.begin()
        accounts = [*(each.account for each in baselines), *(each.account for each in gateways)]
        async with in_background(_progress(trace, clock, accounts)):
            late_s = await _send(trace, chains, clock, baselines, gateways)
        await visibility.finish()
    return CaseFigures(
        trace.name,
        trace.source,
        fleet.engines,
        fleet.blocks,
        fleet.rate,
        len(trace.requests),
        trace.span_s,
        trace.ceiling,
        tuple(account.figures() for account in accounts),
        lookups=delays(routers.took_s),
        visible=delays(visibility.seen_s, visibility.never),
        late=delays(late_s),
    )


async def _send(
    trace: Trace,
    chains: Sequence[Sequence[bytes]],
    clock: Clock,
    baselines: Sequence[Baseline],
    gateways: Sequence[Gateway],
) -> list[float]:
    """Send every request when it is due; answers how late each was, in seconds of real time."""
    late_s: list[float] = []
    async with asyncio.TaskGroup() as sending:
        for request, chain in zip(trace.requests, chains, strict=True):
            await clock.until(request.at_s)
            now_s = clock.now_s
            late_s.append((now_s - request.at_s) / clock.speed)
            for baseline in baselines:
                baseline.send(request, now_s)
            for gateway in gateways:
                sending.create_task(gateway.send(request, chain))
    return late_s


async def _progress(trace: Trace, clock: Clock, accounts: Sequence[Account]) -> None:
    while True:
        await asyncio.sleep(PROGRESS_S)
        shown = "  ".join(
            f"{account.policy} {100 * account.cached_share:.1f} % {account.mean_ttft_s:.2f} s"
            for account in accounts
        )
        print(
            f"{trace.name} {clock.now_s:5.0f} of {trace.span_s:.0f} s  {shown}", file=sys.stderr, flush=True
        )
