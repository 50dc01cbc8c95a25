"""How a backend's `engineOverrides` are merged into what injection made of the engine container.

Adapter-owned is what injection added or changed: overrides may replace or suppress it. User-owned is
what the pod's author wrote and injection left alone: overrides never touch it [ADM-209]. What is
neither is added.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple, TypeVar

from inferencecache.controller.admission.reviews import Document
from inferencecache.controller.admission.validation.overrides import flag_of
from inferencecache.controller.injection.environment import by_name, same

_Item = TypeVar("_Item")


class _Unit(NamedTuple):
    """An argument with its value: one entry, or a bare flag and the entry after it [ADM-208, ADM-211]."""

    token: str
    entries: tuple[str, ...]

    @property
    def value(self) -> str:
        return self.entries[1] if len(self.entries) > 1 else self.entries[0].partition("=")[2]


def _units(arguments: Sequence[str]) -> list[_Unit]:
    units: list[_Unit] = []
    at = 0
    while at < len(arguments):
        token = flag_of(arguments[at])
        value = arguments[at + 1 : at + 2] if token and "=" not in arguments[at] else ()
        size = 2 if value and not value[0].startswith("-") else 1
        units.append(_Unit(token, tuple(arguments[at : at + size])))
        at += size
    return units


def merge_arguments(
    before: Sequence[str], after: Sequence[str], *, suppress: Sequence[str], add: Sequence[str]
) -> list[str]:
    """`args` of the engine; `before` and `after` are those around injection [ADM-210, ADM-211]."""
    were = {unit.token: unit.value for unit in _units(before) if unit.token}
    are = {unit.token: unit.value for unit in _units(after) if unit.token}
    owned = {token for token, value in are.items() if were.get(token) != value}
    dropped = owned & set(suppress)
    units = [(unit.token, unit) for unit in _units(after) if unit.token not in dropped]
    overrides = [(unit.token, unit) for unit in _units(add)]
    merged = _merged(units, overrides, owned=owned, protected=were.keys() - owned)
    return [entry for unit in merged for entry in unit.entries]


def merge_environment(
    before: Sequence[Document], after: Sequence[Document], *, suppress: Sequence[str], add: Sequence[Document]
) -> list[Document]:
    """`env` of the engine, likewise by name [ADM-212, ADM-213]."""
    were = by_name(before)
    owned = {
        name for name, entry in by_name(after).items() if name not in were or not same(were[name], entry)
    }
    dropped = owned & set(suppress)
    entries = [(entry["name"], entry) for entry in after if entry["name"] not in dropped]
    overrides = [(entry["name"], entry) for entry in add]
    return _merged(entries, overrides, owned=owned, protected=were.keys() - owned)


def _merged(
    items: Sequence[tuple[str, _Item]],
    overrides: Sequence[tuple[str, _Item]],
    *,
    owned: AbstractSet[str],
    protected: AbstractSet[str],
) -> list[_Item]:
    """Each override in the first place of its name if that is owned, else at the end."""
    merged = [item for _, item in items]
    places = {name: at for at, (name, _) in reversed(list(enumerate(items))) if name in owned}
    for name, override in overrides:
        if name in protected:
            continue
        at = places.get(name, len(merged))
        merged[at : at + 1] = [override]
        if name in owned:
            places[name] = at
    return merged
