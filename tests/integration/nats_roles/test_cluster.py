"""The servers of the overlay `ha`: they find each other by a password, and roles hold on all of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Final

import pytest

from inferencecache.cli.stack.ports import Ports
from inferencecache.core.log import Log
from inferencecache.core.log.assets import ensure_assets, ensure_layout
from inferencecache.core.log.inbox import NoAnswerError
from inferencecache.core.log.jetstream import ApiError, stream_info
from inferencecache.core.log.subjects import events_stream
from inferencecache.schemas.layout import Layout
from tests.support.nats import NatsServer
from tests.support.nats_roles import BASE, as_user, authorization
from tests.support.waiting import eventually

NODES: Final = 3
HA: Final = BASE.parents[1] / "overlays" / "ha"


def clustered(number: int, ports: list[int], password: str) -> str:
    """Configuration of one server, with what the StatefulSet gives it by its environment."""
    routes = json.dumps([f"nats://route:{password}@127.0.0.1:{port}" for port in ports])
    shipped = (HA / "extra.conf").read_text().replace("0.0.0.0:6222", f"127.0.0.1:{ports[number]}")
    given = f'server_name: "n{number}"\nROUTE_PASSWORD: "{password}"\nROUTES: {routes}\n'
    return given + authorization() + shipped


@pytest.mark.rule("OPS-30")
async def test_three_servers_keep_three_copies_and_one_with_another_password_stays_out(
    nats_servers: Callable[..., NatsServer],
) -> None:
    taken = Ports(well_known=False)
    ports = [taken.take(0) for _ in range(NODES + 1)]
    first, *_ = [nats_servers(extra=clustered(number, ports[:NODES], "p1")) for number in range(NODES)]
    stranger = nats_servers(extra=clustered(NODES, ports, "p2"))
    log = await Log.connect(as_user(first.url, "indexer"), name="indexer x", timeout_s=30)

    async def is_made() -> bool:
        try:
            layout = await ensure_layout(log, default=Layout(partitions=1), replicas=NODES)
            await ensure_assets(log, layout, replicas=NODES)
        except (ApiError, NoAnswerError):
            return False
        return True

    await eventually(is_made, within_s=40)
    info = await stream_info(log, events_stream(1, 0))
    assert info.config["num_replicas"] == NODES
    await log.close()
    said = await asyncio.to_thread(stranger.log_file.read_text)
    assert "Authorization" in said or "authentication error" in said
