"""A prefix that everybody asks for and one engine holds does not send everybody to that engine.

Three routers look up in turn; what one assigns the others hear later, and what engines store shows later.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Final, Literal, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferencecache.core.index.fold import Fold
from inferencecache.core.index.reason import Reason
from inferencecache.core.index.request import RouteRequest
from inferencecache.core.index.routing import route
from inferencecache.core.index.work import Assigned, AssignedWork
from inferencecache.schemas.ids import HashScheme, ModelId, ReplicaId, TenantId
from inferencecache.schemas.policy import ResolvedPolicy
from inferencecache.schemas.records import Alive, AnyRecord, Begin, Stats
from tests.oracle.logs import SECOND_US, START_US, LogWriter, stored

TENANT, MODEL, SCHEME = TenantId("t"), ModelId("m"), HashScheme("vllm")
BLOCK: Final = 512
ROUTERS: Final = 3
STATISTICS_S: Final = 10.0
Statistics = Literal["absent", "fresh", "idle", "stale"]
"""None; true ones; all engines look idle at each scrape; old ones that show all but the holder saturated."""


class Fleet:
    """Engines that began, the first of which holds the hot prefix of `hot` blocks, and the rest, if `warm`,
    something else.
    """

    def __init__(
        self, engines: int, hot: int, *, statistics: Statistics = "absent", warm: bool = False
    ) -> None:
        self.engines = [ReplicaId(f"r{number}") for number in range(engines)]
        self.chosen: Counter[ReplicaId] = Counter()
        self.reasons: Counter[Reason] = Counter()
        self.work = AssignedWork()
        """What all routers assigned, at once."""
        self._routers = [AssignedWork() for _ in range(ROUTERS)]
        self._statistics = statistics
        self._log = LogWriter()
        self._fold = Fold(1 << 12)
        self._sequences = Counter[ReplicaId]()
        self._hot = [b"hot%05d" % number for number in range(hot)]
        self._to_hear: deque[tuple[float, int, Assigned]] = deque()
        self._to_store: deque[tuple[float, ReplicaId, list[bytes]]] = deque()
        self._busy_until = dict.fromkeys(self.engines, 0.0)
        self._log.claim()
        self._log.tick(0)
        for engine in self.engines:
            self._say(engine, Begin(scheme=SCHEME))
        self._store(self.engines[0], self._hot)
        for engine in self.engines[1:] if warm else ():
            self._store(engine, [b"own%05d" % self.engines.index(engine)])
        if statistics == "stale":
            self._scrape(0.0)
        self._fold_all()

    def run(
        self,
        lookups: int,
        *,
        every_s: float,
        suffix: int,
        heard_after_s: float,
        stored_after_s: float,
        policy: ResolvedPolicy | None = None,
    ) -> None:
        """One lookup after the other; each prompt has `suffix` blocks of its own behind the hot prefix."""
        next_scrape_s = STATISTICS_S
        begin_s = 60.0 if self._statistics == "stale" else 0.0
        self._tick_to(begin_s)
        for engine in self.engines:
            self._say(engine, Alive())
        for number in range(lookups):
            now_s = begin_s + number * every_s
            while self._to_hear and self._to_hear[0][0] <= now_s:
                _, teller, assigned = self._to_hear.popleft()
                for router in self._routers:
                    if router is not self._routers[teller]:
                        router.hear(assigned, now_s)
            while self._to_store and self._to_store[0][0] <= now_s:
                self._store(*self._to_store.popleft()[1:])
            self._tick_to(now_s)
            if self._statistics in {"fresh", "idle"} and now_s >= next_scrape_s:
                next_scrape_s += STATISTICS_S
                self._scrape(now_s)
            self._fold_all()
            chain = [*self._hot, *(b"new%05d" % (number * suffix + block) for block in range(suffix))]
            replica, assigned = self._look_up(number % ROUTERS, chain, now_s, policy)
            self._to_hear.append((now_s + heard_after_s, number % ROUTERS, assigned))
            self._to_store.append((now_s + stored_after_s, replica, chain))

    def _look_up(
        self, router: int, chain: list[bytes], now_s: float, policy: ResolvedPolicy | None
    ) -> tuple[ReplicaId, Assigned]:
        view, now_us, work = self._fold.view, START_US + round(now_s * SECOND_US), self._routers[router]
        request = RouteRequest(
            TENANT, MODEL, SCHEME, block_hashes=chain, block_token_counts=[BLOCK] * len(chain)
        )
        believed = work.believed(TENANT, MODEL, now_s, view.stats(TENANT, MODEL), now_us)
        decision = route(view, policy, request, now_us, believed)
        replica = decision.scores[0].replica
        assigned = Assigned(TENANT, MODEL, replica, decision.uncached_tokens)
        for told in (work, self.work):
            told.assign(assigned, now_s)
        self.chosen[replica] += 1
        self.reasons[decision.reason] += 1
        busy_until_s = max(now_s, self._busy_until[replica])
        self._busy_until[replica] = busy_until_s + assigned.tokens / 8000
        return replica, assigned

    def _tick_to(self, now_s: float) -> None:
        while self._log.stamp_us + SECOND_US <= START_US + now_s * SECOND_US:
            self._log.tick()

    def _scrape(self, now_s: float) -> None:
        for number, engine in enumerate(self.engines):
            waiting = round(max(0.0, self._busy_until[engine] - now_s))
            if self._statistics == "idle":
                waiting = 0
            elif self._statistics == "stale":
                waiting = 1000 if number else 0
            self._say(
                engine,
                Stats(pressure=min(1.0, waiting / 256), requests_waiting=waiting, requests_running=waiting),
            )

    def _store(self, engine: ReplicaId, chain: list[bytes]) -> None:
        counts = [BLOCK * (number + 1) for number in range(len(chain))]
        self._say(engine, stored(chain, counts, scheme=SCHEME))

    def _say(self, engine: ReplicaId, record: AnyRecord) -> None:
        self._sequences[engine] += 1
        self._log.sidecar(engine, "i", self._sequences[engine], record)

    def _fold_all(self) -> None:
        for message in self._log.messages[self._fold.view.log.sequence :]:
            self._fold.fold(message)


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("statistics", get_args(Statistics))
def test_a_hot_prefix_on_one_engine_does_not_make_it_the_target_of_everybody(
    statistics: Statistics, warm: bool
) -> None:
    fleet = Fleet(4, 8, statistics=statistics, warm=warm)
    fleet.run(600, every_s=0.06, suffix=2, heard_after_s=0.1, stored_after_s=0.5)
    assert set(fleet.chosen) == set(fleet.engines)
    assert max(fleet.chosen.values()) < 0.45 * fleet.chosen.total(), fleet.chosen
    assert fleet.reasons[Reason.PREFIX_MATCH], "what is cached still counts"


def test_without_balancing_it_does() -> None:
    fleet = Fleet(4, 8, warm=True)
    plain = ResolvedPolicy("t", load_balancing=False)
    fleet.run(100, every_s=0.06, suffix=2, heard_after_s=0.1, stored_after_s=0.5, policy=plain)
    assert fleet.chosen == {"r0": 100}


@settings(max_examples=20)
@given(
    engines=st.integers(2, 8),
    hot=st.integers(1, 16),
    suffix=st.integers(1, 8),
    every_s=st.sampled_from([0.001, 0.02, 0.2]),
    heard_after=st.integers(0, 9),
    stored_after=st.integers(0, 30),
    warm=st.booleans(),
)
def test_no_engine_has_more_extra_work_than_a_match_is_worth_and_what_was_not_heard_yet(
    engines: int, hot: int, suffix: int, every_s: float, heard_after: int, stored_after: int, warm: bool
) -> None:
    fleet = Fleet(engines, hot, warm=warm)
    fleet.run(
        100,
        every_s=every_s,
        suffix=suffix,
        heard_after_s=heard_after * every_s,
        stored_after_s=stored_after * every_s,
    )
    work = fleet.work.of(TENANT, MODEL, 99 * every_s)
    extra = max(work.values()) - min(work.get(engine, 0.0) for engine in fleet.engines)
    prompt = (hot + suffix) * BLOCK
    match_is_worth = 2 * hot * BLOCK
    unheard = (heard_after + 1) * prompt
    assert extra <= match_is_worth + unheard + prompt
