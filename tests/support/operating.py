"""The controller's operation in this process, over a real API server and a real log, with its own rights."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from inferencecache.controller.admission.webhooks import INSTALL_NAMESPACE
from inferencecache.controller.kube.leases import LeaseTimes
from inferencecache.controller.operating import Operating, Work
from inferencecache.controller.rights import ACCOUNT, rights_of_controller
from inferencecache.controller.settings import ControllerSettings, read_settings
from inferencecache.controller.work import work_of
from inferencecache.core.kube.access import ClusterAccess
from inferencecache.core.kube.cluster import Cluster
from tests.support.dataplane import ASSETS
from tests.support.kube import ApiServer, KubeClient, service_account_token


async def install_rights(admin: KubeClient) -> str:
    """Give the controller's account its rights, if it has none; a token of the account."""
    for document in (
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": INSTALL_NAMESPACE}},
        *rights_of_controller(),
    ):
        answer = await admin.create(document)
        assert answer.status in (201, 409), answer
    return await service_account_token(admin, INSTALL_NAMESPACE, ACCOUNT)


def operating_settings(nats_url: str, **settings: Any) -> ControllerSettings:
    """Settings for a short life: ticks each half second. Others as given, by their names."""
    parsed = read_settings([f"--nats-url={nats_url}", "--insecure-nats"], {})
    defaults = {"assets": ASSETS, "refresh_interval_s": 0.5, "namespace": INSTALL_NAMESPACE}
    return msgspec.structs.replace(parsed, **(defaults | settings))


def access_of(server: ApiServer, token: str) -> ClusterAccess:
    """The way to the server for whoever has the token."""
    return ClusterAccess(server.url, ssl.create_default_context(cafile=str(server.ca)), token=token)


@asynccontextmanager
async def prepared(
    server: ApiServer,
    token: str,
    nats_url: str,
    lease_times: LeaseTimes = LeaseTimes(),  # noqa: B008 - frozen
    **settings: Any,
) -> AsyncIterator[Operating]:
    """An operation that is not run yet."""
    async with Cluster(access := access_of(server, token)) as cluster:
        settled = operating_settings(nats_url, **settings)
        operation = Operating(settled, access, cluster, CollectorRegistry(), lease_times=lease_times)
        try:
            yield operation
        finally:
            await operation.close()


@asynccontextmanager
async def operating(
    server: ApiServer,
    token: str,
    nats_url: str,
    *,
    work: Callable[[Operating], Work] = work_of,
    **settings: Any,
) -> AsyncIterator[Operating]:
    """A running operation, with the arguments of `prepared`; what it fails with is raised at the end."""
    async with prepared(server, token, nats_url, **settings) as operation:
        running = asyncio.ensure_future(operation.run(work))
        try:
            yield operation
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
