"""Fixtures of the router's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.router import Router, served_router


@pytest.fixture
async def router() -> AsyncIterator[Router]:
    """A served router with an empty index."""
    async with served_router() as router:
        yield router
