"""Command-line arguments of an engine, read and written in `args` alone [ADM-149].

A flag is written `FLAG VALUE`, two entries, or `FLAG=VALUE`, one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from inferencecache.controller.injection.refusals import NotWiredError

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)


class Occurrence(NamedTuple):
    """One place where a flag stands. `value` is the text after `=` when `joined`, else the next entry
    whatever it is, None at the end of the list.
    """

    flag: str
    at: int
    value: str | None
    joined: bool


def occurrences(arguments: Sequence[str], *flags: str) -> list[Occurrence]:
    """Where any of the flags stands."""
    found = []
    for at, argument in enumerate(arguments):
        flag, equals, value = argument.partition("=")
        if flag in flags:
            after = arguments[at + 1] if at + 1 < len(arguments) else None
            found.append(Occurrence(flag, at, value if equals else after, bool(equals)))
    return found


def only_value(arguments: Sequence[str], *flags: str, next_flag: str = "-") -> str | None:
    """The value of a flag, or of its aliases together, that may stand once; None when it is absent.

    An entry that starts with `next_flag` is no value. Raises `NotWiredError` for a repeated flag and for
    one without a value.
    """
    found = occurrences(arguments, *flags)
    if not found:
        return None
    if len(found) > 1:
        raise NotWiredError(f"{' or '.join(flags)} is there {len(found)} times; write it once")
    flag, _, value, joined = found[0]
    if not value or (not joined and value.startswith(next_flag)):
        raise NotWiredError(f"{flag} has no value")
    return value


def whole_number(text: str) -> int | None:
    """A decimal number of up to 18 digits with an optional sign, None for any other text."""
    return int(text) if _WHOLE.fullmatch(text) else None


def set_pair(arguments: Sequence[str], flag: str, value: str) -> list[str]:
    """The first occurrence of the flag becomes `FLAG VALUE`; without one it is appended [ADM-150]."""
    result = list(arguments)
    found = occurrences(result, flag)
    if not found:
        return [*result, flag, value]
    at = found[0].at
    result[at : at + (1 if found[0].joined else 2)] = [flag, value]
    return result


def set_flag(arguments: Sequence[str], flag: str) -> list[str]:
    """Append the bare flag unless it is there [ADM-151]."""
    return list(arguments) if flag in arguments else [*arguments, flag]
