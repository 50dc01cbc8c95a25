"""A controller between a real log and a real API server, and engine pods that report to the log."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

from inferencecache.controller.operating import Operating
from inferencecache.schemas.ids import TenantId
from tests.kube.engines import engine_pod, stored_backend
from tests.kube.objects import stored
from tests.support.dataplane import DataPlane, Producer
from tests.support.kube import ApiServer, Document, KubeClient
from tests.support.nats import NatsServer
from tests.support.operating import operating


class PlaneScene(NamedTuple):
    """`kube` is the administrator, `token` the controller's; `namespace` is the test's own and the tenant."""

    server: ApiServer
    token: str
    kube: KubeClient
    namespace: str
    nats: NatsServer
    plane: DataPlane

    @property
    def tenant(self) -> TenantId:
        return TenantId(self.namespace)

    def operating(self) -> AbstractAsyncContextManager[Operating]:
        """The running controller."""
        return operating(self.server, self.token, self.nats.url)

    async def backend(self, document: Document) -> Document:
        """A backend of the worked cases, in this namespace."""
        return await stored_backend(self.kube, self.namespace, document)

    async def pod(self, name: str, backend: Document) -> Document:
        """An engine's, wired for the backend."""
        return await stored(self.kube, engine_pod(self.namespace, name, backend))

    async def reporting(self, pod: Document, first: int, count: int = 8) -> Producer:
        """The pod's sidecar, which has reported `count` blocks from `first` on."""
        metadata = pod["metadata"]
        producer = await self.plane.producer(metadata["name"], tenant=self.tenant, pod_uid=metadata["uid"])
        await producer.begin()
        await producer.store(first, count)
        return producer
