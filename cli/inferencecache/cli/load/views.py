"""How old each router's view is, and what each indexer does, as they themselves export it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from inferencecache.cli.load.figures import Figures, IndexerFigures
from inferencecache.cli.stack.plan import IndexerAddress, RouterAddress

INTERVAL_S: Final = 1.0
AGE_GAUGE: Final = "inferencecache_router_view_age_seconds"
OWNED_GAUGE: Final = "inferencecache_indexer_partition_owned"
LAG_GAUGE: Final = "inferencecache_indexer_lag_seconds"


async def watch_views(
    indexers: Sequence[IndexerAddress], routers: Sequence[RouterAddress], figures: Figures
) -> None:
    """Read every indexer's and router's metrics page each second, until cancelled."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2.0)) as http:
        while True:
            async with asyncio.TaskGroup() as group:
                for indexer in indexers:
                    group.create_task(_watch_indexer(http, indexer, figures))
                for router in routers:
                    group.create_task(_watch_router(http, router, figures))
            await asyncio.sleep(INTERVAL_S)


async def _watch_indexer(http: aiohttp.ClientSession, indexer: IndexerAddress, figures: Figures) -> None:
    values = await _values(http, indexer.http, OWNED_GAUGE, LAG_GAUGE)
    owned = values[OWNED_GAUGE]
    figures.indexers[indexer.name] = (
        IndexerFigures(int(sum(owned)), len(owned), max(values[LAG_GAUGE], default=None)) if owned else None
    )


async def _watch_router(http: aiohttp.ClientSession, router: RouterAddress, figures: Figures) -> None:
    values = await _values(http, router.http, AGE_GAUGE)
    figures.view_age_s[router.name] = max(values[AGE_GAUGE], default=None)


async def _values(http: aiohttp.ClientSession, address: str, *names: str) -> dict[str, list[float]]:
    """Samples of some gauges, one a partition; none when the process does not tell."""
    values: dict[str, list[float]] = {name: [] for name in names}
    try:
        async with http.get(f"http://{address}/metrics") as response:
            page = await response.text()
    except (OSError, TimeoutError, aiohttp.ClientError):
        return values
    for family in text_string_to_metric_families(page):
        if family.name in values:
            values[family.name] += [sample.value for sample in family.samples]
    return values
