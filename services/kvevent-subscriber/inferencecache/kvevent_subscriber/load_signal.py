"""Is the replica's load still told? Counts the ticks that told nothing, and says so often enough.

One missed tick is a warning, three in a row are one error, the rest is silence until it recovers
[SUB-147]. Alerts go by the `event`, never by the text [SUB-149].
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

STALE_AFTER: Final = 3
Level = Literal["debug", "info", "warning", "error"]


class Notice(NamedTuple):
    """One line of the log."""

    level: Level
    event: str
    text: str
    ticks: int
    cause: str = ""


class LoadSignal:
    """Consecutive ticks without a delivered sample."""

    def __init__(self) -> None:
        self.failures = 0
        self._delivered_before = False

    def delivered(self) -> Notice | None:
        """A sample is in the log."""
        failures, self.failures = self.failures, 0
        self._delivered_before = True
        if failures < STALE_AFTER:
            return None
        return Notice("info", "load_signal_recovered", "load statistics are delivered again", failures)

    def failed(self, cause: str) -> Notice:
        """A tick delivered nothing."""
        self.failures += 1
        if self.failures != STALE_AFTER:
            level: Level = "warning" if self.failures < STALE_AFTER else "debug"
            return Notice(level, "load_signal_missed", "no load statistics this time", self.failures, cause)
        if self._delivered_before:
            text = (
                "load statistics are stale: the last delivered sample will age out, "
                "and the replica is then ranked on residency only"
            )
        else:
            text = "load statistics are missing: this process has sent nothing since start"
        return Notice("error", "load_signal_stale", text, self.failures, cause)
