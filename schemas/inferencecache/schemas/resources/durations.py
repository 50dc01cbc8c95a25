"""Durations as Kubernetes objects spell them: `90s`, `1h30m`, `1.5h`, `0` [CRD-13]."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

_NANOSECONDS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # micro sign
    "μs": 1_000,  # Greek mu
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_WHOLE: Final = re.compile(rf"[+-]?(?:0|(?:{_PART.pattern})+)")
_LONGEST: Final = 128
"""Characters; a longer text would only cost time."""
_MOST: Final = 2**63 - 1
"""Nanoseconds, about 292 years: what the API's own readers can hold."""


def parse_duration(text: str) -> int:
    """Nanoseconds; a part of one is dropped. Raises ValueError that says what to write."""
    if len(text) > _LONGEST or not _WHOLE.fullmatch(text):
        shown = text[:_LONGEST]
        raise ValueError(f"{shown!r} is not a duration; write numbers with units, as in 90s, 5m or 1h30m")
    value = sum(int(Decimal(number) * _NANOSECONDS[unit]) for number, unit in _PART.findall(text))
    if value > _MOST:
        raise ValueError(f"{text!r} is too long; the most is about 292 years")
    return -value if text.startswith("-") else value
