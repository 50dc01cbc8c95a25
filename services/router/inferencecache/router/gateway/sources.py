"""Where endpoints come from: the seam between whoever knows them and the picking."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from inferencecache.core.gateway import Endpoint

Tell = Callable[[tuple[Endpoint, ...]], None]
"""Called with all endpoints there are, at the first reading and at each change."""


class EndpointSource(Protocol):
    """Something that knows endpoints; each change of it is told within a second."""

    async def run(self, tell: Tell) -> None:
        """Follow until cancelled. What cannot be read leaves the endpoints as they were told last."""
        ...
