"""Products that lack one thing which the protocol rests on: the simulation must find each of them out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

from inferencecache.core.index.fold import Fold
from inferencecache.core.log.publisher import PubAck, Publisher
from inferencecache.core.protocol.position import PositionCheck, StreamEnds
from inferencecache.core.protocol.producer import Action, Producer, Publish
from inferencecache.schemas.budgets import Use
from inferencecache.schemas.deltas import ReplicaName
from inferencecache.schemas.positions import Position, Refs
from inferencecache.schemas.records import Batch

_FOLD: Final = "inferencecache.indexer.partition.Fold"
"""The fold of indexers: the judge keeps the real one."""


@contextmanager
def no_compare_and_set_on_deltas() -> Iterator[None]:
    """Deltas are stored whatever the stream ends with."""
    publish = Publisher.publish

    async def unconditional(self: Publisher, subject: str, payload: bytes, **options: Any) -> PubAck:
        options.pop("expect_last_sequence", None)
        return await publish(self, subject, payload, **options)

    with patch.object(Publisher, "publish", unconditional):
        yield


@contextmanager
def purge_past_the_previous_snapshot() -> Iterator[None]:
    """Only deltas behind the current snapshot are kept."""

    def below_current(refs: Refs) -> int:
        return refs.current.delta.sequence if refs.current is not None and refs.previous is not None else 0

    with patch("inferencecache.core.protocol.snapshots.purge_deltas_below", below_current):
        yield


class _AnySequence(Fold):
    def _judge(self, name: ReplicaName, position: Position, batch: Batch) -> Any:
        life = self.lives.get(name)
        if life is not None and life.incarnation == batch.incarnation:
            life.sequence = batch.sequence - 1
        return super()._judge(name, position, batch)


@contextmanager
def no_sequence_check() -> Iterator[None]:
    """Every batch of the current incarnation counts, whatever its number."""
    with patch(_FOLD, _AnySequence):
        yield


class _AnyOwner(Fold):
    def _is_owners(self, record: Any) -> bool:
        return True


@contextmanager
def owner_records_without_the_claim() -> Iterator[None]:
    """Records of owners count, whoever claimed last."""
    with patch(_FOLD, _AnyOwner):
        yield


@contextmanager
def begin_without_expectation() -> Iterator[None]:
    """A `Begin` is stored whatever has been stored about the replica since."""
    send = Producer._send

    def unconditional(self: Producer, *arguments: Any, **options: Any) -> list[Action]:
        actions = send(self, *arguments, **options)
        return [
            each._replace(expect_last_subject_sequence=None) if isinstance(each, Publish) else each
            for each in actions
        ]

    with patch.object(Producer, "_send", unconditional):
        yield


@contextmanager
def no_proof_of_the_position() -> Iterator[None]:
    """A reader goes on behind a number, whatever message it stands for by now."""
    opened = PositionCheck.opened

    def by_number(self: PositionCheck, ends: StreamEnds) -> Any:
        self.position = Position(min(self.position.sequence, ends.last))
        return opened(self, ends)

    with patch.object(PositionCheck, "opened", by_number):
        yield


@contextmanager
def room_given_before_it_is_there() -> Iterator[None]:
    """All partitions get what is aimed at, at once."""

    def at_once(aims: Sequence[int], whole: int, uses: Sequence[Use]) -> tuple[int, ...]:
        return tuple(aims)

    with patch("inferencecache.core.protocol.budgets._towards", at_once):
        yield
