"""The admission webhooks as an API server calls them: over HTTPS, registered by address.

They run on a thread of their own, because one server and its registrations serve a whole run and each
test has its own event loop.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
from prometheus_client import CollectorRegistry

from inferencecache.controller.admission import (
    AdmissionListener,
    AdmissionMetrics,
    registrations,
    webhooks_of,
)
from inferencecache.controller.admission.lookups import lookup_in
from inferencecache.controller.admission.reviews import AdmissionRequest, Allowed, Answer, Lookup, Webhook
from inferencecache.controller.injection import SidecarSettings, pod_webhook
from inferencecache.core.kube.access import access_to_cluster
from inferencecache.core.kube.cluster import Cluster
from inferencecache.core.service import CertificateFiles
from tests.support.backends import pod_local
from tests.support.kube import ApiServer, Document, KubeClient
from tests.support.waiting import eventually

TLS_DATA: Final = Path(__file__).parents[1] / "data" / "tls"
START_LIMIT_S: Final = 60.0


def a_certificate(folder: Path = TLS_DATA, name: str = "first") -> CertificateFiles:
    """A pair that signs itself, for localhost and 127.0.0.1."""
    return CertificateFiles(
        folder / f"{name}.crt", folder / f"{name}.key", flags=("--crt", "--key"), reload_event="reload"
    )


def registered_at(port: int, certificate: str = "first") -> list[Document]:
    """The registrations of the webhooks at a port of this machine."""
    bundle = base64.b64encode((TLS_DATA / f"{certificate}.crt").read_bytes()).decode()
    return registrations(lambda path: {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle})


class ServedWebhooks:
    """All webhooks, registered at `server`. Assign `sidecar` to change what pods get from now on."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.sidecar = SidecarSettings()
        self.port = 0
        self._asleep = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._stop = asyncio.Event()

    @contextmanager
    def asleep(self) -> Iterator[None]:
        """Within, everything is allowed as it is: what an object of older rules was stored under."""
        self._asleep = True
        try:
            yield
        finally:
            self._asleep = False

    async def ask(self, path: str, document: Document) -> Any:
        """The response to a CREATE of the document that never went through the server's schema."""
        trust = ssl.create_default_context(cafile=TLS_DATA / "first.crt")
        namespace = document["metadata"]["namespace"]
        request = {"uid": "u", "operation": "CREATE", "namespace": namespace, "object": document}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session,
            session.post(f"https://127.0.0.1:{self.port}{path}", json=review) as answer,
        ):
            return (await answer.json())["response"]

    def __enter__(self) -> Self:
        self._thread.start()
        started = threading.Event()
        self._serving = asyncio.run_coroutine_threadsafe(self._serve(started), self._loop)
        self._serving.add_done_callback(lambda _: started.set())
        started.wait(START_LIMIT_S)
        if self._serving.done():
            self._serving.result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Its connections are kept alive until it is gone.
        self.server.stop()
        self._loop.call_soon_threadsafe(self._stop.set)
        self._serving.result(START_LIMIT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _serve(self, started: threading.Event) -> None:
        async with Cluster(access_to_cluster(self.server.kubeconfig)) as cluster:
            webhooks = {
                entry: self._unless_asleep(webhook) for entry, webhook in webhooks_of(self._pod).items()
            }
            metrics = AdmissionMetrics(CollectorRegistry())
            address = ("127.0.0.1", 0)
            listener = AdmissionListener(
                address, a_certificate(), webhooks, lookup_in(cluster), metrics, setting="--address"
            )
            await listener.start()
            self.port = listener.port
            try:
                async with KubeClient(self.server) as admin:
                    await register(admin, registered_at(listener.port))
                started.set()
                await self._stop.wait()
                server = listener._runner.server
                assert server is not None
                await eventually(lambda: not server.connections)
            finally:
                await listener.stop()

    async def _pod(self, request: AdmissionRequest, lookup: Lookup) -> Answer:
        return await pod_webhook(self.sidecar)(request, lookup)

    def _unless_asleep(self, webhook: Webhook) -> Webhook:
        async def answer(request: AdmissionRequest, lookup: Lookup) -> Answer:
            return Allowed() if self._asleep else await webhook(request, lookup)

        return answer


async def register(admin: KubeClient, configurations: list[Document]) -> None:
    """Make the registrations, and wait until the server asks both kinds of webhooks."""
    for configuration in configurations:
        answer = await admin.create(configuration, strict=True)
        assert answer.status == 201, answer
    await eventually(lambda: _is_guarded(admin), what="the server asking its webhooks", within_s=30)


async def _is_guarded(admin: KubeClient) -> bool:
    wrong = pod_local(namespace="default")
    wrong["spec"]["lmCache"]["podLocal"]["server"]["image"] = "by-tag:1"
    refused = await admin.create(wrong, dry_run=True)
    completed = await admin.create(pod_local(namespace="default"), dry_run=True)
    return refused.status == 422 and "integration" in completed.body.get("spec", {})
