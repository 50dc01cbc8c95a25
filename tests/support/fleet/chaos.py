"""Random faults, one after another and at once, for as long as they are asked for.

A seed repeats the choice of faults and their lengths, not how they meet in time.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Final

from inferencecache.cli.stack.plan import TENANT
from inferencecache.core.log import ApiError, NoAnswerError, NotStoredError
from inferencecache.core.partitions import References
from inferencecache.schemas.ids import Incarnation, OwnerId, ReplicaId, TenantId
from inferencecache.schemas.records import Alive, Batch, Begin, Claim, Gone, decode_batch, encode_batch
from tests.support.fleet import injector
from tests.support.fleet.injector import append, append_as, lasting, stopped
from tests.support.fleet.processes import NATS, Fleet
from tests.support.fleet.requests import prune_layouts, put_ttl, set_partitions
from tests.support.fleet.witness import Witness

LONGEST_PAUSE_S: Final = 4.0
LONGEST_DOWN_S: Final = 3.0
LONGEST_STOP_S: Final = 6.0
Mix = Mapping[str, int]
"""How often each fault is chosen, relative to the others."""

KILLS: Final[Mix] = {"kill engine": 9, "kill sidecar": 9, "kill nats": 3}
EVERYTHING: Final[Mix] = {
    **KILLS,
    "kill indexer": 5,
    "kill router": 3,
    "stop indexer": 4,
    "stop router": 2,
    "stop sidecar": 3,
    "stop nats": 2,
    "send hostile bytes": 4,
    "send again": 4,
    "send out of turn": 2,
    "delete pod": 3,
    "claim": 2,
    "change policy": 2,
    "change layout": 1,
    "cut log": 2,
    "damage snapshot": 3,
    "skew clock": 2,
    "lose tail": 1,
    "bring back older storage": 1,
    "lose storage": 1,
}


class Chaos:
    """The faults of one run; `log` says what happened, one line each."""

    def __init__(
        self, seed: int, fleet: Fleet, witness: Witness, mix: Mix, say: Callable[[str], None] | None = None
    ) -> None:
        self.log: list[str] = []
        self.counts: Counter[str] = Counter()
        self._seed = seed
        self._random = Random(f"{seed} faults")
        self._fleet = fleet
        self._witness = witness
        self._mix = mix
        self._tell = say
        self._began = time.monotonic()
        self._busy: set[str] = set()
        self._under_way: set[str] = set()
        self._pods = 0

    async def run(self, duration_s: float) -> None:
        """Inject faults for so long, each kind at least once; return when all processes run again."""
        end = time.monotonic() + duration_s
        kinds, weights = zip(*self._mix.items(), strict=True)
        async with asyncio.TaskGroup() as group:
            while not all(self.counts[kind] for kind in self._mix) or time.monotonic() < end:
                await lasting(self._random.uniform(0.1, LONGEST_PAUSE_S))
                kind = self._random.choice(self._missing() or self._random.choices(kinds, weights))
                if self.counts[kind] or kind not in self._under_way:
                    self._under_way.add(kind)
                    group.create_task(self._inject(kind, Random(self._random.getrandbits(64))))
        for name in self._fleet.names:
            if not self._fleet.pid(name):
                await self._fleet.start(name)

    def _missing(self) -> list[str]:
        """What has not happened yet."""
        return [kind for kind in self._mix if not self.counts[kind] and kind not in self._under_way]

    async def _inject(self, kind: str, random: Random) -> None:
        """One fault; what it needs may be in the hands of another one, then it does not happen."""
        verb, _, what = kind.partition(" ")
        try:
            match verb:
                case "kill":
                    await self._kill(what, random)
                case "stop":
                    await self._stop(what, random)
                case "skew":
                    await self._skew_clock(random)
                case "delete":
                    await self._delete_pod(random)
                case "lose" | "bring":
                    await self._harm_storage(kind, random)
                case _:
                    await self._disturb(kind, random)
        except (NotStoredError, NoAnswerError, ApiError) as error:
            self._say(f"{kind}: nothing came of it, {type(error).__name__}")
        finally:
            self._under_way.discard(kind)

    # -- processes ---------------------------------------------------------------------------------

    async def _kill(self, prefix: str, random: Random) -> None:
        with self._taken(prefix, random) as name:
            if name:
                await self._down(name, random, f"kill {prefix}")

    async def _down(self, name: str, random: Random, kind: str) -> None:
        down_s = random.uniform(0.0, LONGEST_DOWN_S)
        self._happened(kind, f"{name} killed, for {down_s:.2f} s")
        await self._fleet.kill(name)
        await lasting(down_s)
        await self._fleet.start(name)
        self._say(f"{name} started")

    async def _stop(self, prefix: str, random: Random) -> None:
        with self._taken(prefix, random) as name:
            if name:
                stop_s = random.uniform(0.1, LONGEST_STOP_S)
                self._happened(f"stop {prefix}", f"{name} stopped, for {stop_s:.2f} s")
                async with stopped(self._fleet, name):
                    await lasting(stop_s)
                self._say(f"{name} continued")

    async def _skew_clock(self, random: Random) -> None:
        """A process comes back with a clock that is off, or with a right one."""
        with self._taken(random.choice(("indexer", "sidecar", "router")), random) as name:
            if name:
                hours = random.choice((-1, 0, 1))
                kept = tuple(each for each in self._fleet.environment.get(name, ()) if "POD_UID" in each)
                wrong = injector.wrong_clock(hours) if hours else ()
                self._fleet.environment[name] = (*kept, *wrong)
                await self._down(name, random, "skew clock")
                self._say(f"{name} has a clock that is {hours:+} h off")

    async def _delete_pod(self, random: Random) -> None:
        with self._taken("engine", random) as engine:
            sidecar = engine.replace("engine", "sidecar")
            if not engine or sidecar in self._busy or not self._fleet.pid(sidecar):
                return
            self._busy.add(sidecar)
            try:
                before = next(
                    (each for each in self._fleet.environment.get(sidecar, ()) if "POD_UID" in each), ""
                )
                self._happened("delete pod", f"{engine} and {sidecar} deleted")
                await self._fleet.kill(engine, sidecar)
                await self._say_gone(engine, before.removeprefix("POD_UID="))
                self._pods += 1
                kept = tuple(
                    each for each in self._fleet.environment.get(sidecar, ()) if "POD_UID" not in each
                )
                self._fleet.environment[sidecar] = (*kept, f"POD_UID=uid-{self._pods}")
                await lasting(random.uniform(0.0, LONGEST_DOWN_S))
                await asyncio.gather(self._fleet.start(engine), self._fleet.start(sidecar))
                self._say(f"{engine} and {sidecar} started as another pod")
                await lasting(random.uniform(0.0, LONGEST_DOWN_S))
                await self._say_gone(engine, before.removeprefix("POD_UID="))
            finally:
                self._busy.discard(sidecar)

    async def _say_gone(self, pod: str, uid: str) -> None:
        if uid:
            gone = Gone(TenantId(TENANT), ReplicaId(pod), uid)
            for copy in self._witness.partitions:
                await append_as(self._witness, copy, "c", gone)

    @contextmanager
    def _taken(self, prefix: str, random: Random) -> Iterator[str]:
        """A running process of a kind that no other fault holds; empty when there is none."""
        free = [name for name in self._fleet.running(prefix) if name not in self._busy]
        name = random.choice(free) if free else ""
        self._busy.add(name)
        try:
            yield name
        finally:
            self._busy.discard(name)

    # -- storage -----------------------------------------------------------------------------------

    async def _harm_storage(self, kind: str, random: Random) -> None:
        with self._taken(NATS, random) as name:
            if not name:
                return
            self._happened(kind, kind)
            copy = random.choice(self._witness.partitions)
            if kind == "lose tail":
                await injector.lose_tail(self._fleet, copy.events)
            elif kind == "lose storage":
                await injector.lose_storage(self._fleet)
            else:
                older = self._fleet.folder / "older"
                shutil.rmtree(older, ignore_errors=True)
                await injector.copy_storage(self._fleet, older)
                await lasting(random.uniform(0.5, LONGEST_STOP_S))
                await injector.bring_back_storage(self._fleet, older)
            self._say(f"{kind}: {NATS} started")

    # -- messages ----------------------------------------------------------------------------------

    async def _disturb(self, kind: str, random: Random) -> None:
        witness = self._witness
        copy = random.choice(witness.partitions)
        replica = random.choice(self._fleet.engines).replica
        theirs = [raw for each in witness.partitions for raw in each.batches_of(replica)]
        match kind:
            case "send hostile bytes" if theirs:
                last = theirs[-1]
                cut = last.payload[: random.randrange(len(last.payload) + 1)]
                for payload in (cut, random.randbytes(random.randrange(2000))):
                    await append(witness, last.subject, payload)
            case "send again" if theirs:
                for raw in random.sample(theirs, k=min(5, len(theirs))):
                    batch = decode_batch(raw.payload).batch
                    if not any(isinstance(record, Begin) for record in batch.records):
                        await append(witness, raw.subject, raw.payload)
            case "send out of turn" if theirs:
                last_batch = decode_batch(theirs[-1].payload).batch
                ahead = Batch(Incarnation(last_batch.incarnation), last_batch.sequence + 1000, 0, (Alive(),))
                await append(witness, theirs[-1].subject, encode_batch(ahead))
            case "claim" if copy.claims:
                await append_as(witness, copy, "o", Claim(OwnerId("nobody"), copy.claims[-1].claim.log_epoch))
            case "change policy":
                await put_ttl(witness, random.randrange(1200, 3600))
            case "change layout":
                self._happened(kind, kind)
                await set_partitions(self._fleet, random.choice((1, 2, 3, 4)))
                await lasting(LONGEST_STOP_S)
                await prune_layouts(self._fleet)
                return
            case "cut log" | "damage snapshot":
                refs, _ = await References(witness.log, copy.key).read()
                if refs is None or refs.current is None:
                    return
                if kind == "damage snapshot":
                    await injector.damage_object(witness, refs.current.object)
                elif copy.messages and copy.messages[-1].position.sequence > refs.current.log.sequence:
                    await injector.cut_log(witness, copy.events, below=refs.current.log.sequence)
            case _:
                return
        self._happened(kind, kind)

    # -- what happened -----------------------------------------------------------------------------

    def _happened(self, kind: str, what: str) -> None:
        self.counts[kind] += 1
        self._say(what)

    def _say(self, what: str) -> None:
        line = f"{time.monotonic() - self._began:7.2f} s  {what}"
        self.log.append(line)
        if self._tell is not None:
            self._tell(line)
