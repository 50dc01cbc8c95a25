"""Cutting what fails down to the few items that matter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def fewest(items: Sequence[T], fails: Callable[[list[T]], bool]) -> list[T]:
    """What is left, in its order, when no item can be left out any more and `fails` still says so."""
    left = list(items)
    size = max(1, len(left) // 2)
    while left:
        start = 0
        while start < len(left):
            fewer = left[:start] + left[start + size :]
            if fails(fewer):
                left = fewer
            else:
                start += size
        if size == 1:
            break
        size //= 2
    return left
