"""Chance that depends on who and when, and on nothing that happened before.

A plan from which a step is left out thus goes on as it did wherever that step does not matter, which is
what shortening a plan rests on.
"""

from __future__ import annotations

from random import Random
from typing import Final
from zlib import crc32

_A_SECOND: Final = 2000
"""So often within a second chance changes."""
_STRIDE: Final = 40503
_random = Random("noise")
_NUMBERS: Final = [_random.random() for _ in range(1 << 16)]


class Noise:
    """Numbers from 0 to 1 that belong to a time."""

    def __init__(self, seed: str) -> None:
        self._offset = crc32(seed.encode())

    def at(self, time_s: float) -> float:
        return _NUMBERS[(int(time_s * _A_SECOND) * _STRIDE + self._offset) & 0xFFFF]
