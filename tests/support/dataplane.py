"""Indexers, routers' followers and a small producer in this process, over a real NATS server."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import numpy as np

from inferencecache.core.index.reading import Scope
from inferencecache.core.log import Log, Message, NotStoredError
from inferencecache.core.log.subjects import partition_of, replica_subject, resync_subject
from inferencecache.core.service import AssetSettings, NatsSettings
from inferencecache.indexer.partition import PartitionIndexer
from inferencecache.indexer.serve import Indexer
from inferencecache.indexer.settings import IndexerSettings
from inferencecache.router.following import IndexFollowing
from inferencecache.router.restriction import EVERYTHING, Restriction
from inferencecache.schemas.ids import AdapterId, HashScheme, Incarnation, ModelId, ReplicaId, TenantId
from inferencecache.schemas.layout import Layout
from inferencecache.schemas.records import AnyRecord, Batch, Begin, Stored, encode_batch
from inferencecache.schemas.requests import ResyncRequest
from inferencecache.schemas.senders import ReplicaSender
from tests.support.nats import NatsCluster, NatsServer
from tests.support.waiting import eventually

TENANT = TenantId("t")
MODEL = ModelId("m")
SCHEME = HashScheme("s")
ASSETS = AssetSettings(partitions=2)


def nats(server: NatsServer | NatsCluster) -> NatsSettings:
    return NatsSettings(server.url, insecure=True)


class DataPlane:
    """Everything a test starts, ended with it."""

    def __init__(self, server: NatsServer | NatsCluster, assets: AssetSettings = ASSETS) -> None:
        self._servers = server
        self._assets = assets
        self._running: dict[object, asyncio.Task[None]] = {}
        self._logs: list[Log] = []

    @property
    def server(self) -> NatsServer:
        """The only one."""
        assert isinstance(self._servers, NatsServer)
        return self._servers

    async def indexer(self, **settings: Any) -> Indexer:
        """A running indexer."""
        indexer = Indexer(IndexerSettings(nats(self._servers), assets=self._assets, **settings))
        self._start(indexer, indexer.run())
        return indexer

    async def owner(self, **settings: Any) -> Indexer:
        """A running indexer that owns every partition."""
        indexer = await self.indexer(**settings)
        await eventually(lambda: owns_all(indexer), within_s=30)
        return indexer

    async def follower(self, restriction: Restriction = EVERYTHING) -> IndexFollowing:
        """A running follower that is complete."""
        following = await self.starting_follower(restriction)
        await eventually(lambda: following.ready and following.complete, within_s=30)
        return following

    async def starting_follower(self, restriction: Restriction = EVERYTHING) -> IndexFollowing:
        following = IndexFollowing(nats(self._servers), self._assets, 30.0, restriction=restriction)
        self._start(following, following.run("127.0.0.1:0"))
        return following

    async def end(self, following: IndexFollowing) -> None:
        """End a follower as SIGTERM would."""
        await self._end(following)

    async def kill(self, process: Indexer) -> None:
        """End an indexer as SIGKILL would: no goodbye, its connection gone."""
        await self._end(process)
        await process.log.close()

    async def stop(self, process: Indexer) -> None:
        """End an indexer as SIGTERM would."""
        await self._end(process)
        await process.close()

    async def producer(
        self, replica: str, model: ModelId = MODEL, *, tenant: TenantId = TENANT, pod_uid: str = ""
    ) -> Producer:
        """A sidecar that has not begun yet."""
        log = await Log.connect(nats(self._servers), name=f"producer {replica}", timeout_s=10)
        self._logs.append(log)
        producer = Producer(log, replica, model, tenant, pod_uid)
        await producer.listen()
        return producer

    async def log(self) -> Log:
        """A connection of the test's own."""
        log = await Log.connect(nats(self._servers), name="test", timeout_s=10)
        self._logs.append(log)
        return log

    async def close(self) -> None:
        for process in list(self._running):
            with contextlib.suppress(asyncio.CancelledError):
                await self._end(process)
            if isinstance(process, Indexer):
                await process.log.close()
        for log in self._logs:
            await log.close()

    async def ended(self, process: object) -> None:
        """Return once it has ended by itself; what it has failed with is raised."""
        await self._running.pop(process)

    def raise_failures(self) -> None:
        """Raise what a process has ended with."""
        for task in self._running.values():
            if task.done() and not task.cancelled():
                task.result()

    def _start(self, process: object, running: Coroutine[Any, Any, None]) -> None:
        self._running[process] = asyncio.create_task(running)

    async def _end(self, process: object) -> None:
        task = self._running.pop(process)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


class Producer:
    """A sidecar of one replica: it begins, reports, and begins anew with all it knows when it is asked."""

    def __init__(
        self,
        log: Log,
        replica: str,
        model: ModelId = MODEL,
        tenant: TenantId = TENANT,
        pod_uid: str = "",
    ) -> None:
        self.log = log
        self.replica = ReplicaId(replica)
        self.model = model
        self.tenant = tenant
        self.pod_uid = pod_uid or f"uid-{replica}"
        self.known: dict[int, int] = {}
        self.requests: list[ResyncRequest] = []
        self.obeys = True
        self.layout = Layout(partitions=ASSETS.partitions)
        """Where it reports; `begin` anew after a change."""
        self._lives = itertools.count(1)
        self._incarnation = Incarnation("")
        self._sequence = 0
        self._pending: asyncio.Task[None] | None = None

    async def listen(self) -> None:
        await self.log.subscribe(resync_subject(self.tenant, self.model, self.replica), self._asked)

    def _asked(self, message: Message) -> None:
        request = msgspec.json.decode(message.data, type=ResyncRequest)
        self.requests.append(request)
        if self.obeys and request.kind == "resync" and request.incarnation in ("", self._incarnation):
            self._pending = asyncio.get_running_loop().create_task(self.begin())

    async def begin(self) -> None:
        """Begin a new incarnation and report everything."""
        self._incarnation = Incarnation(f"{self.pod_uid}-{next(self._lives)}")
        self._sequence = 0
        await self.report(Begin(pod_uid=self.pod_uid, scheme=SCHEME, block_size=16))
        if self.known:
            keys = list(self.known)
            await self.report(self._stored(keys))

    async def store(self, first: int, count: int = 8) -> None:
        """Report `count` blocks with hashes from `first` on."""
        keys = list(range(first, first + count))
        self.known |= {key: 16 * (number + 1) for number, key in enumerate(keys)}
        await self.report(self._stored(keys))

    async def report(self, *records: AnyRecord) -> None:
        """Publish one batch, again until it is stored."""
        self._sequence += 1
        payload = encode_batch(Batch(self._incarnation, self._sequence, 0, records))
        message_id = f"{self._incarnation}.{self._sequence}"
        while True:
            try:
                await self.log.publisher.publish(self._subject(), payload, msg_id=message_id, timeout_s=10)
                return
            except NotStoredError as error:
                if not error.retryable:
                    raise

    def skip(self) -> None:
        """Lose a batch."""
        self._sequence += 1

    def _stored(self, keys: list[int]) -> Stored:
        counts = np.array([self.known[key] for key in keys], "<i4").tobytes()
        return Stored(SCHEME, AdapterId(""), 1, 8, np.array(keys, ">u8").tobytes(), counts)

    def _subject(self) -> str:
        partition = partition_of(self.tenant, self.model, self.replica, self.layout)
        sender = ReplicaSender(self.tenant, self.model, self.replica)
        return replica_subject(self.layout.generation, partition, sender)


def owns_all(indexer: Indexer) -> bool:
    return bool(indexer.partitions) and indexer.ready and all(each.owned for each in indexer.partitions)


def fold_of(partition: PartitionIndexer) -> Any:
    assert partition.state is not None
    return partition.state.folding.fold


def holders_of(
    following: IndexFollowing, key: int, model: ModelId = MODEL, tenant: TenantId = TENANT
) -> set[str]:
    """Which replicas hold a key, by the follower's views."""
    found: set[str] = set()
    for replica in following.replicas:
        hits = replica.view.exact(
            Scope(tenant, model, SCHEME),
            AdapterId(""),
            key.to_bytes(8, "big"),
            replica.now_us(),
            1_800_000_000,
        )
        found |= {hit.replica for hit in hits}
    return found


def agree(*followings: IndexFollowing) -> bool:
    """Are all followers at the same delta of the same log epoch, with the same digest, in every partition?"""
    standings = [
        [(each.view.log_epoch, each.view.delta, each.view.digest) for each in following.replicas]
        for following in followings
    ]
    return all(standing == standings[0] for standing in standings)


def has_all(following: IndexFollowing, *producers: Producer) -> Callable[[], bool]:
    """Does the follower know all, and only, what the producers know?"""

    def check() -> bool:
        entries = sum(replica.view.entries for replica in following.replicas)
        return entries == sum(len(each.known) for each in producers) and all(
            each.replica in holders_of(following, key, each.model, each.tenant)
            for each in producers
            for key in each.known
        )

    return check
