"""The delta decoder and a view: a script of deltas on top of a snapshot.

Whatever a delta says, a view either takes it and stands at the digest it claims, counted from nothing, or
refuses it by `DeltaMismatchError`, unchanged where the error promises that. A view that is loaded anew
follows the honest deltas.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from random import Random
from typing import Final, NamedTuple

import msgspec

from inferencecache.core.index.reading import Scope
from inferencecache.core.index.snapshot import encode_snapshot, load_view
from inferencecache.core.index.view import DeltaMismatchError, View
from inferencecache.schemas.deltas import Delta, UnreadableDeltaError, decode_delta, encode_delta
from inferencecache.schemas.ids import LogEpoch
from inferencecache.schemas.positions import Position
from tests.fuzz.mutation import (
    Message,
    join,
    mutate_bytes,
    mutate_msgpack,
    script_mutation,
    script_parts,
    split,
)
from tests.fuzz.target import Target
from tests.fuzz.worlds import ViewState, digest_of, folded, log, state_of
from tests.oracle.random_log import RandomLog
from tests.unit.schemas.samples import DELTA

_NOW_US: Final = 1 << 50
_TTL_US: Final = 1 << 52


def run(data: bytes) -> None:
    snapshot, honest = _start()
    view = load_view(snapshot, 1 << 8)
    before = state_of(view)
    for _, payload in split(data):
        try:
            delta = decode_delta(payload)
        except UnreadableDeltaError:
            continue
        refused = None
        try:
            view.apply(delta)
        except DeltaMismatchError as error:
            refused = error.kind
        if refused is None:
            before = state_of(view)
            _check(view, before, delta)
        elif refused != "digest":
            assert state_of(view) == before, f"a {refused} left something behind"
        else:
            assert not view.proven
            view = load_view(snapshot, 1 << 8)
            before = state_of(view)
    for delta, epoch, digest in honest:
        if (view.log, view.log_epoch, view.digest) == (delta.from_, epoch, digest):
            view.apply(delta)
            assert view.digest == delta.digest


def _check(view: View, state: ViewState, delta: Delta) -> None:
    """The view is what the delta says, and what it counts along is what it holds."""
    assert (view.digest, view.log, view.time_us) == (delta.digest, delta.to, delta.time_us)
    assert digest_of(state) == view.digest, "the digest is not that of what is held"
    assert len(view.table) == len(state.holds)
    for holder in view.holders.by_number.values():
        name = holder.name
        held = [hold for hold in state.holds if hold.holder == name]
        assert holder.entries == len(held) > 0, f"{name} is said to hold {holder.entries} keys"
        scope = Scope(name.tenant, name.model, name.scheme)
        assert name.replica in view.members(scope)
        assert view.has_tenant(name.tenant)
        assert view.has_model(name.tenant, name.model)
        if name.width == 8:
            chain = [hold.key.to_bytes(8, "big") for hold in held[:4]]
            runs = view.leading_runs(scope, name.adapter, chain, _NOW_US, _TTL_US)
            assert name.replica in {run.replica for run in runs}
    for row_name, row in state.rows.items():
        assert view.stats(row_name.tenant, row_name.model).get(row_name.replica) == row.stats


class _Honest(NamedTuple):
    """A delta of the owner, and where a view stands that it continues."""

    delta: Delta
    log_epoch: LogEpoch
    digest: int


@cache
def _start() -> tuple[tuple[bytes, ...], tuple[_Honest, ...]]:
    """A snapshot, and the deltas of what its owner folded behind it."""
    writer = log()
    fold = folded(writer)
    snapshot = tuple(encode_snapshot(fold, Position()))
    start = fold.view.log
    random_log = RandomLog(Random(5))
    random_log.sequence, random_log.stamp_us = start.sequence, start.time_ns // 1000
    random_log.owner, random_log.owner_epoch = fold.view.owner, fold.view.owner_epoch
    for _ in range(60):
        fold.fold(random_log.message())
    honest = []
    view = load_view(snapshot, 1 << 8)
    epoch, digest = view.log_epoch, view.digest
    for piece in fold.changes.cut(start, 1500):
        delta = piece.delta(fold.view.owner, fold.view.owner_epoch)
        honest.append(_Honest(delta, epoch, digest))
        epoch, digest = delta.log_epoch, delta.digest
    return snapshot, tuple(honest)


def _seeds() -> list[bytes]:
    deltas = [delta for delta, _, _ in _start()[1]]
    scripts = [deltas[:count] for count in range(1, len(deltas) + 1)]
    scripts += [[_honest(delta)] for delta in deltas] * 2
    scripts += [[DELTA], [_honest(DELTA)], [_honest(msgspec.structs.replace(DELTA, emptied=False))]]
    return [join([Message(0, encode_delta(delta)) for delta in script]) for script in scripts]


def _mutate(random: Random, payload: bytes) -> bytes:
    """Change a delta; mostly it then claims the digest that it leads to, and continues the view."""
    changed = mutate_msgpack(random, payload)
    with suppress(UnreadableDeltaError):
        if random.randrange(4):
            changed = encode_delta(_honest(decode_delta(changed)))
    return mutate_bytes(random, changed) if random.randrange(10) == 0 else changed


def _honest(delta: Delta) -> Delta:
    """The delta as the first behind the snapshot, with the right digest if it leads anywhere."""
    view = load_view(_start()[0])
    delta = msgspec.structs.replace(delta, from_=view.log, log_epoch=view.log_epoch or LogEpoch("epoch"))
    try:
        view.apply(delta)
    except DeltaMismatchError as error:
        if error.kind == "digest":
            return msgspec.structs.replace(delta, digest=view.digest)
    return delta


TARGET: Final = Target(run, _seeds, script_mutation(_mutate, lambda _: 0), script_parts)
