"""Warnings that may repeat with every event, shown at most once a reason in ten seconds [SUB-181]."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from inferencecache.kvevent_subscriber.diary import Warned

EACH_S: Final = 10.0
MAX_REASONS: Final = 512


class Warner(Protocol):
    """The part of a logger that is used."""

    def warning(self, event: str, *args: object, **fields: object) -> object: ...


class WarningLog:
    """Shows warnings; those held back are counted in the next one of their reason."""

    def __init__(self, logger: Warner) -> None:
        self._logger = logger
        self._shown_at: dict[str, float] = {}
        self._suppressed: dict[str, int] = {}

    def show(self, warnings: Iterable[Warned], now: float) -> None:
        """Show or hold back each."""
        for warned in warnings:
            shown_at = self._shown_at.get(warned.reason)
            if shown_at is not None and now < shown_at + EACH_S:
                self._suppressed[warned.reason] = self._suppressed.get(warned.reason, 0) + 1
                continue
            if shown_at is None and len(self._shown_at) >= MAX_REASONS:
                self._shown_at.clear()
                self._suppressed.clear()
            self._shown_at[warned.reason] = now
            suppressed = self._suppressed.pop(warned.reason, 0)
            counted = {"suppressed": suppressed} if suppressed else {}
            self._logger.warning(warned.reason.partition(":")[0], msg=warned.text, **warned.fields, **counted)
