"""Whatever the log says, a history tells what the model saw happen to each hold, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from random import Random

import pytest

from inferencecache.core.index.fold import Fold
from inferencecache.core.index.keys import Keys
from inferencecache.core.index.observing import Cause, Doubt
from inferencecache.core.index.snapshot import encode_snapshot
from inferencecache.core.replay import Block, History, Moment, Rebuild, Standing
from inferencecache.schemas.deltas import HolderName
from inferencecache.schemas.ids import ModelId, ReplicaId, TenantId
from inferencecache.schemas.positions import Position
from inferencecache.schemas.senders import ReplicaSender
from tests.oracle.history import Noted, NotingFold
from tests.oracle.keys import key_of
from tests.oracle.model import HoldKey
from tests.oracle.random_log import ADAPTERS, HASHES, REPLICAS, SCHEMES, Mix, RandomLog
from tests.oracle.tight import tight

CHAIN = [hash_ for hashes in HASHES.values() for hash_ in hashes]
MESSAGES = 500
TTL_US = 5_000_000
EVERYTHING = {
    *("stored", "refreshed", "moved", "uncertain", "evicted", "not_restated", "cleared", "replaced", "gone"),
    *("ttl", "quota", "cap", "emptied"),
}
WATCHED = [
    ("t", "m", *rest) for rest in product(sorted(set(REPLICAS)), sorted(set(SCHEMES)), sorted(set(ADAPTERS)))
]


class Everyone:
    """Hands what it observes to histories of many replicas."""

    def __init__(self) -> None:
        self.of = {
            each: History(
                ReplicaSender(TenantId(each[0]), ModelId(each[1]), ReplicaId(each[2])), *each[3:], CHAIN
            )
            for each in WATCHED
        }

    def held(self, holder: HolderName, keys: Keys, tier: int, seen_us: int) -> None:
        for history in self.of.values():
            history.held(holder, keys, tier, seen_us)

    def released(self, holder: HolderName, keys: Keys, cause: Cause) -> None:
        for history in self.of.values():
            history.released(holder, keys, cause)

    def cleared(self, holder: HolderName, cause: Cause) -> None:
        for history in self.of.values():
            history.cleared(holder, cause)

    def doubted(self, holder: HolderName, keys: Keys, doubt: Doubt) -> None:
        for history in self.of.values():
            history.doubted(holder, keys, doubt)

    def emptied(self) -> None:
        for history in self.of.values():
            history.emptied()


def noted(moments: Sequence[Moment]) -> list[Noted]:
    """What the model notes too."""
    return [Noted(each.sequence, each.what, each.tier, each.why) for each in moments]


def hold_key(watched: tuple[str, str, str, str, str], hash_: bytes) -> HoldKey:
    tenant, model, replica, scheme, adapter = watched
    return HoldKey(tenant, model, scheme, adapter, *key_of(hash_), replica)


@pytest.mark.parametrize("is_tight", [False, True])
def test_a_history_has_every_moment_of_every_hold_with_its_cause(is_tight: bool) -> None:
    happened = set()
    for seed in range(6):
        log = RandomLog(Random(seed), Mix(wild_clocks=seed % 2 == 0))
        naive, everyone = NotingFold(), Everyone()
        fold = Fold(1 << 8, observer=everyone)
        with tight(is_tight):
            for _ in range(MESSAGES):
                message = log.message()
                naive.fold(message)
                for history in everyone.of.values():
                    history.message_begins(message)
                fold.fold(message)
        for watched, history in everyone.of.items():
            for block, hash_ in enumerate(CHAIN):
                expected = naive.noted.get(hold_key(watched, hash_), [])
                assert noted(history.moments(block)) == expected, (watched, hash_)
                happened |= {each.what for each in expected}
    assert happened == EVERYTHING


@pytest.mark.parametrize("seed", range(3))
def test_a_history_from_a_base_begins_with_what_was_held_there(seed: int) -> None:
    log = RandomLog(Random(seed), Mix(epochs=False))
    messages = [log.message() for _ in range(MESSAGES)]
    half = len(messages) // 2
    naive, fold = NotingFold(), Fold(1 << 8)
    for message in messages[:half]:
        naive.fold(message)
        fold.fold(message)
    snapshot = list(encode_snapshot(fold, Position(), "1.0"))
    at_base = {key: hold.tier for key, hold in naive.holds.items()}
    naive.noted.clear()
    histories = {watched: Everyone().of[watched] for watched in WATCHED[::3]}
    rebuilds = [Rebuild("1.0", fold.view.log, snapshot, history) for history in histories.values()]
    for message in messages[half:]:
        naive.fold(message)
        for rebuild in rebuilds:
            rebuild.take(message)
    compared = 0
    for watched, history in histories.items():
        for block, hash_ in enumerate(CHAIN):
            key = hold_key(watched, hash_)
            tier = at_base.get(key)
            first = [] if tier is None else [Noted(half, "in_base", tier)]
            told = [each for each in history.moments(block) if each.what != "not_counted"]
            assert noted(told) == first + naive.noted.get(key, [])
            compared += len(told)
    assert compared > 100


@pytest.mark.parametrize("seed", range(3))
def test_where_a_history_ends_is_what_the_model_holds(seed: int) -> None:
    log = RandomLog(Random(seed), Mix(epochs=False, evictions=False))
    naive, everyone = NotingFold(), Everyone()
    fold = Fold(1 << 8, observer=everyone)
    held = 0
    for number in range(MESSAGES):
        message = log.message()
        naive.fold(message)
        fold.fold(message)
        if number % 100 == 99:
            for watched, history in everyone.of.items():
                held += compared(naive, watched, history.blocks(fold.view, naive.time_us, TTL_US))
    assert held > 20


def compared(naive: NotingFold, watched: tuple[str, str, str, str, str], blocks: list[Block]) -> int:
    """How many of the blocks are held; all are as the model has them."""
    held = 0
    standings = {number: block.standing for block in blocks for number in range(block.first, block.last + 1)}
    for number, hash_ in enumerate(CHAIN, 1):
        key, standing = hold_key(watched, hash_), standings[number]
        hold = naive.holds.get(key)
        if hold is None:
            assert standing == Standing()
        else:
            age_us = naive.time_us - naive.effective_us(key)
            assert standing == Standing(True, age_us >= TTL_US, hold.uncertain, hold.tier, age_us)
            held += 1
    return held
