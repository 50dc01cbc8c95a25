"""What Envoy's question to a router costs a request, and what it saves: `python -m benchmarks.gateway_bench`.

Latency: the same requests go through two Envoys that differ in nothing but the ext_proc filter, to engines
that answer at once. What one takes longer is the added latency: the prompt on its way to a router, the
lookup, and the pick on its way back, for the request and again for its answer.

Savings: a conversation trace is held with simulated engines through Envoy that asks, through Envoy that
does not, and by a client that asks routers itself. A block of the trace, 512 tokens, is one block of 16 here,
and engines are slower by as much, so that caches and queues behave as with whole prompts.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import cycle
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp
import grpc
from aiohttp import web

from benchmarks.routing.trace import BLOCK_TOKENS, Trace, load
from inferencecache.cli.load.engines import Completion, EngineFailedError, Engines
from inferencecache.cli.stack import Plan, StackSettings, Supervisor, plan_stack
from inferencecache.cli.stack.gateway import endpoints_file, envoy_program
from inferencecache.cli.stack.plan import HOST, TENANT, EngineAddress
from inferencecache.cli.stack.ports import Ports
from inferencecache.client import AsyncClient, Prompt
from inferencecache.core.fingerprint import prefix_digests
from inferencecache.v1alpha1.inferencecache_pb2 import CacheStateUpdate, PrefixEntry
from inferencecache.v1alpha1.inferencecache_pb2_grpc import InferenceCacheStub
from tests.support.envoy import Document, envoy
from tools.arguments import positive

STUBS: Final = 4
REQUESTS: Final = 600
PROMPTS: Final = (512, 8192)
AT_ONCE: Final = (1, 8)
SIM_BLOCK: Final = 16
ENGINES: Final = 8
BLOCKS: Final = 5000
RATE: Final = 8000.0
DECAY_S: Final = 10.0
IDLE_S: Final = 10.0
"""For what routers compute without requests."""
_DIGIT: Final = 128
Send = Callable[[Sequence[int]], Awaitable[Completion]]


# -- both measurements ---------------------------------------------------------------------------------


@asynccontextmanager
async def running(settings: StackSettings) -> AsyncIterator[Plan]:
    """The whole system without load."""
    plan = plan_stack(settings, Ports(well_known=False))
    async with Supervisor(plan, settings.state_dir, lambda _: None) as supervisor:
        await supervisor.start()
        yield plan


def plain(document: Document) -> None:
    """Ask nobody."""
    manager = document["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    manager["http_filters"] = [each for each in manager["http_filters"] if "ext_proc" not in each["name"]]


def quantile(values: Sequence[float], share: float) -> float:
    """In order of size, the value at this share."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


# -- latency -------------------------------------------------------------------------------------------


@asynccontextmanager
async def stub_engines(ports: Ports) -> AsyncIterator[list[str]]:
    """Engines that answer at once; HOST:PORT each."""

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=b"{}", content_type="application/json")

    async with AsyncExitStack() as stack:
        addresses = []
        for _ in range(STUBS):
            application = web.Application(client_max_size=1 << 26)
            application.add_routes([web.route("*", "/{path:.*}", answer)])
            runner = web.AppRunner(application, access_log=None)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            port = ports.take(0)
            await web.TCPSite(runner, HOST, port).start()
            addresses.append(f"{HOST}:{port}")
        yield addresses


async def cache(plan: Plan, model: str, prompts: Sequence[Sequence[int]]) -> None:
    """Let the index say that each prompt is held by one of the stubs."""
    async with grpc.aio.insecure_channel(plan.routers[0].grpc) as channel:
        stub = InferenceCacheStub(channel)
        for number, prompt in enumerate(prompts):
            hashes = prefix_digests(prompt, SIM_BLOCK)
            entry = PrefixEntry(block_hashes=hashes, block_token_counts=[SIM_BLOCK] * len(hashes))
            update = CacheStateUpdate(
                replica_id=f"engine-{1 + number % STUBS}",
                model_id=model,
                tenant_id=TENANT,
                hash_scheme="vllm",
                prefixes=[entry],
            )
            await stub.ReportCacheState(iter([update]), timeout=10)


async def delays(
    http: aiohttp.ClientSession, urls: Sequence[str], bodies: Sequence[Any], at_once: int
) -> dict[str, list[float]]:
    """Milliseconds of each request by URL; the Envoys take turns, so that both see the same machine."""
    took: dict[str, list[float]] = {url: [] for url in urls}
    left = iter([(url, bodies[number % len(bodies)]) for number in range(REQUESTS) for url in urls])

    async def client() -> None:
        for url, body in left:
            began = time.perf_counter()
            async with http.post(f"{url}/v1/completions", json=body) as response:
                await response.read()
                assert response.status == 200, await response.text()
            took[url].append(1000 * (time.perf_counter() - began))

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(client())
    return took


async def processor_time(http: aiohttp.ClientSession, plan: Plan) -> float:
    """Seconds that all routers have computed: what others do on the machine does not change them."""
    total = 0.0
    for router in plan.routers:
        async with http.get(f"http://{router.http}/metrics") as response:
            lines = (await response.text()).splitlines()
        total += sum(float(line.split()[1]) for line in lines if line.startswith("process_cpu_seconds_total"))
    return total


async def measure_latency(folder: Path) -> None:
    """Print the added latency by length of the prompt and number of clients."""
    settings = StackSettings(folder, engines=1, control_group=False, gateway=str(envoy_program()))
    async with AsyncExitStack() as stack:
        plan = await stack.enter_async_context(running(settings))
        stubs = await stack.enter_async_context(stub_engines(Ports(well_known=False)))
        names = [(address, f"engine-{number + 1}") for number, address in enumerate(stubs)]
        (folder / "endpoints.yaml").write_text(endpoints_file(names))
        routers = [router.ext_proc for router in plan.routers]
        asking = await stack.enter_async_context(envoy(folder / "asking", stubs, routers))
        turns = await stack.enter_async_context(envoy(folder / "plain", stubs, routers, plain))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        print(
            "prompt tokens, clients   round robin p50 / p99 ms   with ext_proc p50 / p99 ms   added p50 / p99"
        )
        before_s = await processor_time(http, plan)
        await asyncio.sleep(IDLE_S)
        idle = (await processor_time(http, plan) - before_s) / IDLE_S
        for length in PROMPTS:
            prompts = [[1000 * number + token % 997 for token in range(length)] for number in range(16)]
            await cache(plan, settings.model, prompts)
            bodies = [{"model": settings.model, "prompt": prompt, "max_tokens": 1} for prompt in prompts]
            await delays(http, (turns, asking), bodies, 4)
            for at_once in AT_ONCE:
                before_s, began_s = await processor_time(http, plan), time.monotonic()
                took = await delays(http, (turns, asking), bodies, at_once)
                figures = [quantile(took[url], share) for url in (turns, asking) for share in (0.5, 0.99)]
                idle_s = idle * (time.monotonic() - began_s)
                spent_ms = 1000 * (await processor_time(http, plan) - before_s - idle_s) / REQUESTS
                added = (figures[2] - figures[0], figures[3] - figures[1])
                print(
                    f"{length:13d}, {at_once:7d}   {figures[0]:17.2f} / {figures[1]:.2f}"
                    f"   {figures[2]:19.2f} / {figures[3]:.2f}   {added[0]:9.2f} / {added[1]:.2f}"
                    f"   {spent_ms:.2f} ms a request",
                    flush=True,
                )


# -- savings -------------------------------------------------------------------------------------------


class Saved(NamedTuple):
    """What one way of choosing served from caches, and how long first tokens took, in the trace's seconds."""

    cached_share: float
    mean_ttft_s: float
    p99_ttft_s: float
    failed: int


def prompt_of(blocks: Sequence[int]) -> list[int]:
    """Sixteen token ids a block of the trace, which only that block has."""
    filler = (0,) * (SIM_BLOCK - 3)
    return [
        token
        for block in blocks
        for token in (block % _DIGIT, block // _DIGIT % _DIGIT, block // _DIGIT**2, *filler)
    ]


async def hold(trace: Trace, speed: float, send: Send) -> Saved:
    """The whole trace, `speed` times as fast."""
    cached = total = failed = 0
    ttft_s: list[float] = []
    began = time.monotonic()

    async def one(blocks: Sequence[int]) -> None:
        nonlocal cached, total, failed
        try:
            completion = await send(prompt_of(blocks))
        except EngineFailedError:
            failed += 1
            return
        cached += completion.cached_tokens
        total += completion.prompt_tokens
        ttft_s.append(speed * completion.first_token_s)

    async with asyncio.TaskGroup() as group:
        for request in trace.requests:
            await asyncio.sleep(max(0.0, request.at_s / speed - (time.monotonic() - began)))
            group.create_task(one(request.blocks))
    return Saved(cached / max(1, total), sum(ttft_s) / len(ttft_s), quantile(ttft_s, 0.99), failed)


@asynccontextmanager
async def own_client(plan: Plan, engines: Engines, model: str) -> AsyncIterator[Send]:
    """Ask routers, follow what they say of this prompt, else take engines in turn."""
    by_replica = {engine.replica: engine for engine in plan.engines}
    turn = cycle(plan.engines)
    async with AsyncClient(*(router.grpc for router in plan.routers), tenant=TENANT, deadline_s=1) as client:

        async def send(prompt: Sequence[int]) -> Completion:
            hint = await client.lookup(model, Prompt.of_tokens(prompt))
            return await engines.complete(by_replica.get(hint.replica) or next(turn), prompt, 1)

        yield send


async def measure_savings(folder: Path, seconds: float, speed: float) -> None:
    """Print the cached share of the conversation trace by who chooses."""
    trace = load("conversation").spread().slice(seconds)
    os.environ["INFERENCECACHE_LOAD_DECAY"] = f"{1000 * DECAY_S / speed:.0f}ms"
    settings = StackSettings(
        folder,
        engines=ENGINES,
        control_group=False,
        num_blocks=BLOCKS,
        prefill_tokens_per_second=RATE * SIM_BLOCK / BLOCK_TOKENS * speed,
        decode_tokens_per_second=1e6,
        gateway=str(envoy_program()),
    )
    print(
        f"{trace.name} trace ({trace.source}), {len(trace.requests)} requests of {seconds:.0f} s, "
        f"{ENGINES} engines, {speed:g} times as fast; one cache without bounds: {100 * trace.ceiling:.1f} %"
    )
    print("who chooses                  prompt tokens from cache   mean TTFT s   p99 TTFT s   failed")
    async with AsyncExitStack() as stack:
        plan = await stack.enter_async_context(running(settings))
        engines = await stack.enter_async_context(Engines(settings.model))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        addresses = [engine.url.removeprefix("http://") for engine in plan.engines]
        turns = await stack.enter_async_context(envoy(folder / "plain", addresses, [], plain))
        own = await stack.enter_async_context(own_client(plan, engines, settings.model))

        def through(url: str) -> Send:
            async def send(prompt: Sequence[int]) -> Completion:
                return await engines.complete(EngineAddress("envoy", url), prompt, 1)

            return send

        for name, send in (
            ("Envoy, round robin", through(turns)),
            ("a client that asks itself", own),
            ("Envoy that asks routers", through(plan.gateway_url)),
        ):
            for engine in plan.engines:
                async with http.post(f"{engine.url}/reset_prefix_cache") as response:
                    assert response.status == 200
            saved = await hold(trace, speed, send)
            print(
                f"{name:27}  {100 * saved.cached_share:22.1f} %  {saved.mean_ttft_s:12.2f}"
                f"  {saved.p99_ttft_s:11.2f}  {saved.failed:7d}",
                flush=True,
            )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--slice", type=positive, default=600.0, help="seconds of the trace (600)")
    parser.add_argument("--speed", type=positive, default=10.0, help="times as fast (10)")
    parser.add_argument("--only", choices=("latency", "savings"), help="one of the two measurements")
    arguments = parser.parse_args()
    if envoy_program() is None:
        print("NOT RUN: there is no Envoy here; make envoy-assets installs it")
        return
    with tempfile.TemporaryDirectory(prefix="bench-gateway-") as folder:
        if arguments.only != "savings":
            await measure_latency(Path(folder, "latency"))
        if arguments.only != "latency":
            await measure_savings(Path(folder, "savings"), arguments.slice, arguments.speed)


if __name__ == "__main__":
    asyncio.run(main())
