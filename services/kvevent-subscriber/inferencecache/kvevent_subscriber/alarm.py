"""A timer that is set anew after every event, for state machines that say when they want to be woken."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from inferencecache.kvevent_subscriber.failures import Failures


class Alarm:
    """Calls `ring` on the event loop at the time last set, once. Times are `time.monotonic`."""

    def __init__(self, ring: Callable[[], None], failures: Failures) -> None:
        self._ring = ring
        self._failures = failures
        self._at: float | None = None
        self._handle: asyncio.TimerHandle | None = None

    def set(self, at: float | None) -> None:
        """Ring then, and at no other time; None for never."""
        if at == self._at and self._handle is not None:
            return
        self.cancel()
        self._at = at
        if at is not None:
            delay = max(0.0, at - time.monotonic())
            self._handle = asyncio.get_running_loop().call_later(delay, self._due)

    def cancel(self) -> None:
        """Do not ring."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._at = None

    def _due(self) -> None:
        self._handle = self._at = None
        try:
            self._ring()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the owner's to raise
            self._failures.note(error)
