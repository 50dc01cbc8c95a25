"""What happened on the way from frames to records: counters and warnings, kept until a shell shows them.

The pure parts write here and never log. Whoever owns the process drains the warnings into its log,
at most one of a reason in ten seconds [SUB-181], and exports the counters under their names [SUB-188].
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

MAX_WAITING: Final = 256
"""Warnings beyond this many that nobody drained are dropped; the counters still move."""
MAX_TEXT: Final = 80
"""A text of the engine's, which could be anything, is kept up to this length."""


class Warned(NamedTuple):
    """`reason` is what the rate limit goes by; `fields` never hold token ids or payload bytes [SUB-002]."""

    reason: str
    text: str
    fields: dict[str, object]


class Diary:
    """Counters by (name, reason), reason being empty for most, and the warnings since the last drain."""

    def __init__(self) -> None:
        self.counters: Counter[tuple[str, str]] = Counter()
        self._warnings: list[Warned] = []
        self._seen: set[tuple[str, object]] = set()

    def count(self, name: str, amount: int = 1, reason: str = "") -> None:
        """Add to a counter of the chapter; `name` is without prefix and `_total`."""
        self.counters[name, reason] += amount

    def total(self, name: str) -> int:
        """A counter summed over its reasons."""
        return sum(amount for (counted, _), amount in self.counters.items() if counted == name)

    def warn(self, reason: str, text: str, **fields: object) -> None:
        """Note a warning that may repeat."""
        if len(self._warnings) < MAX_WAITING:
            kept = {name: _shortened(value) for name, value in fields.items()}
            self._warnings.append(Warned(reason, text, kept))

    def warn_once(self, reason: str, value: object, text: str, **fields: object) -> None:
        """Note a warning unless this reason was noted for this value before.

        The memory of values is bounded, because an engine can make up any number of them.
        """
        value = _shortened(value)
        if (reason, value) in self._seen or len(self._seen) >= MAX_WAITING:
            return
        self._seen.add((reason, value))
        self.warn(f"{reason}:{value}", text, **fields)

    def drain(self) -> list[Warned]:
        """The warnings since the last call."""
        warnings, self._warnings = self._warnings, []
        return warnings


def _shortened(value: object) -> object:
    return value[:MAX_TEXT] if isinstance(value, str) else value
