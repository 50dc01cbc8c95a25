"""Noticing that the API server was away and answers again.

A connection to a server that vanished without a word looks like one on which nothing happens. Only
asking tells; one answer that is missing tells nothing of a server that is busy.
"""

from __future__ import annotations

import asyncio
from typing import Final

from inferencecache.core.kube.api import KubeApi

_EVERY_S: Final = 2.0
_LIMIT_S: Final = 3.0
_MISSING: Final = 2
"""So many answers are missing one after another of a server that is away."""


async def returned(api: KubeApi, *, every_s: float = _EVERY_S) -> None:
    """Return when the server answers that was away."""
    missing = 0
    while True:
        await asyncio.sleep(every_s)
        if not await api.is_ready(_LIMIT_S):
            missing += 1
        elif missing >= _MISSING:
            return
        else:
            missing = 0
