"""One log folded twice, by the model and by the product, which must never differ.

A trial is a list of steps. Steps are plain data whose `repr` Python reads back, so a list of them
that shows a difference is a script that reproduces it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from random import Random
from typing import NamedTuple, TypeVar

import msgspec

from inferencecache.core.index.fold import Dropped, Fold, LogMessage
from inferencecache.core.index.reading import SILENT_US, Scope
from inferencecache.core.index.snapshot import encode_snapshot, load_fold, load_view
from inferencecache.core.index.view import View
from inferencecache.schemas.deltas import decode_delta, encode_delta
from inferencecache.schemas.ids import PROBE_TENANT, AdapterId, HashScheme, ModelId, TenantId
from inferencecache.schemas.policy import ResolvedPolicy
from inferencecache.schemas.positions import Position
from inferencecache.schemas.records import AnyRecord
from tests.oracle.aggregate import naive_aggregate, product_aggregate
from tests.oracle.digest import access_digest, digest, row_of
from tests.oracle.indexes import product_route
from tests.oracle.model import NaiveFold, Replica, Wanted
from tests.oracle.random_log import ALL, HASHES, Mix, RandomLog
from tests.oracle.routing import Question, naive_route
from tests.oracle.view import NaiveView
from tests.support.fewest import fewest

BLOCK_SIZE = 8
_T = TypeVar("_T")


class Folded(NamedTuple):
    """Fold a message."""

    message: LogMessage


class Asked(NamedTuple):
    """Ask a question, `later_us` after the state's own time."""

    question: Question
    policy: ResolvedPolicy | None
    later_us: int


class AskedAll(NamedTuple):
    """Compare the answers of fold and follower to every question about every key and name there is."""


class Published(NamedTuple):
    """Cut deltas of at most this size and apply them to the follower."""

    max_bytes: int


class Restored(NamedTuple):
    """Go on with a fold that was read from a snapshot of the fold."""


class Reloaded(NamedTuple):
    """Go on with a follower that was read from a snapshot of the fold."""


Step = Folded | Asked | AskedAll | Published | Restored | Reloaded


class DifferenceError(AssertionError):
    """The model and the product differ after `steps`."""

    def __init__(self, steps: Sequence[Step], reason: str) -> None:
        super().__init__(f"after {len(steps)} steps: {reason}")
        self.steps = list(steps)
        self.reason = reason


class Trial:
    """The model, the product's fold, and a follower that knows deltas only.

    `dropped` is why the product dropped the last message as a whole, if it did.
    """

    def __init__(self) -> None:
        self.dropped: Dropped | None = None
        self.naive = NaiveFold()
        self.fold = Fold(1 << 8)
        self.follower = View(1 << 8)

    def take(self, step: Step) -> str | None:
        """Take a step; answers what differs after it."""
        match step:
            case Folded():
                return self._fold(step.message)
            case Asked():
                return self._ask(step)
            case AskedAll():
                return self._ask_everything()
            case Published():
                return self._publish(step.max_bytes)
            case Restored():
                difference = self._publish(1 << 20) if self.naive.owner else self.take(Reloaded())
                self.fold = load_fold(encode_snapshot(self.fold, Position()), 1 << 8)
                self.naive.evictions.clear()
                self.naive.tenant_evictions.clear()
                return difference or self._state()
            case Reloaded():
                self.follower = load_view(encode_snapshot(self.fold, Position()), 1 << 8)
                self.fold.changes.drop_through(self.fold.view.log.sequence)
                return _unequal("follower's digest", digest(self.naive), self.follower.digest)

    def _fold(self, message: LogMessage) -> str | None:
        wanted = self.naive.fold(message)
        folded = self.fold.fold(message)
        self.dropped = folded.dropped
        asked = [
            Wanted(Replica(want.tenant, want.model, want.replica), *msgspec.structs.astuple(want.request))
            for want in folded.wanted
        ]
        return _unequal("wanted", wanted, asked) or self._state()

    def _state(self) -> str | None:
        naive, view = self.naive, self.fold.view
        rows = {(row.name, row) for row in (row_of(of, row) for of, row in naive.rows.items())}
        return (
            _unequal("position", naive.position, view.log)
            or _unequal("owner", (naive.owner, naive.owner_epoch), (view.owner, view.owner_epoch))
            or _unequal("log epoch", naive.log_epoch, view.log_epoch)
            or _unequal("time", naive.time_us, view.time_us)
            or _unequal("rows", rows - view.rows.items(), view.rows.items() - rows)
            or _unequal("entries", entries(naive), view.entries)
            or _unequal("digest", digest(naive), view.digest)
            or _unequal("access digest", access_digest(naive), view.access_digest)
            or _unequal("evictions", _counted(naive.evictions), _counted(self.fold.evictions))
            or _unequal(
                "tenant evictions", _counted(naive.tenant_evictions), _counted(self.fold.tenant_evictions)
            )
        )

    def _ask(self, asked: Asked) -> str | None:
        question, policy, later_us = asked
        view = NaiveView(self.naive)
        now_us = view.time_us + later_us
        expected = naive_route(view, policy, question, now_us, block_size=BLOCK_SIZE)
        answer = product_route(self.fold.view, policy, question, now_us, block_size=BLOCK_SIZE)
        return _unequal("answer", expected, answer)

    def _ask_everything(self) -> str | None:
        if (difference := self._publish(1 << 20)) is not None:
            return difference
        answers = everything(NaiveView(self.naive), self.naive)
        for who, view in (("fold", self.fold.view), ("follower", self.follower)):
            if view is self.follower and view.log != self.fold.view.log:
                continue
            for (about, expected), (_, answer) in zip(answers, everything(view, self.naive), strict=True):
                if (difference := _unequal(f"{who}'s {about}", expected, answer)) is not None:
                    return difference
            aggregate = naive_aggregate(self.naive), product_aggregate(view)
            if (difference := _unequal(f"{who}'s aggregate", *aggregate)) is not None:
                return difference
        return None

    def _publish(self, max_bytes: int) -> str | None:
        if self.naive.owner == "":
            return None
        pieces = list(self.fold.changes.cut(self.follower.log, max_bytes))
        for piece in pieces:
            delta = piece.delta(self.fold.view.owner, self.fold.view.owner_epoch)
            self.follower.apply(decode_delta(encode_delta(delta)))
        self.fold.changes.drop_through(self.fold.view.log.sequence)
        follower = self.follower
        return (
            _unequal("follower's position", self.naive.position, follower.log)
            or _unequal("follower's digest", digest(self.naive), follower.digest)
            or _unequal("follower's time", self.naive.time_us, follower.time_us)
            or _unequal("follower's entries", entries(self.naive), follower.entries)
        )


def everything(view: NaiveView | View, naive: NaiveFold) -> list[tuple[str, object]]:
    """The answers of a view to every question that the naive state suggests, and some more."""
    ttl_us, now_us = 10_000_000, naive.time_us
    answers: list[tuple[str, object]] = [("is_empty", view.is_empty())]
    pairs = {(key.tenant, key.model) for key in naive.holds} | {(of.tenant, of.model) for of in naive.rows}
    for tenant, model in sorted(pairs | {("t", "m"), ("other", "m"), ("t", "other")}):
        pair = TenantId(tenant), ModelId(model)
        answers.append((f"has_tenant{pair}", view.has_tenant(pair[0])))
        answers.append((f"has_model{pair}", view.has_model(*pair)))
        answers.append((f"distinct_keys{pair}", view.distinct_keys(*pair)))
        answers.append((f"stats{pair}", sorted(view.stats(*pair).items())))
    for tenant, model, scheme, adapter_ in sorted(
        {key[:4] for key in naive.holds} | {("t", "m", "other", "")}
    ):
        scope = Scope(TenantId(tenant), ModelId(model), HashScheme(scheme))
        adapter = AdapterId(adapter_)
        answers.append((f"members{scope}", list(view.members(scope))))
        answers.append((f"newcomers{scope}", list(view.newcomers(scope, 0))))
        answers.append((f"newcomers{scope, now_us}", list(view.newcomers(scope, now_us - SILENT_US))))
        for chain in HASHES.values():
            runs = view.leading_runs(scope, adapter, chain, now_us, ttl_us)
            answers.append((f"leading_runs{scope, adapter, chain}", sorted(runs)))
            for hash_ in chain:
                hits = view.exact(scope, adapter, hash_, now_us, ttl_us)
                answers.append((f"exact{scope, adapter, hash_}", sorted(hits)))
    return answers


def entries(naive: NaiveFold) -> int:
    """Holds, those of the reserved tenant left out."""
    return sum(key.tenant != PROBE_TENANT for key in naive.holds)


def _counted(counter: Counter[_T]) -> set[tuple[_T, int]]:
    return set((+counter).items())


def _unequal(what: str, expected: object, got: object) -> str | None:
    return None if expected == got else f"{what}: the model says {expected},\n  the product {got}"


def random_steps(random: Random, mix: Mix = ALL) -> Iterator[Step]:
    """Endless steps: mostly messages, now and then a question, a cut or a restart."""
    log = RandomLog(random, mix)
    while True:
        yield Folded(log.message())
        if random.randrange(3) == 0:
            question = log.question()
            yield Asked(question, log.policy(question.tenant), log.later_us())
        if random.randrange(8) == 0:
            yield Published(random.choice((1, 300, 2000, 1 << 20)))
        if random.randrange(150) == 0:
            yield AskedAll()
        if random.randrange(60) == 0:
            yield Restored()
        if random.randrange(60) == 0:
            yield Reloaded()


def run(steps: Iterable[Step]) -> None:
    """Take all steps. Raises `DifferenceError` at the first difference."""
    trial = Trial()
    taken: list[Step] = []
    for step in steps:
        taken.append(step)
        try:
            difference = trial.take(step)
        except Exception as error:  # whatever the product raises is a difference
            raise DifferenceError(taken, f"{type(error).__name__}: {error}") from error
        if difference is not None:
            raise DifferenceError(taken, difference)


def shortest(failing: Sequence[Step]) -> list[Step]:
    """A part of the steps, in their order, that still differs and of which nothing can be left out."""
    steps = fewest(list(failing), _differs)
    for number, step in enumerate(steps):
        if isinstance(step, Folded) and step.message.batch is not None:
            differs = partial(_differs_with, steps, number)
            steps[number] = _with_records(step, fewest(list(step.message.batch.batch.records), differs))
    return steps


def _differs_with(steps: list[Step], number: int, records: list[AnyRecord]) -> bool:
    step = steps[number]
    assert isinstance(step, Folded)
    return _differs([*steps[:number], _with_records(step, records), *steps[number + 1 :]])


def _with_records(step: Folded, records: Sequence[AnyRecord]) -> Folded:
    decoded = step.message.batch
    assert decoded is not None
    batch = msgspec.structs.replace(decoded.batch, records=tuple(records))
    return Folded(step.message._replace(batch=msgspec.structs.replace(decoded, batch=batch)))


def _differs(steps: Sequence[Step]) -> bool:
    try:
        run(steps)
    except DifferenceError:
        return True
    return False
