"""A data plane over three servers, everything with three copies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from inferencecache.core.service import AssetSettings
from tests.support.dataplane import DataPlane
from tests.support.nats import NatsCluster

REPLICAS = 3


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[NatsCluster]:
    cluster = NatsCluster(tmp_path).start()
    yield cluster
    cluster.stop()


@pytest.fixture
async def plane(cluster: NatsCluster) -> AsyncIterator[DataPlane]:
    plane = DataPlane(cluster, AssetSettings(partitions=2, replicas=REPLICAS))
    yield plane
    plane.raise_failures()
    await plane.close()
