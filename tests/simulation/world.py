"""All processes of one simulated installation, and everything that can happen to them.

Processes are the real ones: `Indexer`, `IndexFollowing` and `Sidecar` with all they consist of. What
they have of the machine is replaced while a world is `entered`: the NATS client, clocks, randomness,
threads, and the sockets to the engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import random as random_module
import time
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import partial
from random import Random
from typing import Any
from unittest.mock import patch

import structlog
import zmq.asyncio

from inferencecache.cli.layouts.store import LayoutError, LayoutStore
from inferencecache.core.index.view import View
from inferencecache.core.log import ApiError, Bucket, Log, NoAnswerError, NotStoredError, read_layout
from inferencecache.core.log.assets import LayoutUnusableError
from inferencecache.core.log.subjects import (
    POLICY,
    POLICY_KEY,
    control_subject,
    partition_of,
    replica_subject,
)
from inferencecache.core.policy.document import encode_policy_set
from inferencecache.core.protocol.departures import Append, Departures
from inferencecache.core.service import AssetSettings, NatsSettings
from inferencecache.indexer.serve import Indexer
from inferencecache.indexer.settings import IndexerSettings
from inferencecache.kvevent_subscriber.settings import read_settings
from inferencecache.kvevent_subscriber.sidecar import Sidecar
from inferencecache.router.following import IndexFollowing
from inferencecache.schemas.ids import AdapterId, HashScheme, ModelId, ReplicaId, TenantId
from inferencecache.schemas.layout import Lanes, Layout
from inferencecache.schemas.policy import PolicySet
from inferencecache.schemas.records import Batch, Gone, Stored, encode_batch
from inferencecache.schemas.senders import ReplicaSender
from tests.simulation.client import Link, SimulatedClient
from tests.simulation.engine import Engine, Engines
from tests.simulation.loop import PROCESS, Process, SimulatedLoop
from tests.simulation.noise import Noise
from tests.simulation.server import EPOCH_NS, Server

TENANT = TenantId("t")
MODEL = ModelId("m")
NATS = NatsSettings("nats://simulated:4222", insecure=True)
CAPACITY = 64
SNAPSHOT_INTERVAL_S = 3.0
SWEEP_INTERVAL_S = 5
ALIVE_INTERVAL = "2s"
RESTART_S = 0.1

LogLine = Callable[[str], None]


class Host:
    """A place where one process after the other runs; `subject` is what runs there now."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.clock_us = 0
        self.subject: Any = None
        self.is_removed = False
        """Does nothing start here any more?"""
        self.process = Process(name)
        self.process.dead = True
        self.ids = Random(f"{world.seed}/{name}/ids")
        self.link = Link(world.loop, f"{world.seed}/{name}")
        self._world = world
        self._task: asyncio.Task[Any] | None = None
        self._lives = 0

    @property
    def alive(self) -> bool:
        return not self.process.dead

    def start(self) -> None:
        if self.alive or self.is_removed:
            return
        self._lives += 1
        name = f"{self.name}#{self._lives}"
        self.process = Process(name)
        self.process.clock_us = self.clock_us
        self.link = Link(self._world.loop, f"{self._world.seed}/{name}")
        self.subject = None
        self._world.hosts_by_process[self.process] = self
        self._task = self._world.loop.start(self.process, self.run)

    async def run(self) -> None:
        raise NotImplementedError

    def kill(self, late_s: float = 0.0) -> None:
        """SIGKILL. What is on the wire arrives up to `late_s` later, and the server then hears of the end."""
        if not self.alive:
            return
        process = self.process
        self.link.stalled_until = max(self.link.stalled_until, self._world.loop.time() + late_s)
        process.dead = True
        process.backlog.clear()
        self._world.hang_up(process)

    def pause(self) -> None:
        self.process.paused = True

    def resume(self) -> None:
        if self.process.paused and self.alive:
            self._world.loop.resume(self.process)

    def stop(self) -> None:
        """SIGTERM: the process ends by itself. A second one changes nothing."""
        if self.alive and self._task is not None:
            task, self._task = self._task, None
            self._world.loop.call_in(self.process, self._world.loop.time(), task.cancel)


class IndexerHost(Host):
    async def run(self) -> None:
        self.subject = indexer = Indexer(
            IndexerSettings(
                NATS,
                assets=AssetSettings(self._world.partitions),
                max_entries=self._world.max_entries,
                snapshot_interval_s=SNAPSHOT_INTERVAL_S,
                sweep_interval_s=SWEEP_INTERVAL_S,
            )
        )
        try:
            await indexer.run()
        finally:
            await indexer.close()
            self._world.ended(self)


class RouterHost(Host):
    async def run(self) -> None:
        self.subject = following = IndexFollowing(NATS, AssetSettings(self._world.partitions), 30.0)
        try:
            await following.run("127.0.0.1:1")
        finally:
            self._world.ended(self)


class SidecarHost(Host):
    """A sidecar beside an engine. `pod_uid` changes when the pod is made anew."""

    def __init__(self, world: World, name: str, replica: str, engine: Engine, pod_uid: str) -> None:
        super().__init__(world, name)
        self.replica = replica
        self.engine = engine
        self.pod_uid = pod_uid

    async def run(self) -> None:
        address = self.engine.address
        arguments = [
            f"--replica-id={self.replica}",
            f"--model-id={MODEL}",
            f"--tenant-id={TENANT}",
            f"--engine-endpoint=tcp://{address}:5557",
            f"--replay-endpoint={f'tcp://{address}:5558' if self.engine.replays else ''}",
            f"--engine-metrics-url=http://{address}:8000/metrics",
            "--health-address=",
            "--insecure-nats",
            f"--outbox-max={self._world.outbox_max}",
            f"--alive-interval={ALIVE_INTERVAL}",
            "--stats-interval=5s",
        ]
        self.subject = sidecar = Sidecar(read_settings(arguments, {"POD_UID": self.pod_uid}))
        stop = asyncio.Event()
        try:
            await sidecar.run(stop)
        except asyncio.CancelledError:
            pass
        finally:
            self._world.ended(self)


class ControllerHost(Host):
    """Tells the log of pods that were deleted. The controller of the product comes in its place."""

    async def run(self) -> None:
        self.subject = departures = Departures()
        self._waiting: deque[Append] = deque()
        self._number = 0
        log = await Log.connect(NATS, name="controller")
        log.on_connected(lambda: self._waiting.extend(departures.reconnected(time.monotonic())))
        while True:
            try:
                layout = await read_layout(log)
                if layout is not None:
                    self._waiting.extend(departures.told(time.monotonic(), layout))
                while self._waiting:
                    await self._append(log, self._waiting[0])
                    self._waiting.popleft()
            except (ApiError, NoAnswerError, NotStoredError):
                pass
            await asyncio.sleep(0.25)

    async def _append(self, log: Log, append: Append) -> None:
        self._number += 1
        subject = control_subject(append.generation, append.partition, "c")
        payload = encode_batch(Batch(records=(append.record,)))
        await log.publisher.publish(subject, payload, msg_id=f"{append.record.pod_uid}.gone.{self._number}")

    def gone(self, replica: str, pod_uid: str) -> None:
        """The cluster says that a pod is gone."""
        departures: Departures = self.subject
        self._waiting.extend(departures.gone(time.monotonic(), Gone(TENANT, ReplicaId(replica), pod_uid)))


class OperatorHost(Host):
    """Somebody who changes the layout now and then."""

    async def run(self) -> None:
        self.subject = await Log.connect(NATS, name="operator")
        await asyncio.Event().wait()

    def change_layout(self, partitions: int, lanes: int) -> None:
        self._do(lambda store: store.put_in_force(partitions, [Lanes(TENANT, MODEL, lanes)]))

    def prune(self) -> None:
        self._do(lambda store: store.prune())

    def write_policies(self, policies: PolicySet) -> None:
        """Until they are stored: whoever writes policies does not give up."""
        payload = encode_policy_set(policies)

        async def write() -> None:
            while self.subject is None:
                await asyncio.sleep(0.1)
            while True:
                try:
                    await Bucket(self.subject, POLICY).put(POLICY_KEY, payload)
                    return
                except NotStoredError:
                    await asyncio.sleep(0.5)

        self._world.loop.start(self.process, write)

    def _do(self, command: Callable[[LayoutStore], Coroutine[Any, Any, object]]) -> None:
        async def attempt() -> None:
            with contextlib.suppress(
                LayoutError, ValueError, ApiError, NoAnswerError, NotStoredError, LayoutUnusableError
            ):
                if self.subject is not None:
                    await command(LayoutStore(self.subject))

        self._world.loop.start(self.process, attempt)


class Pod:
    """A name under which engines with sidecars run: one, or by mistake more."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sidecars: list[SidecarHost] = []
        self.deleted = True


class World:
    """One installation. Names of hosts are `indexer a`, `router a`, `pod a`."""

    def __init__(self, seed: int, *, partitions: int, lanes: int, outbox_max: int, max_entries: int) -> None:
        self.seed = seed
        self.partitions = partitions
        self.lanes = lanes
        self.outbox_max = outbox_max
        self.max_entries = max_entries
        self.loop = SimulatedLoop()  # type: ignore[abstract]
        self.server = Server(self.loop)
        self.engines = Engines()
        self.hosts_by_process: dict[Process, Host] = {}
        self.indexers: dict[str, IndexerHost] = {}
        self.routers: dict[str, RouterHost] = {}
        self.pods: dict[str, Pod] = {}
        self.controller = ControllerHost(self, "controller")
        self.operator = OperatorHost(self, "operator")
        self.reported: dict[str, set[int]] = {}
        """Keys that gRPC producers reported and a router acknowledged, by producer."""
        self.reports: dict[str, set[int]] = {}
        """All keys that they reported: what nobody acknowledged may be stored."""
        self.log_line: LogLine | None = None
        self.keeps_running = False
        """Are processes that end by themselves started again?"""
        self._noise = Noise(f"{seed}/world")
        self._keys = 0
        self._uids = 0

    @property
    def hosts(self) -> Iterator[Host]:
        yield from self.indexers.values()
        yield from self.routers.values()
        for pod in self.pods.values():
            yield from pod.sidecars
        yield self.controller
        yield self.operator

    # -- what stands for the machine -----------------------------------------------------------------

    @contextmanager
    def entered(self) -> Iterator[None]:
        """While entered, this process's clocks, randomness, threads and sockets are the world's."""
        world = self

        class Nuid:
            def next(self) -> bytearray:
                return bytearray(world._hex(11).encode())

        class Datetime:
            @staticmethod
            def now(zone: Any) -> datetime:
                return datetime.fromtimestamp(world._wall_ns() / 1e9, zone)

        class Client(SimulatedClient):
            find = world._find

        log = "inferencecache.core.log"
        subscriber = "inferencecache.kvevent_subscriber"
        replaced: dict[str, Any] = {
            "time.monotonic": self.loop.time,
            "time.time": lambda: self._wall_ns() / 1e9,
            "time.time_ns": self._wall_ns,
            "asyncio.to_thread": self._to_thread,
            "secrets.token_hex": self._hex,
            f"{log}.connection.Client": Client,
            f"{log}.connection.NUID": Nuid,
            f"{log}.reader.NUID": Nuid,
            f"{log}.objects.datetime": Datetime,
            "inferencecache.core.partitions.foundation.Layout": partial(Layout, lanes=self._lanes()),
            f"{subscriber}.channel.LiveSocket": self.engines.socket,
            f"{subscriber}.channel.replay": self.engines.replay,
            f"{subscriber}.stats_path.fetch": self.engines.fetch,
            "inferencecache.indexer.serve.DEFAULT_MAX_ENTRIES": CAPACITY,
            "inferencecache.router.replica.View": partial(View, CAPACITY),
        }
        with ExitStack() as stack:
            for name, substitute in replaced.items():
                stack.enter_context(patch(name, substitute))
            stack.enter_context(patch.object(zmq.asyncio, "Context", _NoContext))
            before = random_module.getstate()
            random_module.seed(self.seed)
            logs_before = structlog.get_config()
            structlog.configure(
                processors=[self._log],
                wrapper_class=structlog.make_filtering_bound_logger(20 if self.log_line else 50),
            )
            try:
                yield
            finally:
                structlog.configure(**logs_before)
                random_module.setstate(before)

    def _lanes(self) -> tuple[Lanes, ...]:
        return (Lanes(TENANT, MODEL, self.lanes),) if self.lanes > 1 else ()

    def _find(self, process: Process) -> tuple[SimulatedLoop, Server, Link]:
        return self.loop, self.server, self.hosts_by_process[process].link

    def _wall_ns(self) -> int:
        process = PROCESS.get()
        skew_us = process.clock_us if process is not None else 0
        return EPOCH_NS + int(self.loop.time() * 1e9) + skew_us * 1000

    def _hex(self, size: int = 16) -> str:
        """Random to whoever asks, and the same in every run."""
        process = PROCESS.get()
        if process is None:
            raise RuntimeError("ids belong to processes")
        return f"{self.hosts_by_process[process].ids.getrandbits(8 * size):0{2 * size}x}"

    async def _to_thread(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """A thread's work happens at once, at some time while its caller waits."""
        await asyncio.sleep(self._thread_delay())
        result = work(*arguments)
        await asyncio.sleep(self._thread_delay())
        return result

    def _thread_delay(self) -> float:
        chance = self._noise.at(self.loop.time())
        return 0.001 * chance if chance < 0.9 else 2.0 * (chance - 0.9)

    def _log(self, _: Any, level: str, line: MutableMapping[str, Any]) -> Any:
        if self.log_line is not None:
            rest = {
                key: value for key, value in line.items() if key not in ("event", "component", "exc_info")
            }
            self.log_line(f"{PROCESS.get() or '-'} {level} {line['event']} {rest}")
            if line.get("exc_info"):
                self.log_line(traceback.format_exc())
        raise structlog.DropEvent

    # -- building ------------------------------------------------------------------------------------

    def add_indexer(self, name: str) -> IndexerHost:
        host = self.indexers[name] = IndexerHost(self, name)
        return host

    def add_router(self, name: str) -> RouterHost:
        host = self.routers[name] = RouterHost(self, name)
        return host

    def add_sidecar(self, pod: Pod, replays: int) -> SidecarHost:
        """Another engine with its sidecar under the pod's name, and with it the pod if there is none."""
        self._uids += 1
        address = f"engine{self._uids}"
        engine = Engine(self.loop, address, f"{self.seed}/{address}", replays)
        self.engines.by_address[address] = engine
        replica = pod.name.replace(" ", "-")
        sidecar = SidecarHost(
            self, f"sidecar {self._uids} of {pod.name}", replica, engine, f"uid-{self._uids}"
        )
        pod.sidecars.append(sidecar)
        pod.deleted = False
        sidecar.start()
        return sidecar

    def hang_up(self, process: Process) -> None:
        for connection in list(self.server.connections):
            if connection.process is process:
                connection.end()

    def ended(self, host: Host) -> None:
        host.process.dead = True
        self.hang_up(host.process)
        if self.keeps_running:
            self.loop.call_in(None, self.loop.time() + RESTART_S, host.start)

    # -- what can be done through it -----------------------------------------------------------------

    def report(self, router: RouterHost, producer: str) -> None:
        """A gRPC producer reports a key to a router."""
        self._keys += 1
        key = self._keys + 10**9
        following: IndexFollowing | None = router.subject
        if not router.alive or following is None or following.newest_layout is None:
            return
        layout = following.newest_layout
        sender = ReplicaSender(TENANT, MODEL, ReplicaId(producer), "g")
        partition = partition_of(TENANT, MODEL, producer, layout)
        subject = replica_subject(layout.generation, partition, sender)
        record = Stored(
            HashScheme("vllm"), AdapterId(""), 1, 8, key.to_bytes(8, "big"), (16).to_bytes(4, "little")
        )
        payload = encode_batch(Batch(records=(record,)))

        self.reports.setdefault(producer, set()).add(key)

        async def publish() -> None:
            try:
                await following.publisher.publish(subject, payload, msg_id=f"report.{key}")
            except NotStoredError:
                return
            self.reported.setdefault(producer, set()).add(key)

        self.loop.start(router.process, publish)


class _NoContext:
    """Stands for a ZMQ context that nobody opens sockets in."""

    def destroy(self, linger: int = 0) -> None:
        """There is nothing to destroy."""
