"""A run of the doctor: ask everything that there is to ask within its time, then judge."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from inferencecache.cli.doctor.collecting.bus import collect_bus, unseen
from inferencecache.cli.doctor.collecting.engines import EnginePages, collect_named, collect_of_cluster
from inferencecache.cli.doctor.collecting.kube import SERVER, collect_kube, find_server, wanted_policy
from inferencecache.cli.doctor.collecting.server import ask_health
from inferencecache.cli.doctor.facts import (
    BusFacts,
    EngineFacts,
    Facts,
    KubeFacts,
    ReadFailed,
    RouterFacts,
    ServerFacts,
    Unreachable,
)
from inferencecache.cli.router import DEFAULT_ADDRESS, RouterSettings, RouterTls
from inferencecache.core.kube.access import (
    ClusterAccess,
    ClusterAccessError,
    access_to_cluster,
    find_kubeconfig,
    is_in_cluster,
)
from inferencecache.core.kube.api import KubeApi, KubeError
from inferencecache.core.kube.cluster import Cluster
from inferencecache.core.service import NatsSettings

NATS_SERVICE: Final = "inference-cache-nats"
GRPC_PORT: Final = 9090
_HEALTH_S: Final = 5.0

_Asked = TypeVar("_Asked")
_Other = TypeVar("_Other")


class CannotStartError(Exception):
    """There is nothing to look at, or no way to it; the message names the setting to change."""


class DoctorOptions(NamedTuple):
    """What was asked for. `finds_nats`: nobody named a NATS server, so that the cluster's is meant."""

    nats: NatsSettings
    finds_nats: bool = True
    tls: RouterTls = RouterTls()
    kubeconfig: Path | None = None
    context: str = ""
    namespace: str = ""
    server_endpoint: str = ""
    copies: int = 1
    engines: tuple[EnginePages, ...] = ()
    config_only: bool = False
    timeout_s: float = 30.0


def find_cluster(options: DoctorOptions) -> ClusterAccess | None:
    """The way to the cluster, None when there is none at all. A pod's own account counts only when neither
    a file nor a context was named [OPS-72]. Raises CannotStartError.
    """
    if not options.timeout_s:
        raise CannotStartError("--timeout: 0 is no time to look at anything")
    path = options.kubeconfig or find_kubeconfig()
    if options.context and path is None:
        raise CannotStartError(f"--context={options.context}: there is no kubeconfig; give --kubeconfig")
    if path is None and not is_in_cluster():
        if options.config_only:
            raise CannotStartError("--config-only looks at a cluster, and there is none; give --kubeconfig")
        return None
    try:
        return access_to_cluster(path, context=options.context, with_programs=True)
    except ClusterAccessError as error:
        raise CannotStartError(str(error)) from None


async def collect(options: DoctorOptions, access: ClusterAccess | None) -> Facts:
    """Everything, within the time; what is not known by then says so in its place."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(Cluster(access)) if access is not None else None
        return await _Collecting(options, cluster).all()


class _Collecting:
    def __init__(self, options: DoctorOptions, cluster: Cluster | None) -> None:
        self._options = options
        self._cluster = cluster
        self._api = KubeApi(cluster) if cluster is not None else None
        self._ends_at = asyncio.get_running_loop().time() + options.timeout_s

    async def all(self) -> Facts:
        kube = await self._kube()
        if self._options.config_only:
            return Facts(kube=kube, engines=await self._engines(kube))
        install = await self._install()
        server, bus, engines = await asyncio.gather(
            self._server(install), self._bus(kube, install), self._engines(kube)
        )
        routers = bus.routers.routers if bus and isinstance(bus.routers, RouterFacts) else ()
        sizes = {each.id: each.block_size for each in routers if each.block_size}
        return Facts(server, bus, kube, engines, sizes)

    async def _in_time(self, asking: Awaitable[_Asked], otherwise: _Other) -> _Asked | _Other:
        try:
            async with asyncio.timeout_at(self._ends_at):
                return await asking
        except TimeoutError:
            return otherwise

    @property
    def _late(self) -> str:
        return f"no answer within --timeout={self._options.timeout_s:g}s"

    async def _kube(self) -> KubeFacts | None:
        if self._api is None:
            return None
        failed = ReadFailed(self._late)
        late = KubeFacts.nothing(failed)
        asking = collect_kube(self._api, self._options.namespace, dial=not self._options.config_only)
        return await self._in_time(asking, late)

    async def _install(self) -> str | Unreachable:
        """The namespace of the install; empty where nothing has to be found, or without a cluster."""
        is_needed = self._options.finds_nats or not self._options.server_endpoint
        if self._api is None or not is_needed:
            return ""
        try:
            return await self._in_time(find_server(self._api), Unreachable(self._late))
        except (KubeError, LookupError) as error:
            return Unreachable(f"the Service {SERVER} was not found: {error}")

    async def _server(self, install: str | Unreachable) -> ServerFacts:
        address = self._options.server_endpoint
        if not address:
            if isinstance(install, Unreachable):
                return ServerFacts("", install)
            address = f"{SERVER}.{install}.svc:{GRPC_PORT}" if install else DEFAULT_ADDRESS
        elif ":" not in address:
            address = f"{address}:{GRPC_PORT}"
        asking = ask_health(RouterSettings(address, self._options.tls), _HEALTH_S)
        return ServerFacts(address, await self._in_time(asking, Unreachable(self._late)))

    async def _bus(self, kube: KubeFacts | None, install: str | Unreachable) -> BusFacts | None:
        """None where the install was not found, which is said once, of the server [OPS-76]."""
        nats = self._options.nats
        if self._api is not None and self._options.finds_nats:
            if isinstance(install, Unreachable):
                if not self._options.server_endpoint:
                    return None
                return unseen(nats, Unreachable(f"{install.reason}; name a server with --nats-url"))
            nats = msgspec.structs.replace(nats, url=f"nats://{NATS_SERVICE}.{install}.svc:4222")
        wanted = wanted_policy(kube, self._options.namespace) if kube is not None else None
        asking = collect_bus(nats, copies=self._options.copies, wanted_policy=wanted)
        return await self._in_time(asking, unseen(nats, Unreachable(self._late)))

    async def _engines(self, kube: KubeFacts | None) -> tuple[EngineFacts, ...]:
        named = await self._in_time(collect_named(self._options.engines), ())
        if kube is None or self._cluster is None:
            return named
        asking = collect_of_cluster(kube, self._cluster, with_pages=not self._options.config_only)
        return (*named, *await self._in_time(asking, ()))
