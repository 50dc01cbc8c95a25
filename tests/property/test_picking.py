"""What holds of every pick, whatever the endpoints, the hint, the load and the refusals are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inferencecache.core.gateway import Endpoint, EndpointId, Endpoints, Refusals, pick
from inferencecache.core.gateway.picking import MOST_FALLBACKS
from inferencecache.schemas.ids import ReplicaId

REPLICAS = [ReplicaId(f"r{number}") for number in range(6)]
ADDRESSES = [f"10.0.0.{number}:8000" for number in range(8)]

endpoints = st.lists(
    st.builds(
        Endpoint,
        st.builds(
            EndpointId, st.sampled_from(ADDRESSES), st.sampled_from(REPLICAS), st.sampled_from(["", "b"])
        ),
        st.booleans(),
    ),
    max_size=10,
)
names = st.sampled_from([*REPLICAS, ReplicaId("gone"), ReplicaId("r1@dp3")])
hints = st.lists(names, max_size=4, unique=True)
loads = st.dictionaries(st.sampled_from(REPLICAS), st.floats(0, 1e6), max_size=6)
subsets = st.none() | st.sets(st.sampled_from(ADDRESSES))
refused = st.lists(st.tuples(st.integers(0, 9), st.floats(0, 2)), max_size=12)
NOW_S = 2.0


@given(endpoints, hints, loads, refused, st.integers(0, 1000), subsets)
def test_a_pick_is_ready_allowed_and_as_preferred(
    told: list[Endpoint],
    hinted: list[ReplicaId],
    work: dict[ReplicaId, float],
    rows: list[tuple[int, float]],
    turn: int,
    subset: set[str] | None,
) -> None:
    table, refusals = Endpoints(told), Refusals()
    for number, at_s in sorted(rows, key=lambda row: row[1]):
        if number < len(told):
            refusals.refused(told[number].id, at_s)
    picked = pick(table, hinted, work, {}, refusals, turn, NOW_S, subset)
    ready = table.ready(subset)

    assert set(picked.endpoints) <= set(ready)
    assert len(set(picked.endpoints)) == len(picked.endpoints) == min(len(ready), 1 + MOST_FALLBACKS)
    assert bool(picked.endpoints) == bool(ready)
    if not picked.endpoints:
        return
    until = [refusals.passed_over_until(each.id, NOW_S) for each in picked.endpoints]
    assert until == sorted(until), "who refused comes behind those who did not"
    assert until[0] == min(refusals.passed_over_until(each.id, NOW_S) for each in ready)

    free = [each for each in ready if refusals.passed_over_until(each.id, NOW_S) == until[0]]
    named = [replica for replica in hinted if any(each in free for each in table.of(replica))]
    if named:
        assert picked.first in table.of(named[0]), "the hint's order comes first"
    else:
        least = min(work.get(each.replica, 0.0) for each in free)
        assert work.get(picked.endpoints[0].replica, 0.0) <= least * 1.01
    assert picked.is_hinted <= bool(named)


@given(endpoints, loads)
def test_turns_go_round_those_that_are_equally_idle(
    told: list[Endpoint], work: dict[ReplicaId, float]
) -> None:
    table = Endpoints(told)
    ready = table.ready()
    if not ready:
        return
    least = min(work.get(each.replica, 0.0) for each in ready)
    idle = {each for each in ready if work.get(each.replica, 0.0) <= least * 1.01}
    picked = {pick(table, [], work, {}, Refusals(), turn, 0.0).first for turn in range(len(idle))}
    assert picked == idle


@given(endpoints, endpoints)
def test_what_a_source_no_longer_tells_is_gone(before: list[Endpoint], after: list[Endpoint]) -> None:
    table = Endpoints(before)
    held = table.ids
    gone = table.replace(after)
    assert gone == held - table.ids
    for replica in REPLICAS:
        assert all(each.id in table.ids for each in table.of(replica))
    assert {each.id.address for each in after} == {each.address for each in table.ids}


def test_an_endpoint_with_a_long_request_of_ours_is_not_idle_after_its_work_has_faded() -> None:
    told = [Endpoint(EndpointId(ADDRESSES[number], REPLICAS[number])) for number in range(2)]
    table = Endpoints(told)
    open_tokens = {told[0].id: 5000}
    for turn in range(4):
        assert pick(table, [], {}, open_tokens, Refusals(), turn, 0.0).first == told[1]


def test_a_hint_names_a_rank_by_its_own_endpoint_or_by_that_of_its_pod() -> None:
    ranks = [Endpoint(EndpointId(ADDRESSES[n], ReplicaId(f"p@dp{n}"))) for n in range(2)]
    assert Endpoints(ranks).of(ReplicaId("p@dp1")) == [ranks[1]]
    assert list(Endpoints(ranks).of(ReplicaId("p"))) == ranks
    whole = Endpoint(EndpointId(ADDRESSES[0], ReplicaId("p")))
    assert Endpoints([whole]).of(ReplicaId("p@dp1")) == [whole]
