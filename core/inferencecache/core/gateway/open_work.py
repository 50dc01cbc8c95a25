"""What the requests that are under way here have each endpoint do: their prompt tokens, until they end.

Assigned work fades with time, as nobody says when it is done. Of its own requests a gateway knows, so
an endpoint that is still busy with a long one is not idle to it however long ago it was sent there.
"""

from __future__ import annotations

from collections.abc import Mapping

from inferencecache.core.gateway.endpoints import EndpointId


class OpenWork:
    """Tokens of open requests by endpoint; a request counts for at least one."""

    def __init__(self) -> None:
        self._tokens: dict[EndpointId, int] = {}
        self._requests: dict[EndpointId, int] = {}

    def begin(self, endpoint: EndpointId, tokens: int) -> None:
        """A request of so many uncached tokens goes there."""
        self._tokens[endpoint] = self._tokens.get(endpoint, 0) + max(1, tokens)
        self._requests[endpoint] = self._requests.get(endpoint, 0) + 1

    def end(self, endpoint: EndpointId, tokens: int) -> None:
        """A request that began so is over."""
        left = self._requests.get(endpoint, 0) - 1
        if left <= 0:
            self._requests.pop(endpoint, None)
            self._tokens.pop(endpoint, None)
            return
        self._requests[endpoint] = left
        self._tokens[endpoint] -= max(1, tokens)

    @property
    def tokens(self) -> Mapping[EndpointId, int]:
        """By endpoint, where any are open."""
        return self._tokens

    @property
    def requests(self) -> Mapping[EndpointId, int]:
        """Open requests by endpoint, where there are any."""
        return self._requests
