"""Steps of a plan carried out on a world: what each verb does."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from inferencecache.core.log.subjects import AGGREGATE, SNAPSHOTS
from inferencecache.schemas.policy import PolicySet, ResolvedPolicy, ResolvedQuota
from tests.simulation.judge import Judge
from tests.simulation.plan import LETTERS, Plan, Step
from tests.simulation.streams import Stream
from tests.simulation.world import TENANT, Host, Pod, SidecarHost, World

START_S: Final = 1000.0
"""The loop's time when a plan begins."""


LAST_PROMPT: Final = 99


class Stage:
    """Where a plan is carried out. After `heal` nothing goes wrong any more."""

    def __init__(self, plan: Plan, world: World, judge: Judge) -> None:
        self._plan = plan
        self._world = world
        self._judge = judge
        self._random = Random(f"{plan.seed}/stage")
        self._copy: dict[str, Stream] | None = None
        self._server_paused_until = 0.0
        self._quota = plan.quota
        self._healed = False

    def begin(self) -> None:
        """Everything starts, and every step has its time."""
        world, plan = self._world, self._plan
        for letter in LETTERS[: plan.indexers]:
            world.add_indexer(f"indexer {letter}")
        for letter in LETTERS[: plan.routers]:
            world.add_router(f"router {letter}")
        for step in plan.steps:
            if step.verb == "skew" and step.whom in world.indexers:
                world.indexers[step.whom].clock_us = int(step.one * 1e6)
        for host in world.hosts:
            host.start()
        for letter in LETTERS[: plan.pods]:
            pod = world.pods[f"pod {letter}"] = Pod(f"pod {letter}")
            world.add_sidecar(pod, plan.replays)
        for step in plan.steps:
            world.loop.call_in(None, START_S + step.at, self._do, step)
        if plan.ttl_s or plan.lfu or plan.quota >= 0:
            self._write_policies()

    def heal(self) -> None:
        """Faults stop: what stands still goes on, what is down comes up, and every pod has one engine."""
        self._healed = True
        world = self._world
        world.keeps_running = True
        if not world.server.up:
            world.server.start()
        for stream in world.server.streams.values():
            stream.is_full = False
        for host in world.hosts:
            host.link.stalled_until = host.link.mute_until = 0.0
            host.resume()
        for host in [*world.indexers.values(), *world.routers.values()]:
            host.start()
        for pod in world.pods.values():
            for sidecar in pod.sidecars:
                sidecar.engine.lose_next = 0
                sidecar.engine.start()
                if not pod.deleted:
                    sidecar.start()

    def speak(self) -> None:
        """Every engine says something: only then can be known what was lost before."""
        for pod in self._world.pods.values():
            for sidecar in pod.sidecars:
                sidecar.engine.store(LAST_PROMPT, 1)

    def _do(self, step: Step) -> None:
        if not self._healed:
            if self._world.log_line is not None:
                self._world.log_line(f"---- {step}")
            VERBS[step.verb](self, step)

    def _write_policies(self) -> None:
        policy = ResolvedPolicy(
            TENANT, eviction="lfu" if self._plan.lfu else "lru", eviction_ttl_ms=1000 * self._plan.ttl_s
        )
        quotas = (ResolvedQuota(TENANT, self._quota),) if self._quota >= 0 else ()
        self._world.operator.write_policies(PolicySet(policies=(policy,), quotas=quotas))

    def _later(self, after_s: float, action: Callable[[], None]) -> None:
        """Undo a fault, if `heal` has not done so before."""
        loop = self._world.loop
        loop.call_in(None, loop.time() + after_s, lambda: None if self._healed else action())

    # -- who is meant --------------------------------------------------------------------------------

    def _pod(self, name: str) -> Pod | None:
        return self._world.pods.get(name)

    def _sidecars(self, name: str) -> list[SidecarHost]:
        pod = self._world.pods.get(name)
        return [each for each in pod.sidecars if not pod.deleted] if pod is not None else []

    def _hosts(self, name: str) -> list[Host]:
        world = self._world
        for hosts in (world.indexers, world.routers):
            if name in hosts:
                return [hosts[name]]
        return list(self._sidecars(name))

    # -- work ----------------------------------------------------------------------------------------

    def store(self, step: Step) -> None:
        for sidecar in self._sidecars(step.whom):
            sidecar.engine.store(int(step.one), int(step.two))

    def evict(self, step: Step) -> None:
        for sidecar in self._sidecars(step.whom):
            sidecar.engine.evict(int(step.one))

    def clear(self, step: Step) -> None:
        for sidecar in self._sidecars(step.whom):
            sidecar.engine.clear()

    def lose_events(self, step: Step) -> None:
        for sidecar in self._sidecars(step.whom):
            sidecar.engine.lose_next += int(step.one)

    def restart_engine(self, step: Step) -> None:
        for sidecar in self._sidecars(step.whom):
            engine = sidecar.engine
            engine.stop()
            self._later(step.one, lambda engine=engine: engine.start(int(step.two)))  # type: ignore[misc]

    def report(self, step: Step) -> None:
        routers = list(self._world.routers.values())
        self._world.report(routers[int(step.one) % len(routers)], step.whom.replace(" ", "-"))

    # -- processes -----------------------------------------------------------------------------------

    def kill(self, step: Step) -> None:
        for host in self._hosts(step.whom):
            host.resume()
            host.kill(step.two)
            self._later(step.one, host.start)

    def stop(self, step: Step) -> None:
        for host in self._hosts(step.whom):
            host.stop()
            self._later(step.one, host.start)

    def pause(self, step: Step) -> None:
        for host in self._hosts(step.whom):
            host.pause()
            self._later(step.one, host.resume)

    def add(self, step: Step) -> None:
        world, kind = self._world, step.whom.partition(" ")[0]
        hosts: dict[str, Callable[[str], Host]] = {"indexer": world.add_indexer, "router": world.add_router}
        if not self._hosts(step.whom):
            hosts[kind](step.whom).start()

    def second_sidecar(self, step: Step) -> None:
        pod = self._pod(step.whom)
        if pod is not None and not pod.deleted:
            self._world.add_sidecar(pod, self._plan.replays)

    def delete_pod(self, step: Step) -> None:
        pod = self._pod(step.whom)
        if pod is None or pod.deleted:
            return
        pod.deleted = True
        loop = self._world.loop
        for sidecar in pod.sidecars:
            sidecar.resume()
            sidecar.kill(step.two + self._random.random())
            sidecar.is_removed = True
            sidecar.engine.stop()
            for after_s in (step.two, step.two + step.three):
                at, controller = loop.time() + after_s, self._world.controller
                loop.call_in(controller.process, at, controller.gone, sidecar.replica, sidecar.pod_uid)
        pod.sidecars = []
        if step.one:
            self._later(step.one, lambda: self._again(pod))

    def _again(self, pod: Pod) -> None:
        if pod.deleted:
            self._world.add_sidecar(pod, self._plan.replays)

    # -- the network ---------------------------------------------------------------------------------

    def stall(self, step: Step) -> None:
        for host in self._hosts(step.whom):
            host.link.stalled_until = self._world.loop.time() + step.one

    def mute(self, step: Step) -> None:
        for host in self._hosts(step.whom):
            host.link.mute_until = self._world.loop.time() + step.one

    def reset(self, step: Step) -> None:
        for host in self._hosts(step.whom):
            for connection in list(self._world.server.connections):
                if connection.process is host.process:
                    self._world.server.connections.remove(connection)
                    connection.broken()

    def reset_all(self, step: Step) -> None:
        connections, self._world.server.connections = self._world.server.connections, []
        for connection in connections:
            connection.broken()

    # -- the server ----------------------------------------------------------------------------------

    def pause_server(self, step: Step) -> None:
        for host in self._world.hosts:
            host.link.stalled_until = self._world.loop.time() + step.one

    def restart_server(self, step: Step) -> None:
        self._restart(step.one, None)

    def keep_a_copy(self, step: Step) -> None:
        self._copy = {name: each.copy() for name, each in self._world.server.streams.items()}

    def roll_back(self, step: Step) -> None:
        if self._copy is not None:
            self._judge.storage_lost()
            self._restart(step.one, self._copy)

    def wipe(self, step: Step) -> None:
        self._judge.storage_lost()
        self._restart(step.one, {})

    def lose_tails(self, step: Step) -> None:
        server = self._world.server
        if not server.up:
            return
        self._judge.storage_lost()
        choice = Random(f"{self._plan.seed}/{step.three}")
        since_ns = server.now_ns() - int(step.two * 1e9)
        left = {name: each.copy() for name, each in server.streams.items()}
        for stream in left.values():
            unsynced = sum(kept.time_ns >= since_ns for kept in stream.messages.values())
            if choice.random() < 0.6:
                stream.lose_tail(choice.randint(0, unsynced))
        self._restart(step.one, left)

    def _restart(self, down_s: float, streams: dict[str, Stream] | None) -> None:
        server = self._world.server
        if not server.up:
            return
        server.stop()
        if streams is not None:
            server.replace_storage(streams)
        self._later(down_s, lambda: None if server.up else server.start())

    def delete_stream(self, step: Step) -> None:
        server = self._world.server
        streams = [
            name
            for name in sorted(server.streams)
            if name.startswith(("IC_", "OBJ_", "KV_IC_REFS", "KV_IC_MEM"))
        ]
        if server.up and streams:
            self._judge.storage_lost()
            server.delete(streams[int(step.one) % len(streams)])

    def cut_log(self, step: Step) -> None:
        self._judge.log_was_cut = True
        self._cut("IC_EVENTS_", step.one)

    def cut_deltas(self, step: Step) -> None:
        self._cut("IC_DELTAS_", step.one)

    def _cut(self, prefix: str, share: float) -> None:
        for name, stream in self._world.server.streams.items():
            if name.startswith(prefix) and stream.messages:
                stream.purge(below=stream.first + round(share * len(stream.messages)))

    def corrupt(self, step: Step) -> None:
        """The newest snapshot or the one before: changed, cut, without its chunks or its description."""
        store = self._world.server.streams.get(f"OBJ_{SNAPSHOTS}")
        subjects = [each for each in store.by_subject if ".C." in each] if store is not None else []
        if store is None or not subjects:
            return
        subject = subjects[-1 - int(step.one) % len(subjects)]
        self._judge.damaged.add(subject)
        kept = store.messages[store.by_subject[subject][0]]
        match int(step.two):
            case 0:
                middle = len(kept.payload) // 2
                changed = (
                    kept.payload[:middle] + bytes([kept.payload[middle] ^ 1]) + kept.payload[middle + 1 :]
                )
                store.replace(kept._replace(payload=changed))
            case 1:
                store.replace(kept._replace(payload=kept.payload[: len(kept.payload) // 2]))
            case 2:
                store.purge(subject=subject)
            case _:
                description = f"{subject.replace('.C.', '.M.')}{'=' * (-len(subject.rpartition('.')[2]) % 4)}"
                store.purge(subject=description)

    def full(self, step: Step) -> None:
        store = self._world.server.streams.get(f"OBJ_{SNAPSHOTS}")
        if store is not None:
            store.is_full = True
            self._later(step.one, lambda: setattr(store, "is_full", False))

    # -- what operators write ----------------------------------------------------------------------

    def change_layout(self, step: Step) -> None:
        self._judge.layout_changes = True
        self._world.operator.change_layout(int(step.one), int(step.two))

    def prune_layout(self, step: Step) -> None:
        self._world.operator.prune()

    def write_policies(self, step: Step) -> None:
        self._write_policies()

    def set_quota(self, step: Step) -> None:
        self._quota = int(step.one)
        self._write_policies()

    def delete_counts(self, step: Step) -> None:
        server, name = self._world.server, f"KV_{AGGREGATE}"
        if server.up and name in server.streams:
            server.delete(name)

    # -- clocks --------------------------------------------------------------------------------------

    def skew(self, step: Step) -> None:
        """An indexer's clock is off from the beginning: see `begin`."""

    def skew_server(self, step: Step) -> None:
        self._world.server.clock_ns = int(step.one * 1e9)


VERBS: Final[dict[str, Callable[[Stage, Step], None]]] = {
    "store": Stage.store,
    "evict": Stage.evict,
    "clear": Stage.clear,
    "lose events": Stage.lose_events,
    "restart engine": Stage.restart_engine,
    "report": Stage.report,
    "kill": Stage.kill,
    "stop": Stage.stop,
    "pause": Stage.pause,
    "begin": Stage.add,
    "second sidecar": Stage.second_sidecar,
    "delete pod": Stage.delete_pod,
    "stall": Stage.stall,
    "mute": Stage.mute,
    "reset": Stage.reset,
    "reset all": Stage.reset_all,
    "pause server": Stage.pause_server,
    "restart server": Stage.restart_server,
    "keep a copy": Stage.keep_a_copy,
    "roll back": Stage.roll_back,
    "wipe": Stage.wipe,
    "lose tails": Stage.lose_tails,
    "delete stream": Stage.delete_stream,
    "cut log": Stage.cut_log,
    "cut deltas": Stage.cut_deltas,
    "corrupt": Stage.corrupt,
    "full": Stage.full,
    "change layout": Stage.change_layout,
    "prune layout": Stage.prune_layout,
    "policy": Stage.write_policies,
    "quota": Stage.set_quota,
    "delete counts": Stage.delete_counts,
    "skew": Stage.skew,
    "skew server": Stage.skew_server,
}
