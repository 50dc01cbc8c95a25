"""A process authenticates by whatever its NATS settings name, and is refused without it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import nkeys  # type: ignore[import-untyped] # it has no types
import pytest
from nats.aio.transport import TcpTransport

from inferencecache.core.log import Log, NotConnectedError
from inferencecache.core.service import NatsSettings
from tests.support.certificates import DATA
from tests.support.nats import NatsServer
from tests.support.waiting import eventually

SEED = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER).decode()
PUBLIC = nkeys.from_seed(bytearray(SEED.encode())).public_key.decode()
USERS = {
    "user": 'authorization { user: "indexer", password: "secret" }',
    "token": 'authorization { token: "secret" }',
    "nkey": f"authorization {{ users: [ {{ nkey: {PUBLIC} }} ] }}",
}


def settings(kind: str, url: str, folder: Path) -> NatsSettings:
    match kind:
        case "user":
            return NatsSettings(url, user="indexer", password="secret")
        case "token":
            return NatsSettings(url, token="secret")
        case _:
            seed = folder / "indexer.nk"
            seed.write_text(SEED)
            return NatsSettings(url, nkey_seed_file=str(seed))


@pytest.mark.parametrize("kind", sorted(USERS))
async def test_who_has_the_credentials_gets_in_and_nobody_else(
    kind: str, nats_servers: Callable[..., NatsServer], tmp_path: Path
) -> None:
    server = nats_servers(extra=USERS[kind])
    log = await Log.connect(settings(kind, server.url, tmp_path), name="test", timeout_s=10)
    assert log.connected
    await log.close()
    with pytest.raises(NotConnectedError):
        await Log.connect(NatsSettings(server.url, insecure=True), name="test", timeout_s=1)


SEED_OF_NOTHING = "-----BEGIN USER NKEY SEED-----\nSUAMNOTASEED\n------END USER NKEY SEED------\n"


@pytest.mark.parametrize("text", ["rubbish", SEED_OF_NOTHING])
@pytest.mark.rule("SUB-003", "SUB-177")
async def test_credentials_that_are_none_are_said_to_be_so_and_tried_again(
    text: str, nats_servers: Callable[..., NatsServer]
) -> None:
    server = nats_servers(extra=USERS["nkey"])
    log = Log(NatsSettings(server.url, creds_text=text), "test")
    connecting = asyncio.create_task(log.start())
    await eventually(lambda: "NATS_CREDS" in log.last_error)
    assert "NOTASEED" not in log.last_error
    assert not connecting.done()
    connecting.cancel()
    await log.close()


async def test_a_server_that_leaves_tls_to_the_client_is_asked_for_it(
    nats_servers: Callable[..., NatsServer],
) -> None:
    certificate = f'cert_file: "{DATA / "first.crt"}", key_file: "{DATA / "first.key"}"'
    server = nats_servers(extra=f"tls {{ {certificate} }}\nallow_non_tls: true")
    url = f"localhost:{server.port}"
    for scheme, is_secret in (("tls", True), ("nats", False)):
        ca = str(DATA / "first.crt") if is_secret else ""
        log = await Log.connect(NatsSettings(f"{scheme}://{url}", tls_ca_file=ca), name="x", timeout_s=10)
        transport = log._client._transport
        assert isinstance(transport, TcpTransport)
        assert transport._io_writer is not None
        assert (transport._io_writer.get_extra_info("ssl_object") is not None) is is_secret
        await log.close()
