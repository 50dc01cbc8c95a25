"""From a base to a point: one partition, folded message by message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from inferencecache.cli.connected import CommandError
from inferencecache.cli.replaying.source import Base, Source, UnusableBaseError
from inferencecache.core.index.fold import Folded, LogMessage
from inferencecache.core.index.snapshot import UnreadableSnapshotError
from inferencecache.core.log.subjects import partition_key
from inferencecache.core.partitions.messages import log_message
from inferencecache.core.replay import AtSequence, AtTime, History, Point, RawMessage, Rebuild
from inferencecache.schemas.positions import Position

Advance = Callable[[int, int], None]
"""Is told the sequence that was reached, and the last one."""


class NoBaseError(CommandError):
    """What was asked for lies before anything that can be rebuilt, or behind nothing that can be read."""

    def __init__(self, partition: int, oldest: Base | None, notes: Sequence[str]) -> None:
        if notes:
            text = "no base could be read"
        elif oldest is None:
            text = "no snapshot is left that belongs to what the log still has; wait for the next one"
        else:
            text = (
                f"the oldest base is {oldest.name}, at message {oldest.at.sequence} of "
                f"{moment(oldest.at.time_ns)}, and what was before it cannot be rebuilt; choose a later point"
            )
        super().__init__("\n".join([*notes, f"partition {partition}: {text}"]))


class ReversedSpanError(CommandError):
    """A span begins behind its end."""


class Span(NamedTuple):
    """What lies behind `since` and not behind `until`. Without `since` a replay begins as near to the end as
    it can, or, where the way matters, `from_oldest`, as far back as it can.
    """

    since: Point | None = None
    until: Point | None = None
    from_oldest: bool = False


class Begun(NamedTuple):
    """The replay of a partition at its base, of which `pieces` are the bytes."""

    partition: int
    base: Base
    pieces: Sequence[bytes]
    rebuild: Rebuild


class Visitor:
    """Goes along with replays, one partition after the other."""

    def begins(self, begun: Begun) -> None:
        """A partition stands at its base."""

    def comes(self, raw: RawMessage) -> None:
        """This message is about to be folded."""

    def folded(self, raw: RawMessage, message: LogMessage, folded: Folded) -> None:
        """This came of it."""


class Replayed(NamedTuple):
    """A replay that has reached its point. `notes` are for who reads the answer."""

    partition: int
    base: Base
    rebuild: Rebuild
    notes: Sequence[str]


async def replay(
    source: Source,
    partition: int,
    span: Span,
    visitor: Visitor | None = None,
    *,
    advance: Advance = lambda *_: None,
    history: Callable[[], History] | None = None,
) -> Replayed:
    """Rebuild a partition. `history` makes an observer of it. Raises `CommandError`.

    Raises `ReversedSpanError` where a sequence and a time turn out to be the wrong way round.
    """
    visitor = visitor or Visitor()
    notes: list[str] = []
    begun = await _begin(source, partition, span, notes, history)
    visitor.begins(begun)
    rebuild, last = begun.rebuild, await source.last(partition)
    if isinstance(span.until, AtSequence) and span.until.sequence > last:
        notes.append(f"partition {partition}: the log ends at message {last}")

    def take(raw: RawMessage) -> None:
        visitor.comes(raw)
        message = log_message(raw.subject, raw.payload, raw.position)
        visitor.folded(raw, message, rebuild.take(message))
        advance(raw.position.sequence, last)

    await source.read(partition, begun.base.at, span.until, take)
    if _is_reversed(span, rebuild.position, last):
        raise ReversedSpanError(f"partition {partition}: the first point is behind the second one")
    return Replayed(partition, begun.base, rebuild, notes)


def _is_reversed(span: Span, reached: Position, last: int) -> bool:
    """Whether a span of a sequence and a time is: it got to `reached`, of a log that ends at `last`."""
    match span.since, span.until:
        case AtSequence(first), AtTime():
            return reached.sequence < min(first, last)
        case AtTime() as since, AtSequence(end):
            return reached.sequence >= end and since.offset(reached) < 0
    return False


async def _begin(
    source: Source, partition: int, span: Span, notes: list[str], history: Callable[[], History] | None
) -> Begun:
    """The best base that can be read."""
    found = await source.bases(partition)
    key = partition_key(source.layout.generation, partition)
    for base in _fitting(found, span):
        try:
            pieces = await base.load()
            # Decoding a large snapshot takes a while, in which the connection wants to be served.
            rebuild = await asyncio.to_thread(
                Rebuild, key, base.at, pieces, history() if history is not None else None
            )
        except (UnusableBaseError, UnreadableSnapshotError) as error:
            notes.append(f"partition {partition}: {base.name} is passed over: {error}")
        else:
            return Begun(partition, base, pieces, rebuild)
    raise NoBaseError(partition, found[0] if found else None, notes)


def _fitting(found: Sequence[Base], span: Span) -> list[Base]:
    """The bases that a replay of the span may begin with, the best first."""
    bounds = [point for point in (span.since, span.until) if point is not None]
    fitting = [base for base in found if all(point.offset(base.at) <= 0 for point in bounds)]
    return fitting if span.from_oldest and span.since is None else fitting[::-1]


def moment(time_ns: int) -> str:
    """A timestamp for people, in UTC to the millisecond."""
    if not time_ns:
        return "-"
    at = datetime.fromtimestamp(time_ns // 1_000_000 / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
