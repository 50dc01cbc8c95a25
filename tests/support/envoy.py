"""A real Envoy with the configuration of the demo, or a changed one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from inferencecache.cli.stack.gateway import envoy_config, envoy_program
from inferencecache.cli.stack.plan import HOST, Program
from inferencecache.cli.stack.process import Child
from tests.support.ports import free_ports
from tests.support.waiting import eventually

READY_S = 30.0
Document = dict[str, Any]


@asynccontextmanager
async def envoy(
    folder: Path,
    engines: Sequence[str],
    routers: Sequence[str],
    change: Callable[[Document], None] = lambda _: None,
) -> AsyncIterator[str]:
    """Run one in front of engines and routers, HOST:PORT each; its URL. What it is told is in `folder`."""
    listener, admin = free_ports(2)
    document = yaml.safe_load(envoy_config(HOST, listener, admin, engines, routers))
    change(document)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "envoy.yaml"
    path.write_text(yaml.safe_dump(document))
    command = (str(envoy_program()), "-c", str(path), "--disable-hot-restart", "--concurrency", "1")
    child = Child(Program("envoy", command, f"http://{HOST}:{admin}/ready"), folder / "envoy.log")
    await child.start()
    try:
        async with aiohttp.ClientSession() as http:
            await child.await_ready(http, READY_S)
            everybody = len(engines) + len(routers)
            await eventually(partial(_are_healthy, http, admin, everybody), within_s=READY_S)
        yield f"http://{HOST}:{listener}"
    finally:
        await child.stop()


async def _are_healthy(http: aiohttp.ClientSession, admin: int, count: int) -> bool:
    """Have so many engines and routers passed a health check?"""
    url = f"http://{HOST}:{admin}/stats?filter=membership_healthy&format=json"
    async with http.get(url) as response:
        stats = (await response.json())["stats"]
    return count == sum(int(each.get("value", 0)) for each in stats)


def ext_proc_of(document: Document) -> Document:
    """The settings of the filter, to be changed."""
    manager = document["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    found: Document = manager["http_filters"][0]["typed_config"]
    return found
