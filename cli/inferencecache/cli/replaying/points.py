"""Points of the log as they are written on the command line: SEQ, TIME, or how long ago."""

from __future__ import annotations

from datetime import UTC, datetime

import typer

from inferencecache.core.replay import AtSequence, AtTime, Point
from inferencecache.core.service import duration


def point(text: str, option: str, now_ns: int) -> Point:
    """The point of `1234`, `2026-05-04T10:00:00Z` (UTC without a zone) or `5m`, which ends at `now_ns`.

    Raises `BadParameter`.
    """
    if text.isdecimal():
        return AtSequence(int(text))
    try:
        return AtTime(now_ns - round(duration(text) * 1e9))
    except ValueError:
        pass
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{option}: {text!r} is no point of the log; write a log sequence, a time as in "
            "2026-05-04T10:00:00Z, or how long ago, as in 5m"
        ) from None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    seconds = int(at.replace(microsecond=0).timestamp())
    return AtTime(seconds * 1_000_000_000 + at.microsecond * 1000)


def is_reversed(since: Point | None, until: Point | None) -> bool:
    """Whether nothing can lie between them. Of a sequence and a time only the log knows."""
    match since, until:
        case AtSequence(first), AtSequence(last):
            return first > last
        case AtTime(first), AtTime(last):
            return first > last
    return False
