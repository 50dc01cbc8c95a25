"""Fleets under load with somebody who asks and somebody who reads along."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.fleet.scene import Scene, scene

TIME_LIMIT_S = 240

Staged = Callable[..., AbstractAsyncContextManager[Scene]]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Whole fleets take their time: all of it together is a `long` suite."""
    item.add_marker(pytest.mark.long)
    if item.get_closest_marker("timeout") is None:
        item.add_marker(pytest.mark.timeout(TIME_LIMIT_S))


@pytest.fixture
def staged(tmp_path: Path) -> Staged:
    """A fleet of the test's own, with the arguments of `Fleet`."""

    @asynccontextmanager
    async def staged(**fleet: Any) -> AsyncIterator[Scene]:
        async with scene(tmp_path / "fleet", **fleet) as it:
            yield it

    return staged
