"""Numbers as the contract computes with them: single-precision floats and 32-bit integers."""

from __future__ import annotations

from struct import Struct

# The native form rounds a value beyond the range to infinity; the standard forms raise instead.
_FLOAT = Struct("@f")


def single(value: float) -> float:
    """The nearest IEEE-754 single-precision value [IDX-07]."""
    rounded: float = _FLOAT.unpack(_FLOAT.pack(value))[0]
    return rounded


def wrapped(value: int) -> int:
    """The value as a 32-bit two's complement integer [WIRE-028, IDX-29]."""
    return ((value + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000
