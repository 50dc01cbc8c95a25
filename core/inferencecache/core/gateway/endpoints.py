"""Which address belongs to which replica, and which of them are ready.

A source tells all endpoints at once, and what it no longer tells is gone. An endpoint is an address in
one life of its replica: an address that another pod took over is another endpoint, which nothing that
was learned of the old one is true of.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from inferencecache.schemas.ids import ReplicaId

_RANK: Final = "@dp"


class EndpointId(NamedTuple):
    """`life` tells replicas of one name apart, as a pod's uid does; empty where a source knows none."""

    address: str
    replica: ReplicaId
    life: str = ""


class Endpoint(NamedTuple):
    """An engine as a proxy reaches it: `address` is IP:PORT, the IP of version 6 in brackets."""

    id: EndpointId
    is_ready: bool = True

    @property
    def address(self) -> str:
        return self.id.address

    @property
    def replica(self) -> ReplicaId:
        return self.id.replica


def pod_of(replica: ReplicaId) -> ReplicaId:
    """The replica without its data-parallel rank."""
    return ReplicaId(replica.partition(_RANK)[0])


def _is_ready(endpoint: Endpoint) -> bool:
    return endpoint.is_ready


class Endpoints:
    """All endpoints of a source, in the order of their addresses.

    Of several at one address a ready one counts, else the last told: a pod that failed is listed with its
    address for as long as nobody deletes it, and another pod has that address by then.
    """

    def __init__(self, told: Iterable[Endpoint] = ()) -> None:
        self._by_address: Mapping[str, Endpoint] = {}
        self._by_replica: Mapping[ReplicaId, Sequence[Endpoint]] = {}
        self._by_pod: Mapping[ReplicaId, Sequence[Endpoint]] = {}
        self.ids: frozenset[EndpointId] = frozenset()
        """Who is there now, ready or not."""
        self.replace(told)

    def replace(self, told: Iterable[Endpoint]) -> frozenset[EndpointId]:
        """Take what a source tells now; answers the endpoints that are gone by it."""
        before = self.ids
        by_address = {endpoint.address: endpoint for endpoint in sorted(told, key=_is_ready)}
        self._by_address = dict(sorted(by_address.items()))
        by_replica: dict[ReplicaId, list[Endpoint]] = {}
        by_pod: dict[ReplicaId, list[Endpoint]] = {}
        for endpoint in self._by_address.values():
            by_replica.setdefault(endpoint.replica, []).append(endpoint)
            by_pod.setdefault(pod_of(endpoint.replica), []).append(endpoint)
        self._by_replica, self._by_pod = by_replica, by_pod
        self.ids = frozenset(endpoint.id for endpoint in self._by_address.values())
        return before - self.ids

    def __len__(self) -> int:
        return len(self._by_address)

    def at(self, address: str) -> Endpoint | None:
        """The endpoint of an address."""
        return self._by_address.get(address)

    def ready(self, subset: Collection[str] | None = None) -> Sequence[Endpoint]:
        """Those that take requests; of a subset of addresses, where a proxy names one."""
        return [
            endpoint
            for endpoint in self._by_address.values()
            if endpoint.is_ready and (subset is None or endpoint.address in subset)
        ]

    def of(self, replica: ReplicaId) -> Sequence[Endpoint]:
        """Endpoints that serve what a hint names: its own; else those of its pod, whose ranks a hint may
        name where one address serves them all, or not name where each has its own.
        """
        return self._by_replica.get(replica) or self._by_pod.get(pod_of(replica), ())
