"""What the router's front ends need of the views: the seam to whatever keeps them current.

Views are asked for anew for every call and never kept across an `await`: a delta is applied, or a
view replaced, only between calls, so one call sees one state.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from inferencecache.core.index.credits import Credits
from inferencecache.core.index.joined import NOTHING, JoinedView, Lane
from inferencecache.core.index.reading import IndexView
from inferencecache.core.index.work import AssignedWork
from inferencecache.core.log import PubAck, StreamMessage
from inferencecache.core.log.subjects import partitions_of
from inferencecache.core.templates import Template
from inferencecache.schemas.explanations import Explanation
from inferencecache.schemas.ids import ModelId, TenantId
from inferencecache.schemas.layout import Layout
from inferencecache.schemas.policy import ResolvedPolicy
from inferencecache.schemas.topologies import ResolvedTopology
from inferencecache.v1alpha1.inferencecache_pb2 import LookupRouteRequest

Deliver = Callable[[list[StreamMessage]], None]
Explain = Callable[[LookupRouteRequest], Awaitable[Explanation]]
"""Why a lookup would be answered as it would."""


class EventLog(Protocol):
    """Where producers' records go: the log's `Publisher`."""

    @property
    def payload_limit(self) -> int:
        """Largest message in bytes."""
        ...

    @property
    def in_flight(self) -> int:
        """Publishes and requests that wait for an answer."""
        ...

    async def publish(
        self, subject: str, payload: bytes, *, msg_id: str = "", timeout_s: float = 5.0
    ) -> PubAck:
        """Store one message. Raises `NotStoredError`, also while NATS was never reached."""
        ...


class TailError(Exception):
    """The ends of the events streams cannot be read at the moment; `str` says why."""


class Following(Protocol):
    """The replica of the index as it is right now. It exists, and is empty, before NATS is reached."""

    @property
    def layout(self) -> Layout | None:
        """The layout that `views` have; `None` until one is read."""
        ...

    @property
    def newest_layout(self) -> Layout | None:
        """The layout that producers' records are sent by; it is ahead of `layout` while views are built."""
        ...

    def serves(self, tenant: TenantId, model: ModelId) -> bool:
        """Whether this router answers for them; for anything else it has no index."""
        ...

    @property
    def views(self) -> Sequence[IndexView]:
        """One view for each partition of the layout, at its number; an empty one until it is loaded, and for
        a partition that is not followed.
        """
        ...

    @property
    def complete(self) -> bool:
        """Whether every view is loaded; false reads as an empty index [IDX-204]."""
        ...

    def is_proven(self, partition: int) -> bool:
        """Whether the partition's view is what its deltas say; if not, it is about to be replaced."""
        ...

    @property
    def ready(self) -> bool:
        """What `/readyz` says."""
        ...

    def now_us(self, partition: int) -> int:
        """The partition's log time now: that of its view and the time since it was set."""
        ...

    def policy(self, tenant: TenantId) -> ResolvedPolicy | None:
        """The policy of a tenant [IDX-117]."""
        ...


class LiveFollowing(Following, Protocol):
    """A `Following` that keeps itself current over its own connection to NATS."""

    @property
    def work(self) -> AssignedWork | None:
        """What this router's hints and the others' assigned lately; `None` when ranking ignores load."""
        ...

    def log_sequence(self, partition: int) -> int:
        """Number of the last message of the partition's log that its view contains."""
        ...

    def template(self, ref: str) -> Template | None:
        """The prompt template `namespace/name`."""
        ...

    def topology(self, ref: str) -> ResolvedTopology | None:
        """The prefill/decode topology `namespace/name`."""
        ...

    @property
    def credited(self) -> Credits:
        """Where lookups count accesses for tenants that evict by use."""
        ...

    @property
    def publisher(self) -> EventLog:
        """The connection's publisher."""
        ...

    def tail(self, deliver: Deliver, on_lost: Callable[[], None]) -> AbstractAsyncContextManager[None]:
        """While entered, `deliver` gets what is appended to any events stream from then on.

        `on_lost` says that something may be missing. Raises `TailError` on entering when the log
        cannot be read now.
        """
        ...

    async def run(self, grpc_address: str, explain: Explain | None = None) -> None:
        """Reach NATS and follow until cancelled. Raises only what the process cannot survive.

        `grpc_address` is where the router serves, for its entry among the members. `explain` answers those
        who ask over NATS why.
        """
        ...


def index_of(following: Following, tenant: TenantId, model: ModelId) -> JoinedView:
    """The index as far as it concerns one (tenant, model).

    It is empty while a partition of it is not proven: no hint is better than one from a state that
    nobody knows. Other partitions answer on. It is empty, too, for what this router does not serve.
    """
    layout = following.layout
    if layout is None or not following.complete or not following.serves(tenant, model):
        return NOTHING
    views = following.views
    lanes = []
    for number in partitions_of(tenant, model, layout):
        if not following.is_proven(number):
            return NOTHING
        lanes.append(Lane(views[number], following.now_us(number)))
    return JoinedView(lanes, views)
