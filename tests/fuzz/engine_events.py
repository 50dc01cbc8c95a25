"""What a sidecar hears from an engine: frames, events, replays and broken connections, through to records.

Nothing that an engine sends may raise, put token ids or payload into the log, or become a record that the
fold finds malformed. What is told step by step and what is told as a full state must say the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from inferencecache.core.index.fold import Fold, LogMessage
from inferencecache.kvevent_subscriber.diary import Diary
from inferencecache.kvevent_subscriber.event_path import Effect, EventPath, OnGap, Tell
from inferencecache.kvevent_subscriber.events import Stored, UnreadableBatchError, decode_batch
from inferencecache.kvevent_subscriber.frames import END_OF_REPLAY
from inferencecache.kvevent_subscriber.mapping import MappingSettings
from inferencecache.kvevent_subscriber.records import records_of
from inferencecache.kvevent_subscriber.reports import Report, Restarted
from inferencecache.kvevent_subscriber.warning_log import WarningLog
from inferencecache.schemas import records
from inferencecache.schemas.ids import AdapterId, HashScheme, Incarnation, ModelId, ReplicaId, TenantId
from inferencecache.schemas.positions import Position
from inferencecache.schemas.senders import ReplicaSender
from tests.fuzz.mutation import Message, join, mutate_msgpack, script_mutation, script_parts, split
from tests.fuzz.target import Target
from tests.fuzz.worlds import Hold, state_of

_FRAMES: Final = Path(__file__).parents[1] / "data" / "engine_frames"
_SCHEME: Final = HashScheme("vllm")
_SENDER: Final = ReplicaSender(TenantId("t"), ModelId("m"), ReplicaId("r"))
_LEAST_SECRET: Final = 100_000
"""Smaller token ids are not told from other numbers of the log."""
_MOST_TEXT: Final = 100
_COUNTS: Final = frozenset({"missed", "length"})
"""Fields that count what a script can have any number of, a token id's as well."""
_STEPS_S: Final = (0.0, 0.001, 1.0, 5.0, 31.0, 61.0, 3600.0, 0.0)
_SETTINGS: Final[tuple[tuple[MappingSettings, OnGap, int, bool], ...]] = (
    (MappingSettings(), "mark", 1, True),
    (MappingSettings(unknown_parent="drop", max_tracked_blocks=3), "mark", 1, False),
    (MappingSettings(unknown_parent="root", block_size=16), "clear", 1, False),
    (MappingSettings(ignore_block_removed=True), "keep", 1, True),
    (MappingSettings(cpu_medium="shared", lora_names_from_engine=False), "mark", 2, True),
    (MappingSettings(lora_adapter_names={1: AdapterId("a"), 7: AdapterId("é")}), "clear", 2, True),
    (MappingSettings(unknown_parent="root", max_tracked_blocks=1), "mark", 2, False),
    (MappingSettings(ignore_block_removed=True, max_tracked_blocks=5), "mark", 1, True),
)
"""Chosen by the kind of a script's first message. Kind = action + 8 * lane + 16 * how time moves."""


def run(data: bytes) -> None:
    messages = split(data)
    mapping, on_gap, lanes, replays = _SETTINGS[messages[0].kind >> 4 & 7 if messages else 0]
    diary = Diary()
    path = EventPath(mapping, diary, lanes=lanes, on_gap=on_gap, replays=replays)
    told = _Told()
    shown = _Shown()
    warnings = WarningLog(shown)
    numbers = [0] * lanes
    now = 100.0
    for kind, payload in messages:
        lane = (kind >> 3 & 1) % lanes
        now += _STEPS_S[kind >> 4 & 7]
        told.take(_heard(path, lane, kind & 7, payload, now, numbers))
        told.take(path.tick(now))
        warnings.show(diary.drain(), now)
        assert path.tracked_blocks <= mapping.max_tracked_blocks
    for _ in range(3):  # what waits for a replay waits no longer
        now += _STEPS_S[5]
        told.take(path.tick(now))
    shown.check(_secrets(messages))
    anew = _Told()
    for group in path.full_state(now):
        assert group.observed_at <= now
        anew.tell(group.reports)
    assert anew.certain == told.certain, "a full state is certain of something else than what was told"


def _heard(
    path: EventPath, lane: int, action: int, payload: bytes, now: float, numbers: list[int]
) -> list[Effect]:
    match action:
        case 4:
            return path.message(lane, [part for _, part in split(payload)], now)
        case 5:
            return path.reply(lane, [b"", payload[:8], payload[8:]], now)
        case 6:
            return path.message(lane, [b"kv", payload[:8], payload[8:]], now)
        case 7:
            return _happened(path, lane, payload[:1], now)
        case _:
            number = numbers[lane]
            numbers[lane] += 1
            return path.message(lane, [b"kv", number.to_bytes(8, "big"), payload], now)


def _happened(path: EventPath, lane: int, what: bytes, now: float) -> list[Effect]:
    match what:
        case b"d":
            return path.disconnected(lane, now)
        case b"r":
            return path.reconnecting(lane, now)
        case b"n":
            return path.restarted(lane, now)
        case b"e":
            return path.reply(lane, [END_OF_REPLAY.to_bytes(8, "big"), b""], now)
        case b"y" | b"z":
            return path.connected(lane, now, what == b"y")
        case _:
            return path.connected(lane, now, None)


class _Told:
    """A log that holds what was told, and its fold."""

    def __init__(self) -> None:
        self.fold = Fold(1 << 8)
        self._lives = 0
        self._begin()

    @property
    def certain(self) -> Mapping[Hold, tuple[int, int]]:
        """Token count and tier of what is certainly held."""
        holds = state_of(self.fold.view).holds
        return {hold: (count, mark >> 1) for hold, (count, _, mark) in holds.items() if not mark & 1}

    def _begin(self) -> None:
        self._lives += 1
        self._sequence = 0
        self._append((records.Begin(),))

    def take(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Tell):
                self.tell(effect.reports)

    def tell(self, reports: list[Report]) -> None:
        if any(isinstance(report, Restarted) for report in reports):
            assert len(reports) == 1, "a restart takes other reports with it"
            self._begin()
        elif reports:
            self._append(tuple(records_of(reports, _SCHEME)))

    def _append(self, told: tuple[records.AnyRecord, ...]) -> None:
        self._sequence += 1
        batch = records.Batch(Incarnation(f"life-{self._lives}"), self._sequence, 0, told)
        position = Position(self.fold.view.log.sequence + 1)
        decoded = records.decode_batch(records.encode_batch(batch))
        assert decoded.batch == batch
        folded = self.fold.fold(LogMessage(position, _SENDER, decoded))
        assert (folded.dropped, folded.malformed, folded.misplaced, folded.unknown) == (None, 0, 0, 0)


class _Shown:
    """A logger that keeps the lines."""

    def __init__(self) -> None:
        self.lines: list[dict[str, object]] = []

    def warning(self, event: str, *args: object, **fields: object) -> None:
        assert not args
        self.lines.append({"event": event, **fields})

    def check(self, secrets: set[str]) -> None:
        """Lines are short, hold numbers and texts only, and none of the secrets."""
        for line in self.lines:
            for name, value in line.items():
                assert value is None or isinstance(value, (str, int, float)), f"{name} is {type(value)}"
                assert not isinstance(value, str) or len(value) <= _MOST_TEXT, f"{name} is long"
                assert name in _COUNTS or str(value) not in secrets, f"{name} tells a token id"


def _secrets(messages: list[Message]) -> set[str]:
    """Token ids that nothing else in the script is equal to."""
    tokens: set[int] = set()
    others: set[int | None] = set()
    for _, payload in messages:
        for start in (0, 8):
            try:
                batch = decode_batch(payload[start:])
            except UnreadableBatchError:
                continue
            assert batch.time_us >= 0
            for event in batch.events:
                if isinstance(event, Stored):
                    tokens |= {token for token in event.tokens if token >= _LEAST_SECRET}
                    others |= {event.lora_id, event.block_size, event.group}
    return {str(token) for token in tokens - others}


# ------------------------------------------------------------------------------------------ inputs


def _seeds() -> list[bytes]:
    scripts = []
    for path in sorted(_FRAMES.glob("[0-9]*.json")):
        recorded: dict[str, Any] = json.loads(path.read_text())
        live = [_parts(message) for message in recorded.get("messages", recorded.get("live", ()))]
        replies = [_parts(message) for message in recorded.get("replies", ())]
        scripts.append([Message(4, join([Message(0, part) for part in parts])) for parts in live])
        scripts.append([Message(0, b"".join(parts[-1:])) for parts in live])
        if replies:
            answers = [Message(5, b"".join(parts[-2:])) for parts in replies]
            scripts.append([Message(6, b"".join(parts[-2:])) for parts in live] + answers)
    scripts += [[Message(0, payload)] for payload in _made()]
    random = Random(3)
    everything = [message for script in scripts for message in script]
    for number in range(100):
        script = [*random.choice(scripts), *random.choice(scripts), *random.sample(everything, 2)]
        script.insert(
            random.randrange(1, len(script)), Message(7, random.choice((b"d", b"r", b"n", b"y", b"c")))
        )
        if number % 2:
            script.insert(1, Message(7, b"e"))
        moved = [Message(kind & 15 | random.choice((0, 16, 16, 32, 48)), payload) for kind, payload in script]
        scripts.append([Message(moved[0].kind & 15 | number % 8 << 4, moved[0].payload), *moved[1:]])
    return [join(script) for script in scripts]


def _parts(message: dict[str, Any]) -> list[bytes]:
    return [bytes.fromhex(part) for part in message["parts_hex"]]


def _made() -> Iterator[bytes]:
    """Batches with token ids that would be seen in a log."""
    tokens = [3_777_700_000 + number for number in range(32)]
    named: dict[str, Any] = {"block_hashes": [5, 6], "token_ids": tokens, "block_size": 16, "medium": "GPU"}
    changes: tuple[dict[str, Any], ...] = (
        *({}, {"lora_name": "x"}, {"lora_id": 7}, {"block_size": 8}, {"medium": "FLOPPY"}, {"token_ids": []}),
    )
    for change in changes:
        yield msgspec.msgpack.encode([1.5, [{"type": "BlockStored", **named, **change}], 0])
    yield msgspec.msgpack.encode([1e308, [["BlockStored", [b"h", b"i"], None, tokens, 16]], 0])


def _mutate(random: Random, payload: bytes) -> bytes:
    """Change the MessagePack that a payload is, has behind a number, or has among its parts."""
    match random.randrange(4):
        case 0:
            return payload[:8] + mutate_msgpack(random, payload[8:])
        case 1:
            return _mutate_parts(random, payload)
        case _:
            return mutate_msgpack(random, payload)


_mutate_parts: Final = script_mutation(mutate_msgpack, lambda _: 0)
TARGET: Final = Target(
    run, _seeds, script_mutation(_mutate, lambda random: random.randrange(128)), script_parts
)
