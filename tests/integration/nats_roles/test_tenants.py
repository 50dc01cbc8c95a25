"""Sidecars under the shipped NATS users: anybody's, or under the overlay `strict` one tenant's each."""

from __future__ import annotations

import os
from collections.abc import Callable

import nkeys  # type: ignore[import-untyped] # it has no types
import pytest

from inferencecache.core.log import Log, NotConnectedError, NotStoredError
from inferencecache.core.log.assets import ensure_assets, ensure_layout, read_layout
from inferencecache.core.service import NatsSettings
from inferencecache.schemas.layout import Layout
from tests.support.nats import NatsServer
from tests.support.nats_roles import as_user, authorization, strict_authorization

pytestmark = pytest.mark.rule("OPS-30")

SEED = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER).decode()
PUBLIC = nkeys.from_seed(bytearray(SEED.encode())).public_key.decode()
SIDECAR = "kvevent-subscriber r"


async def make_assets(server: NatsServer) -> None:
    log = await Log.connect(as_user(server.url, "indexer"), name="indexer x", timeout_s=10)
    await ensure_assets(log, await ensure_layout(log, default=Layout(partitions=1)))
    await log.close()


async def is_stored(log: Log, tenant: str) -> bool:
    try:
        await log.publisher.publish(f"ic.ev.1.0.{tenant}.m.r.e", b"x", timeout_s=1)
    except NotStoredError:
        return False
    return True


async def test_without_credentials_one_may_append_as_any_tenant(
    nats_servers: Callable[..., NatsServer],
) -> None:
    server = nats_servers(extra=authorization())
    await make_assets(server)
    log = await Log.connect(NatsSettings(server.url), name=SIDECAR, timeout_s=10)
    assert await read_layout(log) is not None
    assert await is_stored(log, "team-a")
    assert await is_stored(log, "team-b")
    await log.close()


@pytest.mark.rule("SUB-177")
async def test_under_strict_a_tenants_key_appends_as_that_tenant_and_nobody_comes_without(
    nats_servers: Callable[..., NatsServer],
) -> None:
    server = nats_servers(extra=strict_authorization("team-a", PUBLIC))
    await make_assets(server)
    with pytest.raises(NotConnectedError):
        await Log.connect(NatsSettings(server.url), name=SIDECAR, timeout_s=1)
    log = await Log.connect(NatsSettings(server.url, creds_text=f"{SEED}\n"), name=SIDECAR, timeout_s=10)
    assert await read_layout(log) is not None
    assert await is_stored(log, "team-a")
    assert not await is_stored(log, "team-b")
    await log.close()
