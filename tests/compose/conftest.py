"""The stack of docker-compose.yaml in a real engine, from images that are built of the tree as it is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compose.stack import ComposedStack
from tools import docker, images


@pytest.fixture(scope="session")
def docker_environment() -> Iterator[dict[str, str]]:
    """What `docker` runs with, also in this process; all images are there."""
    environment = docker.environment() | {"IMAGE_PREFIX": "inference-cache-test/"}
    images.build(environment=environment)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        yield environment


@pytest.fixture(scope="module")
def stack(docker_environment: dict[str, str]) -> Iterator[ComposedStack]:
    """Everything up; ended, with its volumes, after the module."""
    with ComposedStack() as stack:
        yield stack
