"""What must hold in the end: the index is what the engines hold, and every view is the fold of the log."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise
from typing import Final

import grpc.aio

from inferencecache.cli.stack.plan import HASH_SCHEME, TENANT
from inferencecache.core.fingerprint import prefix_digests
from inferencecache.core.index.reading import Scope
from inferencecache.schemas.deltas import Delta
from inferencecache.schemas.digests import digest_text
from inferencecache.schemas.ids import HashScheme, ModelId, TenantId
from inferencecache.v1alpha1.inferencecache_pb2_grpc import InferenceCacheStub
from tests.oracle.digest import access_digest, digest
from tests.oracle.model import DEFAULT_TTL_US
from tests.oracle.view import NaiveView
from tests.support.fleet.asking import MODEL, ask, matched_by
from tests.support.fleet.holds import Holds, differences, doubted, folded_holds, true_holds
from tests.support.fleet.processes import BLOCK_SIZE, Fleet
from tests.support.fleet.witness import PartitionCopy, Witness
from tests.support.waiting import eventually

SETTLING_LIMIT_S: Final = 90.0
"""Covers the longest back-off of anything that reconnects."""
SCOPE: Final = Scope(TenantId(TENANT), ModelId(MODEL), HashScheme(HASH_SCHEME))


async def index_equals_engines(
    fleet: Fleet, witness: Witness, *, within_s: float = SETTLING_LIMIT_S
) -> Holds:
    """Wait until the fold of the log holds what the idle engines hold, all of it certain; what that is."""
    truth = await true_holds(fleet.engines, fleet.http)
    different: list[str] = []

    def is_equal() -> bool:
        nonlocal different
        folds = witness.folds
        different = differences(truth, folded_holds(folds)) + doubted(folds)
        return not different

    with contextlib.suppress(AssertionError):
        await eventually(is_equal, within_s=within_s)
    assert not different, "\n".join(different)
    assert truth == await true_holds(fleet.engines, fleet.http), "the engines were not idle"
    return truth


async def views_agree(fleet: Fleet, witness: Witness, *, ever: bool = True) -> list[tuple[int, Delta]]:
    """Wait until every running router has told of a view that has all of the log as it is now; then compare
    what routers told with what owners told in deltas: ever, or since that moment. Returns the partitions and
    deltas that were compared.

    A storage that was replaced by an older copy gives numbers of deltas a second time; then not ever.
    """
    ends = {
        copy.key: copy.messages[-1].position.sequence if copy.messages else 0 for copy in witness.partitions
    }

    async def all_have_told(since: float) -> None:
        for copy in witness.partitions:
            await eventually(
                lambda copy=copy: (
                    len(_routers_at(witness, copy, ends[copy.key], since))  # type: ignore[misc]
                    >= len(fleet.running("router"))
                ),
                within_s=SETTLING_LIMIT_S,
                what=f"a current view of {copy.key} in every router",
            )

    await all_have_told(time.monotonic())
    since = 0.0
    if not ever:
        since = time.monotonic()
        await all_have_told(since)
    return [
        (number, delta)
        for number, copy in enumerate(witness.partitions)
        for delta in _viewed(witness, copy, since)
    ]


async def views_equal_log(fleet: Fleet, witness: Witness, *, ever: bool = True) -> int:
    """`views_agree`, and each of those deltas agrees with the model's fold. Returns how many there were."""
    viewed = await views_agree(fleet, witness, ever=ever)
    for number, copy in enumerate(witness.partitions):
        deltas = [delta for of, delta in viewed if of == number]
        folded = _digests_at(copy, {delta.to.sequence for delta in deltas})
        for delta in deltas:
            assert (delta.digest, delta.access_digest) == folded[delta.to.sequence], (
                f"partition {copy.key}: the model differs after message {delta.to.sequence}"
            )
    return len(viewed)


def _routers_at(witness: Witness, copy: PartitionCopy, end: int, since: float) -> set[str]:
    """Routers that told, since then, of a view of the log up to `end` or more."""
    current = {
        (told.delta.log_epoch, told.number, digest_text(told.delta.digest))
        for told in copy.deltas
        if told.delta.to.sequence >= end
    }
    return {
        row.id
        for row in witness.routers(since)
        if (view := row.partitions.get(copy.key)) and (view.log_epoch, view.delta, view.digest) in current
    }


def _viewed(witness: Witness, copy: PartitionCopy, since: float) -> list[Delta]:
    """Deltas at which a router stood, with the digest that they tell."""
    told = {(each.delta.log_epoch, each.number): each.delta for each in copy.deltas}
    viewed = {}
    for row in witness.routers(since):
        view = row.partitions.get(copy.key)
        if view is None or view.digest is None or (view.log_epoch, view.delta) not in told:
            continue
        delta = told[view.log_epoch, view.delta]
        assert view.digest == digest_text(delta.digest), (
            f"router {row.id} differs from partition {copy.key} at delta {view.delta}"
        )
        viewed[view.log_epoch, view.delta] = delta
    return list(viewed.values())


def _digests_at(copy: PartitionCopy, sequences: AbstractSet[int]) -> dict[int, tuple[int, int]]:
    """The model's digests after these messages."""
    found = {}
    fold, behind = copy.fold_before(min(sequences))
    for message in behind:
        fold.fold(message)
        if message.position.sequence in sequences:
            found[message.position.sequence] = digest(fold), access_digest(fold)
    return found


async def answers_equal_log(fleet: Fleet, witness: Witness, prompts: Sequence[Sequence[int]]) -> int:
    """Ask every running router for prompts: it must find what the model finds. How many had a match?"""
    view = NaiveView(*witness.folds)
    matches = 0
    for router in fleet.routers:
        if router.name not in fleet.running("router"):
            continue
        async with grpc.aio.insecure_channel(router.grpc) as channel:
            stub = InferenceCacheStub(channel)
            for prompt in prompts:
                answer = await ask(stub, prompt)
                hashes = prefix_digests(prompt, BLOCK_SIZE)
                runs = view.leading_runs(SCOPE, "", hashes, view.time_us, DEFAULT_TTL_US)
                expected = {run.replica: run.blocks * BLOCK_SIZE for run in runs}
                found = matched_by(answer)
                assert found.items() <= expected.items(), f"{router.name} finds {found}, the model {expected}"
                matches += bool(found)
    return matches


def breaks(copy: PartitionCopy) -> list[str]:
    """Where one delta is not the continuation of the one before it, or an earlier owner speaks again."""
    found = []
    for (number, before), (following, after) in pairwise(copy.deltas):
        if before.log_epoch != after.log_epoch:
            continue
        if following != number + 1 or after.from_ != before.to:
            found.append(
                f"{copy.key}: delta {following} begins at {after.from_}, {number} ends at {before.to}"
            )
        if after.owner_epoch < before.owner_epoch:
            found.append(f"{copy.key}: delta {following} is of owner epoch {after.owner_epoch}")
    return found
