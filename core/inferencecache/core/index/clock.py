"""Log time T: the time of the log, not of any process.

T starts at the first tick of a log epoch and advances with ticks by a median of three clocks, at most
2 s each, so one wrong clock, whichever, can neither jump nor stop it. All times are microseconds; before
T starts every time is 0.
"""

from __future__ import annotations

from typing import Final

import msgspec

SECOND_US: Final = 1_000_000
FUTURE_US: Final = 5 * SECOND_US
"""A producer's own timestamp counts if it is at most this far ahead of T."""
INT64_MIN: Final = -(2**63)


class LogClock(msgspec.Struct, array_like=True):
    """T, the number of ticks folded since the log epoch began, and the last tick's JetStream timestamp."""

    time_us: int = 0
    ticks: int = 0
    tick_ns: int = 0

    def tick(self, wall_us: int, stamp_ns: int) -> bool:
        """Fold a tick: the owner's wall clock and the message's timestamp. Answers whether T starts.

        T starts with the earlier of the two, but above 0, which stands for "not started". Then
        T := min(T + 2 s, max(T, median(T + 1 s, both))).
        """
        stamp_us = stamp_ns // 1000
        starts = self.ticks == 0
        if starts:
            self.time_us = max(1, min(wall_us, stamp_us))
        else:
            median_us = sorted((self.time_us + SECOND_US, wall_us, stamp_us))[1]
            self.time_us = min(self.time_us + 2 * SECOND_US, max(self.time_us, median_us))
        self.ticks += 1
        self.tick_ns = stamp_ns
        return starts

    def message_time(self, stamp_ns: int) -> int:
        """The time of a message: T plus its distance from the last tick, within 0 to 2 s."""
        if not self.ticks:
            return 0
        return self.time_us + min(max((stamp_ns - self.tick_ns) // 1000, 0), 2 * SECOND_US)

    def observed(self, message_us: int, age_ms: int) -> int:
        """When a sidecar saw what it reports: the message's time minus its batch's age."""
        if not self.ticks:
            return 0
        return max(message_us - max(age_ms, 0) * 1000, INT64_MIN)

    def literal(self, timestamp_us: int, observed_us: int) -> int:
        """The time of a gRPC producer's record: its own timestamp, literally, unless that is 0 or more
        than 5 s ahead of T; those mean the message's time [IDX-18, IDX-19, WIRE-093].
        """
        if not self.ticks or timestamp_us == 0 or timestamp_us > self.time_us + FUTURE_US:
            return observed_us
        return max(timestamp_us, INT64_MIN)
