"""Values of a metric's label that callers choose: bounded, so that nobody fills the memory with names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

MOST_NAMES: Final = 1000
OTHER: Final = "other"
"""Label of all names beyond them."""


class LabelNames:
    """The names that have become labels, for good: a series that was begun goes on."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def label(self, name: str) -> str:
        """The name itself, if it is one of the first thousand."""
        if name not in self._names:
            if len(self._names) >= MOST_NAMES:
                return OTHER
            self._names.add(name)
        return name
