"""The event path of one replica without its sockets: message parts in, reports and replay requests out.

It puts the pure steps behind each other: frame, order (`source`), decode (`events`), map (`mapping`).
One instance has one source a data-parallel rank, unless ranks are replicas of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from inferencecache.kvevent_subscriber.diary import Diary
from inferencecache.kvevent_subscriber.events import (
    AllCleared,
    Event,
    Malformed,
    UnreadableBatchError,
    decode_batch,
)
from inferencecache.kvevent_subscriber.frames import read_message, read_reply
from inferencecache.kvevent_subscriber.mapping import Mapper, MappingSettings, StateGroup
from inferencecache.kvevent_subscriber.reports import AllKnown, Report
from inferencecache.kvevent_subscriber.source import (
    Action,
    Apply,
    AskReplay,
    Known,
    Lost,
    Restart,
    Source,
    StopReplay,
)

OnGap = Literal["mark", "keep", "clear"]


class Tell(NamedTuple):
    """Pass these reports on, in order; a `Restarted` is alone, since a new incarnation begins with it."""

    reports: list[Report]


class ProcessChanged(NamedTuple):
    """The engine behind a source is another process than before; what it was known by is void."""

    lane: int
    reason: str


class OpenReplay(NamedTuple):
    """Ask the replay socket of a source for everything from `first` on, in place of an earlier exchange."""

    lane: int
    first: int


class CloseReplay(NamedTuple):
    """End the exchange with the replay socket of a source."""

    lane: int


Effect = Tell | ProcessChanged | OpenReplay | CloseReplay


class EventPath:
    """Everything between an engine's sockets and the producer. Times are seconds of a monotonic clock."""

    def __init__(
        self,
        mapping: MappingSettings,
        diary: Diary,
        *,
        lanes: int = 1,
        on_gap: OnGap = "mark",
        replays: bool = True,
        replay_timeout_s: float = 2.0,
    ) -> None:
        self._diary = diary
        self._on_gap: OnGap = on_gap
        self._sources = tuple(
            Source(diary, replays=replays, replay_timeout_s=replay_timeout_s) for _ in range(lanes)
        )
        self._mapper = Mapper(mapping, diary, lanes)
        self.last_event_time_s = 0.0

    @property
    def certain(self) -> bool:
        """Is what was told true of the engine now, as far as anybody can know?"""
        return all(source.certain for source in self._sources)

    @property
    def all_known(self) -> bool:
        """Is everything told that the engine holds?"""
        return all(source.all_known for source in self._sources)

    @property
    def lanes(self) -> int:
        """Number of sources."""
        return len(self._sources)

    @property
    def held_messages(self) -> int:
        """Messages that wait for a replay, of the source where most do."""
        return max(source.held_messages for source in self._sources)

    @property
    def held_bytes(self) -> int:
        """Payloads of messages that wait for a replay, of the source where they are most."""
        return max(source.held_bytes for source in self._sources)

    @property
    def held_blocks(self) -> int:
        """Blocks of stores that wait for their parent, of the source where most do."""
        return self._mapper.held_blocks

    @property
    def held_tokens(self) -> int:
        """Tokens of these, of the source where they are most."""
        return self._mapper.held_tokens

    @property
    def tracked_blocks(self) -> int:
        """Number of remembered hashes."""
        return self._mapper.tracked_blocks

    @property
    def block_size(self) -> int:
        """Tokens a block of the first source, 0 while not known."""
        return self._mapper.block_size(0)

    def message(self, lane: int, parts: Sequence[bytes], now: float) -> list[Effect]:
        """A live message of a source."""
        frame = read_message(parts)
        return [] if frame is None else self._carry_out(lane, self._sources[lane].message(frame, now), now)

    def reply(self, lane: int, parts: Sequence[bytes], now: float) -> list[Effect]:
        """A message from a source's replay socket."""
        reply = read_reply(parts)
        return [] if reply is None else self._carry_out(lane, self._sources[lane].reply(reply, now), now)

    def connected(self, lane: int, now: float, same_process: bool | None) -> list[Effect]:
        """A source's live socket has a connection; see `Source.connected`."""
        return self._carry_out(lane, self._sources[lane].connected(now, same_process), now)

    def disconnected(self, lane: int, now: float) -> list[Effect]:
        """A source's live socket lost its connection."""
        return self._carry_out(lane, self._sources[lane].disconnected(now), now)

    def reconnecting(self, lane: int, now: float) -> list[Effect]:
        """A source's live socket has a connection again; `connected` will say to whom."""
        return self._carry_out(lane, self._sources[lane].reconnecting(), now)

    def restarted(self, lane: int, now: float) -> list[Effect]:
        """The engine's metrics show another process than the one that this source was heard from."""
        return self._carry_out(lane, self._sources[lane].restarted(now), now)

    def tick(self, now: float) -> list[Effect]:
        """Time passed."""
        effects = _told(self._mapper.tick(now))
        for lane, source in enumerate(self._sources):
            effects += self._carry_out(lane, source.tick(now), now)
        return effects

    def wake_at(self) -> float | None:
        """When `tick` has something to do."""
        times = [self._mapper.wake_at(), *(source.wake_at() for source in self._sources)]
        return min((time for time in times if time is not None), default=None)

    def full_state(self, now: float) -> list[StateGroup]:
        """All that is known, to tell a log that knows nothing."""
        groups = self._mapper.full_state(now)
        if self.all_known:
            groups.append(StateGroup(now, [AllKnown()]))
        return groups

    def _carry_out(self, lane: int, actions: Sequence[Action], now: float) -> list[Effect]:
        effects: list[Effect] = []
        # The source is ahead: what it says of itself is of the process after the last restart.
        restarts = sum(type(action) is Restart for action in actions)
        for action in actions:
            match action:
                case Apply(payload):
                    effects.extend(self._apply(lane, payload, now, is_of_present_process=not restarts))
                case Restart(reason):
                    restarts -= 1
                    self._diary.warn("engine_restart", "the engine is another process now", why=reason)
                    effects.append(ProcessChanged(lane, reason))
                    effects.extend(_told(self._mapper.restart(lane)))
                case Lost(messages):
                    if not restarts:
                        self._sources[lane].fell_short()
                    effects.extend(_told(self._lose(lane, messages)))
                case Known():
                    if self.all_known:
                        effects.append(Tell([AllKnown()]))
                case AskReplay(first):
                    effects.append(OpenReplay(lane, first))
                case StopReplay():
                    effects.append(CloseReplay(lane))
        return effects

    def _apply(self, lane: int, payload: bytes, now: float, *, is_of_present_process: bool) -> list[Effect]:
        try:
            batch = decode_batch(payload)
        except UnreadableBatchError as error:
            self._diary.count("malformed_batches", reason=error.reason)
            self._diary.warn(
                f"malformed_batches:{error.reason}",
                "a message that cannot be read was dropped",
                why=error.reason,
                length=error.length,
            )
            if is_of_present_process:
                self._sources[lane].fell_short()
            return _told(self._answer_loss(lane, 1))
        self.last_event_time_s = max(self.last_event_time_s, batch.time_s)
        effects = _told(self._mapper.apply(lane, batch, now))
        source, clear = self._sources[lane], _last_clear(batch.events)
        if clear is not None and is_of_present_process:
            source.cleared()
        # A removal that cannot be read would leave its blocks credited for ever.
        since = batch.events if clear is None else batch.events[clear:]
        if any(isinstance(event, Malformed) and event.takes_away for event in since):
            if is_of_present_process:
                source.fell_short()
            effects += _told(self._answer_loss(lane, 1))
        return effects

    def _lose(self, lane: int, messages: int) -> list[Report]:
        self._diary.warn(
            "sequence_gap",
            "messages of the engine are lost",
            source=lane,
            missed=messages,
            on_gap=self._on_gap,
        )
        return self._answer_loss(lane, messages)

    def _answer_loss(self, lane: int, messages: int) -> list[Report]:
        match self._on_gap:
            case "mark":
                return self._mapper.doubt(lane, messages)
            case "clear":
                return self._mapper.restart(lane)
            case "keep":
                return []


def _last_clear(events: Sequence[Event]) -> int | None:
    """Index of the last event that emptied the engine's cache."""
    return max((index for index, event in enumerate(events) if type(event) is AllCleared), default=None)


def _told(reports: list[Report]) -> list[Effect]:
    return [Tell(reports)] if reports else []
