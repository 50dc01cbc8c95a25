"""A router in this process: its real gRPC server over a log that is folded as soon as it is written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, Literal

import grpc
from prometheus_client import CollectorRegistry

from inferencecache.core.index.credits import Credits
from inferencecache.core.index.fold import Fold, LogMessage
from inferencecache.core.index.policy import Policies
from inferencecache.core.index.reading import IndexView
from inferencecache.core.index.work import AssignedWork
from inferencecache.core.log import NotStoredError, PubAck, StreamMessage
from inferencecache.core.log.subjects import control_subject, parse_subject
from inferencecache.core.policy import Intent
from inferencecache.core.templates import Template
from inferencecache.router.metrics import ServerMetrics
from inferencecache.router.restriction import EVERYTHING
from inferencecache.router.server import GrpcServer
from inferencecache.router.servicer import Servicer
from inferencecache.router.tokenizing import Tokenizing
from inferencecache.router.views import Deliver, Explain
from inferencecache.schemas.ids import LogEpoch, ModelId, OwnerId, TenantId
from inferencecache.schemas.layout import Layout
from inferencecache.schemas.policy import PolicySet, ResolvedPolicy
from inferencecache.schemas.positions import Position
from inferencecache.schemas.records import AnyRecord, Batch, Claim, Tick, decode_batch, encode_batch
from inferencecache.schemas.topologies import ResolvedTopology
from inferencecache.v1alpha1.inferencecache_pb2_grpc import InferenceCacheStub

START_US: Final = 1_800_000_000_000_000
_OWNER: Final = OwnerId("owner")


class FoldedLog:
    """The events streams and the views that follow from them, in step; both sides of a router.

    Its clock stands still until `pass_time`.
    """

    def __init__(self, layout: Layout | None = None) -> None:
        self.restriction = EVERYTHING
        self.messages: list[tuple[str, Batch]] = []
        self.message_ids: list[str] = []
        self.payload_limit = 8 * 1024 * 1024 - 65_536
        self.in_flight = 0
        self.is_storing = True
        self.complete = True
        self.unproven: set[int] = set()
        self.ready = True
        self.policies = Policies(PolicySet())
        self.intent = Intent()
        self.work: AssignedWork | None = None
        self.credited = Credits()
        self.tails: list[tuple[Deliver, Callable[[], None]]] = []
        self._stamp_us = START_US
        self.move(layout or Layout())

    # what a router sees

    @property
    def newest_layout(self) -> Layout:
        return self.layout

    def serves(self, tenant: TenantId, model: ModelId) -> bool:
        return self.restriction.serves(tenant, model)

    @property
    def views(self) -> Sequence[IndexView]:
        return [fold.view for fold in self.folds]

    def now_us(self, partition: int = 0) -> int:
        return self._stamp_us

    def is_proven(self, partition: int) -> bool:
        return partition not in self.unproven

    def policy(self, tenant: TenantId) -> ResolvedPolicy | None:
        return self.policies.policy(tenant)

    async def publish(
        self, subject: str, payload: bytes, *, msg_id: str = "", timeout_s: float = 5.0
    ) -> PubAck:
        if not self.is_storing:
            raise NotStoredError(subject, "no stream stores it", retryable=True)
        self.message_ids.append(msg_id)
        return self.append(subject, payload)

    def log_sequence(self, partition: int) -> int:
        return self.folds[partition].view.log.sequence

    def template(self, ref: str) -> Template | None:
        return self.intent.template(ref)

    def topology(self, ref: str) -> ResolvedTopology | None:
        return self.intent.topology(ref)

    @asynccontextmanager
    async def tail(self, deliver: Deliver, on_lost: Callable[[], None]) -> AsyncIterator[None]:
        self.tails.append((deliver, on_lost))
        yield
        self.tails.remove((deliver, on_lost))

    @property
    def publisher(self) -> FoldedLog:
        return self

    async def run(self, grpc_address: str, explain: Explain | None = None) -> None:
        await asyncio.Event().wait()

    # what a test does

    def append(self, subject: str, payload: bytes) -> PubAck:
        generation, partition, sender = parse_subject(subject)
        assert generation == self.layout.generation
        decoded = decode_batch(payload)
        self.messages.append((subject, decoded.batch))
        sequence = self.folds[partition].view.log.sequence + 1
        position = Position(sequence, self._stamp_us * 1000, START_US * 1000)
        self.folds[partition].fold(LogMessage(position, sender, decoded))
        for deliver, _ in self.tails:
            deliver([StreamMessage(subject, payload, position, {}, 0)])
        return PubAck("IC_EVENTS", sequence)

    def move(self, layout: Layout) -> None:
        """Another generation, empty, is served from now on."""
        self.layout = layout
        self.folds = [Fold(1 << 12) for _ in range(layout.partitions)]
        for partition in range(layout.partitions):
            self._append_control(partition, Claim(_OWNER, LogEpoch("epoch")))
        self.pass_time(1)

    def pass_time(self, seconds: int) -> None:
        """The owner ticks once a second."""
        for _ in range(seconds):
            self._stamp_us += 1_000_000
            for partition, fold in enumerate(self.folds):
                tick = Tick(_OWNER, fold.view.owner_epoch, self._stamp_us)
                self._append_control(partition, tick)

    def apply(self, *policies: ResolvedPolicy) -> None:
        self.policies = Policies(PolicySet(policies=policies))

    def _append_control(
        self, partition: int, *records: AnyRecord, role: Literal["o", "c", "r"] = "o"
    ) -> None:
        subject = control_subject(self.layout.generation, partition, role)
        self.append(subject, encode_batch(Batch(records=records)))


class Router:
    """A served router: its log, its registry, and a client of it."""

    def __init__(
        self, log: FoldedLog, servicer: Servicer, server: GrpcServer, registry: CollectorRegistry
    ) -> None:
        self.log = log
        self.servicer = servicer
        self.server = server
        self.registry = registry
        self.channel = grpc.aio.insecure_channel(server.address)
        self.stub = InferenceCacheStub(self.channel)

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


@asynccontextmanager
async def served_router(
    log: FoldedLog | None = None,
    *,
    reflection: bool = True,
    credentials: grpc.ServerCredentials | None = None,
    tokenizing: Tokenizing | None = None,
) -> AsyncIterator[Router]:
    """Start one on a free port."""
    log = log or FoldedLog()
    registry = CollectorRegistry()
    servicer = Servicer(log, registry, ServerMetrics(registry), tokenizing or Tokenizing({}), 16)
    server = GrpcServer(("127.0.0.1", 0), servicer, reflection=reflection, credentials=credentials)
    await server.start()
    router = Router(log, servicer, server, registry)
    try:
        yield router
    finally:
        await router.channel.close()
        servicer.stop()
        await server.stop()
