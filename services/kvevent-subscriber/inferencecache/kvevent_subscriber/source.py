"""One engine publisher: the order of its messages, what is lost of them, and when it is another process.

Messages come live, numbered by the engine process from 0. A number beyond the next is a gap; one at
or below the last is a duplicate when its bytes are those received under it, and else a sign of
another process [SUB-050..053]. Where the engine replays, live messages wait while it does, so that
everything is applied in order. A connection that was lost may hide a restart: unless the engine's
metrics or the very bytes of its last message prove the same process, it counts as another one.

Nothing here does I/O or reads a clock. Events go in as method calls with the time, actions come out.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from xxhash import xxh3_128_digest

from inferencecache.kvevent_subscriber.diary import Diary
from inferencecache.kvevent_subscriber.frames import END_OF_REPLAY, Frame, Reply

KEPT_DIGESTS: Final = 1024
MAX_HELD_MESSAGES: Final = 10_000
MAX_HELD_BYTES: Final = 16 * 1024 * 1024
REPLAY_LIMIT_S: Final = 30.0
ENGINE_SEND_MARK: Final = 1000
"""Most engines drop what they replay while this many replies wait to be taken [SUB-236]."""
MUTE_PAUSE_S: Final = 60.0
"""A replay socket that answered nothing at all is left alone this long [SUB-058]."""
STOOD_STILL_S: Final = 1.0
"""Who looks for replies so much too late has stood still itself, and has not read what is there."""
FRUITLESS_PAUSE_S: Final = 1.0
"""One that cannot fill gaps is not asked about the next ones this long, doubling up to `MUTE_PAUSE_S`."""

Purpose = Literal["history", "gap", "proof"]
"""Why a replay is asked for: all there is, what a gap swallowed, or that the process is the same."""


class Apply(NamedTuple):
    """Decode and map this payload now."""

    payload: bytes


class Restart(NamedTuple):
    """Everything from this source is void; what follows is of another process."""

    reason: str


class Lost(NamedTuple):
    """This many messages will never come [SUB-056]."""

    messages: int


class AskReplay(NamedTuple):
    """Open the replay socket and ask for every kept message from `first` on."""

    first: int


class StopReplay(NamedTuple):
    """Close the replay socket."""


class Known(NamedTuple):
    """Everything that the process ever sent has been applied."""


Action = Apply | Restart | Lost | AskReplay | StopReplay | Known


class _Replay:
    """An exchange with the replay socket; `unproven` until the copy of the last applied message was seen.

    With `rest_of` it goes on where that exchange ended, in the time that is left of it. `is_excused` once
    that was not silence in which nobody could listen.
    """

    def __init__(self, purpose: Purpose, now: float, rest_of: _Replay | None = None) -> None:
        self.purpose: Purpose = purpose
        self.unproven = purpose != "history" or rest_of is not None
        self.began: float = now if rest_of is None else rest_of.began
        self.heard = now
        self.replies = 0
        self.applied: int = 0 if rest_of is None else rest_of.applied
        self.is_excused = False


class _Process:
    """What is known of the engine process: `last` is the number last received, None before the first.

    Numbers up to `missed_through` are counted as missed, up to `asked_through` asked for once. With
    `catching_up` its history was asked for and no replay has come to its end since. With `in_question`
    a connection was there that may have been to another process.
    """

    def __init__(self) -> None:
        self.last: int | None = None
        self.digests: dict[int, bytes] = {}
        self.missed_through = -1
        self.asked_through = -1
        self.all_known = False
        self.catching_up = False
        self.in_question = False

    def received(self, sequence: int, payload: bytes) -> None:
        """Remember a message under its number [SUB-052]."""
        self.last = sequence
        self.digests[sequence] = xxh3_128_digest(payload)
        if len(self.digests) > KEPT_DIGESTS:
            del self.digests[next(iter(self.digests))]

    def is_copy(self, sequence: int, payload: bytes) -> bool:
        """Are these the bytes that were received under this number?"""
        return self.digests.get(sequence) == xxh3_128_digest(payload)

    def hole_before(self, sequence: int) -> int:
        """How many messages are missing between the last one and this one."""
        return 0 if self.last is None else max(0, sequence - self.last - 1)


class Source:
    """State of one publisher. `replays` says whether it may have a replay socket."""

    def __init__(
        self,
        diary: Diary,
        *,
        replays: bool,
        replay_timeout_s: float = 2.0,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._diary = diary
        self._replays = replays
        self._replay_timeout_s = replay_timeout_s
        self._jitter = jitter
        self._replay: _Replay | None = None
        self._mute_until = self._gaps_unfilled_until = 0.0
        self._history_at: float | None = None
        self._fruitless = 0
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._waiting_bytes = 0
        self._connected: bool | None = None
        self._in_doubt = False
        self._is_deaf = False
        self._process = _Process()

    @property
    def all_known(self) -> bool:
        """Is everything applied that the process ever sent, up to the last message?

        While its history is being replayed, that is still to come.
        """
        return self._process.all_known and not self._process.catching_up

    @property
    def certain(self) -> bool:
        """Is there a connection, and nothing that is still to be found out about what came over it?"""
        return bool(self._connected) and not self._holds

    @property
    def _holds(self) -> bool:
        return self._in_doubt or self._replay is not None

    # ------------------------------------------------------------------ events

    def connected(self, now: float, same_process: bool | None) -> list[Action]:
        """The live socket has a connection; `same_process` is what the engine's metrics prove, if anything.

        The first one asks for everything from number 0, so that what was cached before is known [SUB-060].
        """
        out: list[Action] = []
        if self._connected and not self._in_doubt:
            return out
        self._connected, self._in_doubt, self._is_deaf = True, False, False
        self._mute_until = 0.0
        if self._process.in_question and same_process:
            same_process = None  # the same as over the last connection, whichever that was
        if self._process.last is None:
            self._ask(0, "history", now, out)
        elif same_process is False:
            self._restart("start_time_changed", out)
            self._ask(0, "history", now, out)
        else:
            # Whatever comes under a number at or below the last is another process's now [SUB-053].
            last = self._process.last
            self._process.digests = {last: self._process.digests[last]}
            asked = self._ask(last, "gap" if same_process else "proof", now, out)
            if not asked and not same_process:
                self._restart("unproven_reconnect", out)
        self._drain(now, out)
        return out

    def disconnected(self, now: float) -> list[Action]:
        """The live socket lost its connection: what waits, and what is still to be read, came over it.

        What waits for a replay, or to learn whose it is, cannot be applied without either, nor can what
        is read behind a hole. The next connection asks for all of it again, if it is to the same process;
        until then nothing more is heard.
        """
        out: list[Action] = []
        self._connected = False
        self._history_at = None
        if self._holds:
            self._diary.count("replays_abandoned")
            if self._replay is not None:
                out.append(StopReplay())
                self._process.in_question |= self._replay.purpose == "proof" and self._replay.unproven
            self._replay, self._in_doubt, self._is_deaf = None, False, True
            self._waiting.clear()
            self._waiting_bytes = 0
        return out

    def reconnecting(self) -> list[Action]:
        """There is a connection again, to who knows whom: what comes waits for `connected`."""
        self._in_doubt, self._is_deaf = self._process.last is not None, False
        return []

    def restarted(self, now: float) -> list[Action]:
        """The engine's metrics show another process."""
        out: list[Action] = []
        self._restart("start_time_changed", out)
        self._ask(0, "history", now, out)
        self._drain(now, out)
        return out

    def cleared(self) -> None:
        """The engine emptied its cache: from here on everything is known."""
        self._process.all_known = True
        if self._replay is None:
            self._process.catching_up = False

    def fell_short(self) -> None:
        """Not everything that the engine did is known from here on."""
        self._process.all_known = False

    def message(self, frame: Frame, now: float) -> list[Action]:
        """A live message."""
        self._diary.count("messages")
        if frame.malformed:
            self._diary.count("bad_sequence_frame")
        if frame.sequence is None:
            return [Apply(frame.payload)]
        if self._is_deaf:
            return []
        # A message can be seen before the news of the connection it came over.
        is_first = self._process.last is None and not self._connected
        out = self.connected(now, None) if is_first else []
        self._waiting.append((frame.sequence, frame.payload))
        self._waiting_bytes += len(frame.payload)
        if len(self._waiting) > MAX_HELD_MESSAGES or self._waiting_bytes > MAX_HELD_BYTES:
            self._give_up_waiting(now, out)
        self._drain(now, out)
        return out

    def reply(self, reply: Reply, now: float) -> list[Action]:
        """A message of the replay that was asked for."""
        out: list[Action] = []
        replay = self._replay
        if replay is None:
            return out
        replay.heard = now
        replay.replies += 1
        if reply.sequence == END_OF_REPLAY:
            self._finish_replay(replay, now, out)
        elif not replay.unproven or self._proves(replay, reply, now, out):
            self._take_reply(replay, reply, now, out)
        return out

    def tick(self, now: float) -> list[Action]:
        """Time passed."""
        out: list[Action] = []
        deadline = self.wake_at()
        if deadline is None or now < deadline:
            return out
        if self._replay is None:
            self._ask_history_again(now, out)
        elif not self._stood_still(self._replay, now, now - deadline):
            self._diary.count("replays_timed_out")
            if not self._asks_for_rest(now, out):
                self._break_replay(now, out)
            self._drain(now, out)
        return out

    @property
    def held_messages(self) -> int:
        """Live messages that wait until a replay has told what came before them."""
        return len(self._waiting)

    @property
    def held_bytes(self) -> int:
        """The payloads of these."""
        return self._waiting_bytes

    def wake_at(self) -> float | None:
        """When `tick` has something to do."""
        if self._replay is None:
            return self._history_at
        return min(self._replay.heard + self._replay_timeout_s, self._replay.began + REPLAY_LIMIT_S)

    # ------------------------------------------------------------------ live messages

    def _drain(self, now: float, out: list[Action]) -> None:
        while self._waiting and not self._holds:
            sequence, payload = self._waiting.popleft()
            self._waiting_bytes -= len(payload)
            if not self._take(sequence, payload, now, out):
                self._waiting.appendleft((sequence, payload))
                self._waiting_bytes += len(payload)

    def _take(self, sequence: int, payload: bytes, now: float, out: list[Action]) -> bool:
        """Apply a live message, or ignore it; False when a replay has to come first."""
        process = self._process
        if process.last is not None and sequence <= process.last:
            if process.is_copy(sequence, payload):
                self._diary.count("duplicates")
                return True
            self._restart("sequence_fell", out)
            if sequence > 0 and self._ask(0, "history", now, out):
                return False
        elif process.last is not None and process.hole_before(sequence):
            self._count_missed(sequence)
            if self._replays and not self._connected:
                self._is_deaf = True
                return True
            # A number can be burnt by the engine, so a range is asked for once only [SUB-056].
            if sequence - 1 > process.asked_through and now >= self._gaps_unfilled_until:
                process.asked_through = sequence - 1
                if self._ask(process.last, "gap", now, out):
                    return False
        self._apply(sequence, payload, out)
        return True

    def _apply(self, sequence: int, payload: bytes, out: list[Action]) -> None:
        process = self._process
        lost = process.hole_before(sequence)
        if lost:
            self._diary.count("unrecovered_messages", lost)
            process.all_known = False
            out.append(Lost(lost))
        begins = process.last is None and sequence == 0
        process.received(sequence, payload)
        self._history_at = None
        out.append(Apply(payload))
        if begins:
            process.all_known = True
            if self._replay is None:
                process.catching_up = False
                out.append(Known())

    def _count_missed(self, sequence: int) -> None:
        process = self._process
        uncounted = sequence - 1 - process.missed_through
        self._diary.count("missed_messages", max(0, min(process.hole_before(sequence), uncounted)))
        process.missed_through = max(process.missed_through, sequence - 1)

    def _restart(self, reason: str, out: list[Action]) -> None:
        self._diary.count("engine_restarts", reason=reason)
        self._process = _Process()
        self._mute_until = self._gaps_unfilled_until = 0.0
        self._history_at = None
        self._fruitless = 0
        out.append(Restart(reason))

    # ------------------------------------------------------------------ replay

    def _ask(
        self, first: int, purpose: Purpose, now: float, out: list[Action], rest_of: _Replay | None = None
    ) -> bool:
        if not self._replays or not self._connected or now < self._mute_until:
            return False
        if self._replay is not None:
            out.append(StopReplay())
        self._history_at = None
        self._replay = _Replay(purpose, now, rest_of)
        self._process.catching_up |= purpose == "history"
        self._diary.count("replays", reason=purpose)
        out.append(AskReplay(first))
        return True

    def _proves(self, replay: _Replay, reply: Reply, now: float, out: list[Action]) -> bool:
        """Look for the copy of the last applied message; True when the reply is to be applied [SUB-055]."""
        last = self._process.last
        if last is None or reply.sequence < last:
            return False
        if reply.sequence == last and self._process.is_copy(last, reply.payload):
            replay.unproven = self._process.in_question = False
            self._diary.count("duplicates")
            return False
        if reply.sequence > last and replay.purpose != "proof":
            replay.unproven = False
            return True
        self._restart("replay_differs", out)
        if replay.purpose == "proof":
            self._ask(0, "history", now, out)
            return False
        replay.unproven = False
        return True

    def _take_reply(self, replay: _Replay, reply: Reply, now: float, out: list[Action]) -> None:
        last = self._process.last
        if last is not None and reply.sequence <= last:
            return
        if self._process.hole_before(reply.sequence) and self._asks_for_rest(now, out):
            return
        self._count_missed(reply.sequence)
        replay.applied += 1
        self._diary.count("replayed_messages")
        self._apply(reply.sequence, reply.payload, out)

    def _asks_for_rest(self, now: float, out: list[Action]) -> bool:
        """Ask again from the last message on, if the engine may have dropped what is missing after it.

        What is missing among fewer replies than an engine drops any is nowhere, and not asked for again
        [SUB-056]. So each new exchange brings more than the one before, within the time of the first.
        """
        replay, last = self._replay, self._process.last
        if replay is None or last is None or replay.unproven or replay.replies <= ENGINE_SEND_MARK:
            return False
        if now >= replay.began + REPLAY_LIMIT_S:
            return False
        purpose: Purpose = "gap" if replay.purpose == "proof" else replay.purpose
        return self._ask(last, purpose, now, out, rest_of=replay)

    def _stood_still(self, replay: _Replay, now: float, late_s: float) -> bool:
        """Was it not the engine that was silent? Then what has arrived is read first, once [SUB-058]."""
        if replay.is_excused or late_s < STOOD_STILL_S:
            return False
        replay.is_excused = True
        replay.began += late_s + self._replay_timeout_s
        replay.heard = now
        return True

    def _ask_history_again(self, now: float, out: list[Action]) -> None:
        """An engine that is idle since its history broke off tells of nothing that is missing [SUB-060]."""
        self._history_at = None
        last = self._process.last
        if last is None:
            self._ask(0, "history", now, out)
        else:
            self._ask(last, "gap", now, out)

    def _finish_replay(self, replay: _Replay, now: float, out: list[Action]) -> None:
        """The end marker came."""
        self._replay = None
        out.append(StopReplay())
        if replay.purpose == "proof" and replay.unproven:
            self._restart("replay_differs", out)
            self._ask(0, "history", now, out)
        elif self._process.catching_up and not replay.unproven:
            self._process.catching_up = False
            if self._process.all_known:
                out.append(Known())
        if replay.purpose == "gap":
            if replay.applied:
                self._fruitless = 0
            elif self._waiting and self._process.hole_before(self._waiting[0][0]):
                self._fruitless += 1
                pause = min(MUTE_PAUSE_S, FRUITLESS_PAUSE_S * 2.0 ** (self._fruitless - 1))
                self._gaps_unfilled_until = now + self._jittered(pause)
        self._drain(now, out)

    def _break_replay(self, now: float, out: list[Action]) -> None:
        """The replay ends without its end marker [SUB-058]."""
        replay, self._replay = self._replay, None
        if replay is None:
            return
        out.append(StopReplay())
        if replay.purpose == "proof" and replay.unproven:
            self._restart("unproven_reconnect", out)
        pause_ends = now + self._jittered(MUTE_PAUSE_S)
        if replay.replies == 0:
            self._mute_until = pause_ends
        if self._process.catching_up:
            self._history_at = pause_ends
            self._diary.warn_once(
                "history_unknown",
                "",
                "the replay did not tell all that is cached; an idle engine is asked again each minute",
            )

    def _give_up_waiting(self, now: float, out: list[Action]) -> None:
        """Go on with what there is, taking what could not be proven for another process [SUB-055]."""
        self._diary.count("replays_abandoned")
        if self._in_doubt:
            self._in_doubt = False
            self._restart("unproven_reconnect", out)
        self._break_replay(now, out)

    def _jittered(self, pause: float) -> float:
        return pause * (1.0 + 0.1 * self._jitter())
