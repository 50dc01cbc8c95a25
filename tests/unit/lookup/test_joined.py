"""One index out of several partitions and lanes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from inferencecache.core.index.cache_state import cache_state
from inferencecache.core.index.joined import NOTHING, JoinedView, Lane
from inferencecache.core.index.reading import Scope
from inferencecache.schemas.ids import PROBE_TENANT, HashScheme, ModelId, TenantId
from inferencecache.schemas.records import Begin, Stats
from tests.oracle.indexes import product_route
from tests.oracle.logs import START_US, LogWriter, stored
from tests.oracle.model import NaiveFold
from tests.oracle.routing import Question, naive_route
from tests.oracle.view import NaiveView

T, M = TenantId("t"), ModelId("m")
REPLICAS = ["r0", "r1", "r2", "r3"]
CHAIN = (b"a", b"b", b"c")


def fold_of(reports: list[tuple[str, int, int]], clock_us: int = START_US) -> NaiveFold:
    """Each report: a replica holds that many blocks of the chain, as old as that many seconds."""
    log = LogWriter()
    log.stamp_us = clock_us
    log.claim()
    log.tick(0)
    for replica, blocks, age_s in reports:
        stamp_us = clock_us - age_s * 10**6
        chain = stored(CHAIN[:blocks], [64, 128, 192][:blocks], timestamp_us=stamp_us)
        log.report(replica, chain, Stats(hit_rate=0.5, pressure=0.25, timestamp_us=stamp_us))
    fold = NaiveFold()
    for message in log.messages:
        fold.fold(message)
    return fold


reports = st.lists(
    st.tuples(st.sampled_from(REPLICAS), st.integers(1, 3), st.sampled_from([0, 250, 900, 1790, 1900])),
    max_size=6,
)
QUESTIONS = [
    Question(block_hashes=CHAIN, block_token_counts=(64, 64, 64)),
    Question(prefix_hash=b"b"),
    Question(prefix_hash=b"new"),
    Question(prefix_hash=b"new", model="other"),
    Question(prefix_hash=b"new", scheme="other"),
    Question(prefix_hash=b"new", tenant="other"),
]


@settings(deadline=None)
@given(reports=reports, apart_s=st.integers(-3000, 3000))
def test_lanes_answer_together_as_one_index_does_even_when_their_clocks_differ(
    reports: list[tuple[str, int, int]], apart_s: int
) -> None:
    other_us = START_US + apart_s * 10**6
    whole = NaiveView(fold_of(reports))
    left = NaiveView(fold_of([report for report in reports if report[0] < "r2"]))
    right = NaiveView(fold_of([report for report in reports if report[0] >= "r2"], other_us))
    elsewhere = NaiveView(fold_of([]))
    joined = JoinedView([Lane(left, START_US), Lane(right, other_us)], [left, elsewhere, right])
    assert joined.now_us == START_US
    for question in QUESTIONS:
        expected = naive_route(whole, None, question, START_US)
        assert product_route(joined, None, question, joined.now_us) == expected
    assert cache_state(joined, T, M).replicas == cache_state(whole, T, M).replicas


def test_whether_a_tenant_is_known_is_judged_over_all_partitions() -> None:
    empty, other = NaiveView(fold_of([])), NaiveView(fold_of([("r0", 1, 0)]))
    question = Question(prefix_hash=b"x", tenant="t", model="elsewhere")
    alone = JoinedView([Lane(empty, START_US)], [empty])
    beside = JoinedView([Lane(empty, START_US)], [empty, other])
    assert product_route(alone, None, question, START_US).reason == "NO_HINT"
    assert product_route(beside, None, question, START_US).reason == "UNKNOWN_MODEL"


def test_keys_of_several_lanes_are_summed() -> None:
    left, right = NaiveView(fold_of([("r0", 3, 0)])), NaiveView(fold_of([("r3", 2, 0)]))
    joined = JoinedView([Lane(left, START_US), Lane(right, START_US)], [left, right])
    assert joined.distinct_keys(T, M) == 5


def test_newcomers_of_all_lanes_are_newcomers_heard_by_their_own_lanes_time() -> None:
    def lane(replica: str, clock_us: int) -> NaiveView:
        log = LogWriter()
        log.stamp_us = clock_us
        log.claim()
        log.tick(0)
        log.sidecar(replica, "i", 1, Begin(scheme=HashScheme("vllm")))
        fold = NaiveFold()
        for message in log.messages:
            fold.fold(message)
        return NaiveView(fold)

    later_us = START_US + 3_600_000_000
    left, right = lane("r3", START_US), lane("r0", later_us)
    joined = JoinedView([Lane(left, START_US), Lane(right, later_us + 9_000_000)], [left, right])
    scope = Scope(T, M, HashScheme("vllm"))
    assert joined.newcomers(scope, START_US - 10_000_000) == ["r0", "r3"]
    assert joined.newcomers(scope, START_US - 5_000_000) == ["r3"]


def test_a_router_that_has_not_loaded_everything_knows_nothing() -> None:
    assert NOTHING.is_empty()
    assert not NOTHING.has_tenant(T)
    assert cache_state(NOTHING, T, M).total_prefixes == 0
    for question in QUESTIONS:
        assert product_route(NOTHING, None, question, 0).reason == "NO_HINT"


def test_the_state_of_the_reserved_tenant_reads_as_empty() -> None:
    log = LogWriter()
    log.claim()
    log.tick(0)
    log.report("__probe-x", stored([b"a"], [16]), Stats(hit_rate=1.0), tenant=PROBE_TENANT)
    fold = NaiveFold()
    for message in log.messages:
        fold.fold(message)
    assert cache_state(NaiveView(fold), PROBE_TENANT, M) == ((), 0)
