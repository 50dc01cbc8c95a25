"""The servers that other tests stand on keep their promises: port and store outlive a restart."""

from __future__ import annotations

import nats
import pytest
from nats.js.errors import NotFoundError

from tests.support.nats import NatsServer


@pytest.mark.parametrize("kill", [False, True])
async def test_a_restart_keeps_port_and_store(nats_server: NatsServer, kill: bool) -> None:
    url = nats_server.url
    async with await nats.connect(url) as connection:
        await connection.jetstream().add_stream(name="kept", subjects=["kept.*"])
        await connection.jetstream().publish("kept.a", b"payload")
    nats_server.restart(kill=kill)
    assert nats_server.url == url
    async with await nats.connect(url) as connection:
        assert (await connection.jetstream().stream_info("kept")).state.messages == 1
        assert connection.max_payload == 8 * 1024 * 1024


async def test_a_wiped_store_is_empty(nats_server: NatsServer) -> None:
    async with await nats.connect(nats_server.url) as connection:
        await connection.jetstream().add_stream(name="lost", subjects=["lost.*"])
    nats_server.stop()
    nats_server.wipe()
    nats_server.start()
    async with await nats.connect(nats_server.url) as connection:
        with pytest.raises(NotFoundError):
            await connection.jetstream().stream_info("lost")
