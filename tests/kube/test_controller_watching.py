"""What is observed of a cluster whose API server comes and goes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest
import yaml

from inferencecache.controller.kube.observed import Observed
from inferencecache.controller.kube.watching import Watching
from inferencecache.core.kube.access import ClusterAccess
from inferencecache.core.kube.api import KubeApi
from inferencecache.core.kube.cluster import Cluster
from inferencecache.core.kube.kinds import CACHE_POLICIES, CACHE_TENANTS, PODS, ObjectKey, ObjectKind
from inferencecache.schemas.resources import document_of
from tests.kube.objects import stored
from tests.support.kube import CRDS, ApiServer, Document, KubeClient
from tests.support.operating import access_of, install_rights
from tests.support.relay import Relay
from tests.support.resources import policy, tenant
from tests.support.waiting import eventually

pytestmark = [pytest.mark.kube, pytest.mark.timeout(420)]
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WITHIN_S = 60.0
SOON_S = 20.0
"""Kopf itself would notice after 70 s; the controller takes about 5 s, and longer on a busy machine."""
ASKED = 2
"""Questions on new connections after which the server is away for sure."""


async def is_served(kube: KubeClient) -> bool:
    """Does the server have the kind of tenants?"""
    return (await kube.call("GET", CACHE_TENANTS.path("default"))).status == 200


@asynccontextmanager
async def watching(access: ClusterAccess, kinds: Sequence[ObjectKind]) -> AsyncIterator[Observed]:
    """What is observed of the kinds, all listed once; no listing comes that nothing calls for."""
    async with Cluster(access) as cluster:
        observed = Observed(kinds)
        running = asyncio.ensure_future(Watching(access, KubeApi(cluster), observed, resync_s=3600.0).run())
        try:
            await asyncio.wait_for(observed.listed(), WITHIN_S)
            yield observed
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running


async def follows(observed: Observed, kube: KubeClient, made: Document) -> None:
    """Is the object seen once it is there, and gone once it is gone?"""
    await stored(kube, made)
    kind = {each.name: each for each in observed.kinds}[made["kind"]]
    key = ObjectKey(made["metadata"]["namespace"], made["metadata"]["name"])
    await eventually(lambda: observed.get(kind, key), within_s=WITHIN_S, what=str(key))
    await kube.delete(made["kind"], key.name, key.namespace)
    await eventually(lambda: not observed.get(kind, key), within_s=WITHIN_S, what=f"end of {key}")


async def test_watches_survive_a_crash_of_the_server_and_kinds_that_come_late(tmp_path: Path) -> None:
    server = ApiServer(tmp_path / "kube")
    before = ObjectKey("default", "before")
    try:
        await asyncio.to_thread(server.start)
        async with KubeClient(server) as kube:
            token = await install_rights(kube)
            name = f"{CACHE_TENANTS.plural}.{CACHE_TENANTS.group}"
            assert (await kube.call("DELETE", f"{DEFINITION}/{name}")).status == 200
            await stored(kube, document_of(policy(str(before))))
            kinds = (CACHE_POLICIES, CACHE_TENANTS, PODS)
            async with watching(access_of(server, token), kinds) as observed:
                assert observed.get(CACHE_POLICIES, before)
                await follows(observed, kube, document_of(policy("default/one")))
                server.kill_api()
                await asyncio.to_thread(server.restart_api)
                await kube.delete("CachePolicy", before.name, before.namespace)
                await eventually(
                    lambda: not observed.get(CACHE_POLICIES, before), within_s=WITHIN_S, what="its end"
                )
                for number in range(3):
                    await follows(observed, kube, document_of(policy(f"default/after-{number}")))
                definition = yaml.safe_load((CRDS / "cachetenants.yaml").read_text())
                assert (await kube.call("POST", DEFINITION, definition)).status == 201
                await eventually(lambda: is_served(kube), within_s=WITHIN_S)
                await follows(observed, kube, document_of(tenant("default/late", "t")))
    finally:
        server.stop()


async def test_what_vanished_behind_dead_connections_is_seen_soon_after_new_ones_are_answered(
    operated_server: ApiServer, operated: KubeClient, operator_token: str, operated_namespace: str
) -> None:
    key = ObjectKey(operated_namespace, "before")
    await stored(operated, document_of(policy(str(key))))
    async with Relay().run(urlsplit(operated_server.url).port or 0) as relay:
        access = msgspec.structs.replace(
            access_of(operated_server, operator_token), server=f"https://127.0.0.1:{relay.port}"
        )
        async with watching(access, (CACHE_POLICIES, PODS)) as observed:
            await follows(observed, operated, document_of(policy(f"{key.namespace}/one")))
            relay.go_silent()
            await operated.delete("CachePolicy", key.name, key.namespace)
            await eventually(lambda: relay.unanswered >= ASKED, within_s=WITHIN_S, what="being asked")
            assert observed.get(CACHE_POLICIES, key)
            relay.resume()
            await eventually(
                lambda: not observed.get(CACHE_POLICIES, key), within_s=SOON_S, what="the end of it"
            )
            await follows(observed, operated, document_of(policy(f"{key.namespace}/two")))
