"""A real Prometheus scrapes the whole system, and finds all that alerts and panels ask for."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from tests.prometheus.server import Prometheus
from tests.support.local_stack import LocalStack
from tests.support.promql import expressions, selectors
from tests.support.waiting import eventually
from tools.metrics_reference import MEASURES

pytestmark = pytest.mark.prometheus

PAGE = Path(__file__).parents[1] / "data" / "metrics_pages" / "vllm_with_offload_tier.txt"
CAP = 128
BLOCK = 16
TIGHT = """
apiVersion: inferencecache.io/v1alpha1
kind: CacheTenant
metadata: {namespace: demo, name: demo}
spec: {tenantID: demo, quota: {maxIndexEntries: 32}}
---
apiVersion: inferencecache.io/v1alpha1
kind: CachePolicy
metadata: {namespace: demo, name: demo}
spec: {lookupTimeoutMs: 1}
"""
CONTROLLERS = {measure.series for measure in MEASURES["controller"]}
"""No controller runs here; that it declares what is asked for is tested in tests/unit/observability."""
DERIVED = {"bucket", "count", "sum", "created"}
"""Last parts of the names that clients make of a histogram's or counter's."""
ONE_FORM_OF_TWO = {"vllm:external_prefix_cache_queries", "vllm:external_prefix_cache_hits"}
"""Engines export these or those with `_total`."""


def demo_targets(stack: LocalStack) -> dict[str, str]:
    """Addresses of all processes that export metrics of ours."""
    flags = {"indexer": "--http-bind-address", "router": "--http-bind-address", "sidecar": "--health-address"}
    return {
        name: stack.option(name, flags[kind])
        for name in stack.processes
        if (kind := name.partition("-")[0]) in flags
    }


@asynccontextmanager
async def fixture_page(path: Path) -> AsyncIterator[str]:
    """Serves a recorded page; yields the address."""

    async def page(_: web.Request) -> web.Response:
        return web.Response(text=path.read_text())

    application = web.Application()
    application.router.add_get("/metrics", page)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield "{}:{}".format(*runner.addresses[0])
    finally:
        await runner.cleanup()


async def tighten(stack: LocalStack, folder: Path) -> None:
    """Give the tenant less room than it takes, and long lookups less time than they need."""
    file = folder / "tight.yaml"
    file.write_text(TIGHT)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "inferencecache.cli", "policy", "apply", "--wait", "10s", "-f", str(file)),
        *("--nats-url", stack.option("router-1", "--nats-url"), "--insecure-nats"),
    )
    assert await asyncio.wait_for(process.wait(), 60) == 0


async def load(stack: LocalStack, prometheus: Prometheus, until: str, prompts: itertools.count[int]) -> None:
    """New prompts to all engines in turn, and lookups of them, until an expression has a result."""
    for number in prompts:
        prompt = [number * 1000 + token for token in range(12 * BLOCK)]
        engine = f"engine-{number % 2 + 1}"
        await stack.complete(engine, prompt)
        await stack.lookup("router-1", prompt)
        await stack.lookup("router-2", prompt)
        if await prometheus.query(until):
            return


@pytest.mark.timeout(400)
@pytest.mark.rule("OPS-36")
async def test_every_series_that_alerts_and_panels_ask_for_has_a_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERENCECACHE_MAX_ENTRIES", str(CAP))
    async with LocalStack(tmp_path, "--engines=2") as stack, fixture_page(PAGE) as page:
        targets = demo_targets(stack)
        assert len(targets) == 6
        async with Prometheus(tmp_path, targets | {"engine-with-tier": page}) as prometheus:
            await stack.lookup("router-1", list(range(BLOCK)))  # of an empty index: no hint
            prompts = itertools.count(1)
            evicted = 'inferencecache_index_evictions_total{reason="cap"} > 0'
            await load(stack, prometheus, evicted, prompts)
            await tighten(stack, tmp_path)
            await load(stack, prometheus, "inferencecache_tenant_evictions_total > 0", prompts)
            for length, reason in ((200_000, "TIMEOUT"), (BLOCK, "AFFINITY_HINT")):
                unseen = [500_000 + token for token in range(length)]

                async def is_answered(prompt: list[int] = unseen, reason: str = reason) -> bool:
                    answer = await stack.lookup("router-1", prompt)
                    return answer is not None and answer.reason_code == reason

                await eventually(is_answered, within_s=20, what=reason)

            asked = {selector for expression in expressions() for selector in selectors(expression)}
            for selector in sorted(asked):
                if selector.name in CONTROLLERS | ONE_FORM_OF_TWO:
                    continue

                async def has_sample(series: str = f"last_over_time({selector}[10m])") -> bool:
                    return bool(await prometheus.query(series))

                await eventually(has_sample, within_s=30, what=f"a sample of {selector}")
            for expression in expressions():
                await prometheus.query(expression)

            names = {
                each["metric"]["__name__"] for each in await prometheus.query('{__name__=~"inference.*"}')
            }
            declared = {measure.series for measures in MEASURES.values() for measure in measures}
            derived = {name for name in names if name.rpartition("_")[2] in DERIVED}
            assert names - derived - declared == set()
