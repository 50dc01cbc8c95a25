"""One API server for a whole run, and a client and a namespace for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from inferencecache.schemas.resources import KINDS
from tests.kube.plane_scene import PlaneScene
from tests.support.dataplane import DataPlane
from tests.support.kube import ApiServer, KubeClient, new_namespace
from tests.support.nats import NatsServer
from tests.support.operating import install_rights
from tests.support.webhooks import ServedWebhooks


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """Shared, and without webhooks; `guarded` is another one that has them."""
    with ApiServer(tmp_path_factory.mktemp("kube")) as server:
        yield server


@pytest.fixture
async def kube(api_server: ApiServer) -> AsyncIterator[KubeClient]:
    """The administrator."""
    async with KubeClient(api_server) as client:
        yield client


@pytest.fixture
async def namespace(kube: KubeClient) -> str:
    """A namespace of the test's own."""
    return await new_namespace(kube)


@pytest.fixture(scope="session")
def operated_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """Another one, for tests that run the controller: it acts on every object that it finds."""
    with ApiServer(tmp_path_factory.mktemp("operated")) as server:
        yield server


@pytest.fixture
async def operated(operated_server: ApiServer) -> AsyncIterator[KubeClient]:
    """The administrator of that server. The test's own objects of our kinds are gone after it."""
    async with KubeClient(operated_server) as client:
        yield client
        for kind in KINDS:
            for item in (await client.list_all(kind)).body["items"]:
                await client.delete(kind, item["metadata"]["name"], item["metadata"].get("namespace", ""))


@pytest.fixture
async def operator_token(operated: KubeClient) -> str:
    """A token of the controller's account there, which has the rights of the manifests and no others."""
    return await install_rights(operated)


@pytest.fixture
async def operated_namespace(operated: KubeClient) -> str:
    """A namespace of the test's own there."""
    return await new_namespace(operated)


@pytest.fixture
async def plane(nats_server: NatsServer) -> AsyncIterator[DataPlane]:
    """Indexers and routers of the test's own."""
    plane = DataPlane(nats_server)
    yield plane
    plane.raise_failures()
    await plane.close()


@pytest.fixture
async def scene(
    operated_server: ApiServer,
    operator_token: str,
    operated: KubeClient,
    operated_namespace: str,
    nats_server: NatsServer,
    plane: DataPlane,
) -> PlaneScene:
    """All that a controller and engine pods need to work on each other."""
    return PlaneScene(operated_server, operator_token, operated, operated_namespace, nats_server, plane)


@pytest.fixture(scope="session")
def webhooks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedWebhooks]:
    """All admission webhooks, registered at an API server of their own."""
    with ApiServer(tmp_path_factory.mktemp("guarded")) as server, ServedWebhooks(server) as served:
        yield served
        server.stop()  # a connection that it is just opening would outlive the loop of the webhooks


@pytest.fixture
async def guarded(webhooks: ServedWebhooks) -> AsyncIterator[KubeClient]:
    """The administrator of the server that asks the webhooks."""
    async with KubeClient(webhooks.server) as client:
        yield client


@pytest.fixture
async def guarded_namespace(guarded: KubeClient) -> str:
    """A namespace of the test's own on that server."""
    return await new_namespace(guarded)
