"""One cluster for the whole suite, with one installation in it, which the last test deletes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.cluster.installation import Installation, built
from tests.cluster.node import OneNode
from tools.cache import cache_folder, exclusive


@pytest.fixture(scope="package")
def one_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneNode]:
    """Addresses are fixed, so that there is one at a time on a machine."""
    with exclusive(cache_folder("cluster-in-use")), OneNode(tmp_path_factory.mktemp("cluster")) as node:
        yield node


@pytest.fixture(scope="package")
def installation(one_node: OneNode) -> Installation:
    """Applied, with everything available."""
    installation = Installation(one_node)
    asyncio.run(installation.prepare(built()))
    asyncio.run(_install(installation))
    return installation


async def _install(installation: Installation) -> None:
    await installation.apply()
    await installation.available()
