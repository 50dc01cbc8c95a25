"""How old each router's view is, as the router itself exports it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from inferencecache.cli.load.figures import Figures
from inferencecache.cli.stack.plan import RouterAddress

INTERVAL_S: Final = 1.0
AGE_GAUGE: Final = "inferencecache_router_view_age_seconds"


async def watch_views(routers: Sequence[RouterAddress], figures: Figures) -> None:
    """Read every router's metrics page each second, until cancelled."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2.0)) as http:
        while True:
            ages = await asyncio.gather(*(_view_age(http, router) for router in routers))
            for router, age in zip(routers, ages, strict=True):
                figures.view_age_s[router.name] = age
            await asyncio.sleep(INTERVAL_S)


async def _view_age(http: aiohttp.ClientSession, router: RouterAddress) -> float | None:
    """Age of the oldest partition; None when the router does not tell."""
    try:
        async with http.get(f"http://{router.http}/metrics") as response:
            page = await response.text()
    except (OSError, TimeoutError, aiohttp.ClientError):
        return None
    ages = [
        sample.value
        for family in text_string_to_metric_families(page)
        if family.name == AGE_GAUGE
        for sample in family.samples
    ]
    return max(ages, default=None)
