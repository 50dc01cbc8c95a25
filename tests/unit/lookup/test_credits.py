"""Accesses counted by hints, and added up."""

from __future__ import annotations

import struct
from collections import Counter

import pytest

from inferencecache.core.index.credits import Credits, summed
from inferencecache.core.index.keys import key_of
from inferencecache.core.index.ranking import Score
from inferencecache.core.index.reason import Reason
from inferencecache.core.index.request import Inputs, RouteRequest
from inferencecache.core.index.routing import Decision
from inferencecache.schemas.ids import AdapterId, HashScheme, ModelId, ReplicaId, TenantId

REQUEST = RouteRequest(TenantId("t"), ModelId("m"), HashScheme("s"), AdapterId("a"))
R1, R2 = ReplicaId("r1"), ReplicaId("r2")
CHAIN = [b"block-01", b"block-02", b"block-03"]


def decision(*scores: Score, reason: Reason = Reason.PREFIX_MATCH, inputs: Inputs | None = None) -> Decision:
    return Decision(reason, scores, True, (), inputs or Inputs(CHAIN, [16] * 3))


def run(replica: ReplicaId, blocks: int) -> Score:
    return Score(replica, 1.0, 16 * blocks, 1.0, 1, blocks)


def totals(credited: Credits, most_keys: int = 1000) -> Counter[tuple[str, int, int]]:
    """Accesses by (replica, width class, key)."""
    counted: Counter[tuple[str, int, int]] = Counter()
    for item in summed(credited.take(), most_keys):
        assert (item.tenant, item.model, item.scheme, item.adapter) == REQUEST[:4]
        keys = struct.unpack(f"<{len(item.keys) // 8}Q", item.keys)
        counts = struct.unpack(f"<{len(item.counts) // 4}I", item.counts)
        assert len(keys) <= most_keys
        for key, count in zip(keys, counts, strict=True):
            counted[item.replica, item.width, key] += count
    return counted


@pytest.mark.rule("IDX-144", "WIRE-079")
def test_each_block_of_each_delivered_run_is_credited() -> None:
    credited = Credits()
    credited.add(REQUEST, decision(run(R1, 3), run(R2, 1)))
    credited.add(REQUEST, decision(run(R1, 2)))
    expected = {(R1, *key_of(CHAIN[0])): 2, (R1, *key_of(CHAIN[1])): 2, (R1, *key_of(CHAIN[2])): 1}
    assert totals(credited) == expected | {(R2, *key_of(CHAIN[0])): 1}
    assert not credited.take()


@pytest.mark.rule("IDX-144")
def test_a_block_that_stands_twice_in_a_run_is_credited_twice() -> None:
    credited = Credits()
    inputs = Inputs([CHAIN[0], CHAIN[1], CHAIN[0]], [16] * 3)
    credited.add(REQUEST, decision(run(R1, 3), inputs=inputs))
    assert totals(credited) == {(R1, *key_of(CHAIN[0])): 2, (R1, *key_of(CHAIN[1])): 1}


def test_hashes_of_several_widths_are_credited_in_their_classes() -> None:
    credited = Credits()
    chain = [b"short", b"block-01", b"longer than eight", b""]
    credited.add(REQUEST, decision(run(R1, 4), run(R2, 1), inputs=Inputs(chain, [16] * 4)))
    assert totals(credited) == {(R1, *key_of(hash_)): 1 for hash_ in chain} | {(R2, *key_of(chain[0])): 1}


@pytest.mark.rule("IDX-144")
def test_an_exact_entry_is_credited_if_its_count_is_positive() -> None:
    credited = Credits()
    scores = (Score(R1, 1.0, 64), Score(R2, 0.0, 0), Score(ReplicaId("r3"), -1.0, -5))
    credited.add(REQUEST, decision(*scores, inputs=Inputs(exact=b"p")))
    assert totals(credited) == {(R1, *key_of(b"p")): 1}


@pytest.mark.rule("IDX-145")
@pytest.mark.parametrize("reason", [reason for reason in Reason if reason is not Reason.PREFIX_MATCH])
def test_no_other_answer_credits_anything(reason: Reason) -> None:
    credited = Credits()
    credited.add(REQUEST, decision(run(R1, 3), reason=reason))
    assert not credited.take()


@pytest.mark.rule("IDX-147")
def test_what_does_not_fit_is_dropped_and_counted() -> None:
    credited = Credits(most=5)
    for _ in range(3):
        credited.add(REQUEST, decision(run(R1, 2)))
    assert totals(credited) == {(R1, *key_of(CHAIN[0])): 2, (R1, *key_of(CHAIN[1])): 2}
    assert credited.dropped == 2
    credited.add(REQUEST, decision(run(R1, 3)))
    assert totals(credited).total() == 3


def test_many_keys_become_several_items() -> None:
    credited = Credits()
    chain = [number.to_bytes(8, "big") for number in range(10)]
    credited.add(REQUEST, decision(run(R1, 10), inputs=Inputs(chain, [16] * 10)))
    assert totals(credited, most_keys=3) == {(R1, *key_of(hash_)): 1 for hash_ in chain}
