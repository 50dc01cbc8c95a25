"""Who refused lately: an endpoint that answers 429 or 503 is passed over for a short, growing time.

Each refusal in a row doubles the time; an answer ends it. What was refused before the time ended says
nothing new, or one burst of requests would count as a long row. Passing over is a preference: where
everybody refuses, the one whose time ends first is picked. `now_s` is seconds of any clock that one
table is always asked with.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

from inferencecache.core.gateway.endpoints import EndpointId

FIRST_S: Final = 0.5
LONGEST_S: Final = 30.0
REFUSING: Final = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})


class _Row:
    __slots__ = ("length", "until_s")

    def __init__(self) -> None:
        self.length = 0
        self.until_s = float("-inf")


class Refusals:
    """Rows of refusals by endpoint."""

    def __init__(self, first_s: float = FIRST_S, longest_s: float = LONGEST_S) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._rows: dict[EndpointId, _Row] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def answered(self, endpoint: EndpointId, status: int, now_s: float) -> None:
        """The endpoint answered a request with this status."""
        if status in REFUSING:
            self.refused(endpoint, now_s)
        else:
            self._rows.pop(endpoint, None)

    def refused(self, endpoint: EndpointId, now_s: float) -> None:
        """The endpoint refused a request, or could not be reached with it."""
        row = self._rows.setdefault(endpoint, _Row())
        if now_s < row.until_s:
            return
        row.until_s = now_s + min(self._longest_s, self._first_s * 2.0 ** min(row.length, 32))
        row.length += 1

    def passed_over_until(self, endpoint: EndpointId, now_s: float) -> float:
        """When the endpoint will be picked again; not after `now_s` when it is picked now."""
        row = self._rows.get(endpoint)
        return now_s if row is None else max(now_s, row.until_s)

    def forget(self, endpoints: Iterable[EndpointId]) -> None:
        """These are gone."""
        for endpoint in endpoints:
            self._rows.pop(endpoint, None)
