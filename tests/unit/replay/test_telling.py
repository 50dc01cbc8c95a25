"""What a replay says of messages, of two points, of a state, and of a lookup."""

from __future__ import annotations

from random import Random

import pytest

from inferencecache.core.index.fold import Fold
from inferencecache.core.index.policy import Policies
from inferencecache.core.index.request import RouteRequest
from inferencecache.core.replay import (
    AtSequence,
    AtTime,
    Filter,
    Standpoint,
    Told,
    difference,
    explain_at,
    policies_at,
    state_of,
    told,
)
from inferencecache.schemas.deltas import HolderName
from inferencecache.schemas.ids import AdapterId, HashScheme, ModelId, ReplicaId, TenantId
from inferencecache.schemas.policy import PolicySet
from inferencecache.schemas.positions import Position
from inferencecache.schemas.records import Begin, Stats, TenantPolicy, TenantQuota
from inferencecache.schemas.senders import ControlSender, ReplicaSender
from tests.oracle.digest import holder_of
from tests.oracle.logs import LogWriter, evicted, stored
from tests.oracle.model import NaiveFold
from tests.oracle.random_log import Mix, RandomLog

T, M = TenantId("t"), ModelId("m")
HolderKey = tuple[HolderName, str]
CHAIN = [b"block-01", b"block-02"]


def started() -> LogWriter:
    log = LogWriter()
    log.claim()
    log.tick()
    return log


def folded(log: LogWriter) -> tuple[Fold, list[Told]]:
    fold = Fold(1 << 8)
    lines = [line for message in log.messages for line in told(3, message, fold.fold(message))]
    return fold, lines


def test_every_record_is_told_with_what_is_in_it_and_whether_it_counted() -> None:
    log = started()
    log.sidecar("r1", "one", 1, Begin("uid"), stored(CHAIN, [16, 32], adapter="a", tier=2), age_ms=5)
    log.sidecar("r1", "two", 1, Stats(hit_rate=0.5))
    log.append(ControlSender("r"), None)
    _, lines = folded(log)
    begin, store, fenced, broken = lines[2:]
    assert (begin.record, begin.fields["pod_uid"], begin.sender, begin.age_ms) == (
        "Begin",
        "uid",
        "sidecar",
        5,
    )
    assert store.record == "Stored"
    assert store.fields["hashes"] == [hash_.hex() for hash_ in CHAIN]
    assert store.fields["token_counts"] == [16, 32]
    assert (store.partition, store.sequence, store.tenant, store.replica) == (3, 3, "t", "r1")
    assert store.dropped == ""
    assert (fenced.record, fenced.dropped) == ("Stats", "fenced")
    assert (broken.record, broken.sender, broken.dropped) == ("", "unknown", "undecodable")


@pytest.mark.parametrize("seed", range(4))
def test_the_difference_of_two_points_is_what_the_model_sees(seed: int) -> None:
    log, naive, fold = RandomLog(Random(seed), Mix(epochs=False)), NaiveFold(), Fold(1 << 8)

    def fold_on(messages: int) -> dict[HolderKey, tuple[int, int, bool]]:
        for _ in range(messages):
            message = log.message()
            naive.fold(message)
            fold.fold(message)
        return {
            (holder_of(key), f"{key.key:016x}"): (hold.token_count, hold.tier, hold.uncertain)
            for key, hold in naive.holds.items()
        }

    old, before = fold_on(150), Standpoint(0, fold, Filter())
    new, after = fold_on(40), Standpoint(0, fold, Filter())
    came, left, changed = set(), set(), set()
    for each in difference(before, after).holders:
        of = HolderName(
            TenantId(each.tenant),
            ModelId(each.model),
            HashScheme(each.scheme),
            AdapterId(each.adapter),
            each.width,
            ReplicaId(each.replica),
        )
        came |= {(of, key) for key in each.came}
        left |= {(of, key) for key in each.left}
        changed |= {(of, key) for key in each.changed}
    assert came == new.keys() - old.keys()
    assert left == old.keys() - new.keys()
    assert changed == {key for key in old.keys() & new.keys() if old[key] != new[key]}
    assert came
    assert left


def test_a_filter_leaves_out_what_is_about_others() -> None:
    only = Filter("t", None, "r1")
    assert only.takes_sender(ReplicaSender(T, M, ReplicaId("r1")))
    assert not only.takes_sender(ReplicaSender(T, M, ReplicaId("r2")))
    assert not only.takes_sender(ControlSender("o"))
    assert Filter().takes_sender(ControlSender("o"))


def test_a_point_lies_between_what_is_up_to_it_and_what_is_behind() -> None:
    at = [Position(number, number * 10, 1) for number in (1, 2, 3)]
    assert [AtSequence(2).offset(position) > 0 for position in at] == [False, False, True]
    assert [AtTime(20).offset(position) > 0 for position in at] == [False, False, True]
    assert AtTime(20).offset(Position()) < 0


def test_a_state_names_what_replicas_hold() -> None:
    log = started()
    log.sidecar("r1", "one", 1, Begin("uid"), stored(CHAIN, [16, 32]))
    log.report("r2", stored(CHAIN[:1], [16], adapter="a"))
    log.report("r2", evicted(CHAIN[1]))
    fold, _ = folded(log)
    state = state_of(0, fold, Filter(replica="r2"))
    assert (state.entries, len(state.replicas)) == (3, 1)
    assert state.replicas[0].entries == 1
    assert state.replicas[0].holders[0].adapter == "a"
    assert [each.replica for each in state_of(0, fold).replicas] == ["r1", "r2"]


def test_a_lookup_is_answered_by_the_log_and_the_policy_that_it_names() -> None:
    log = started()
    log.report("r1", stored(CHAIN, [64, 128]))
    log.apply_policy([TenantPolicy(T, 3_000_000)], [TenantQuota(T, 10)], revision=4)
    log.tick()
    request = RouteRequest(T, M, HashScheme("vllm"), block_hashes=CHAIN, block_token_counts=[64, 64])
    fold, _ = folded(log)
    answer = explain_at({0: fold}, [0], Policies(PolicySet()), request)
    assert (answer.reason, answer.replicas[0].matched_tokens) == ("PREFIX_MATCH", 128)
    assert answer.time_us == fold.clock.message_time(fold.view.log.time_ns)
    alone = policies_at(fold)
    assert alone.quota(T) == 10
    assert explain_at({0: fold}, [0], alone, request).ttl_ms == 3000
    log.tick(2)
    log.tick(2)
    fold, _ = folded(log)
    assert explain_at({0: fold}, [0], alone, request).reason != "PREFIX_MATCH"
