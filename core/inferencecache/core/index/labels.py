"""Numbers that are ordered as the names they stand for, so that kernels can compare names."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Any, Final

Name = tuple[Any, ...]
_STEP: Final = 1 << 32
_MOST: Final = 1 << 62


class Labels:
    """Labels of the names in use. A name's label stays, until `take` answers that all changed."""

    def __init__(self) -> None:
        self._ascending: list[Name] = []
        self._labels: dict[Name, int] = {}
        self._uses: dict[Name, int] = {}

    def __getitem__(self, name: Name) -> int:
        return self._labels[name]

    def take(self, name: Name) -> bool:
        """Use a name once more; answers whether all labels changed to make room for it."""
        self._uses[name] = uses = self._uses.get(name, 0) + 1
        if uses > 1:
            return False
        at = bisect_left(self._ascending, name)
        before = self._labels[self._ascending[at - 1]] if at else None
        behind = self._labels[self._ascending[at]] if at < len(self._ascending) else None
        insort(self._ascending, name)
        if behind is None:
            label = 0 if before is None else before + _STEP
        elif before is None:
            label = behind - _STEP
        else:
            label = (before + behind) // 2
        self._labels[name] = label
        if label == before or abs(label) > _MOST:
            self._labels = {name: index * _STEP for index, name in enumerate(self._ascending)}
            return True
        return False

    def give_back(self, name: Name) -> None:
        """Use a name once less."""
        self._uses[name] -= 1
        if not self._uses[name]:
            del self._uses[name], self._labels[name]
            del self._ascending[bisect_left(self._ascending, name)]
