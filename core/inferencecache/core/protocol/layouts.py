"""How one layout becomes the next: by a new generation, and by letting go of the old ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from inferencecache.schemas.layout import CurrentLayout, Lanes
from inferencecache.schemas.members import RouterMember

MOST_OLDER: Final = 4
"""Generations that may exist beside the one in force: each has streams that reserve room."""


class UnchangedLayoutError(ValueError):
    """The layout in force is already as wanted."""

    def __init__(self, generation: int) -> None:
        super().__init__(f"generation {generation} is already so")
        self.generation = generation


class TooManyGenerationsError(ValueError):
    """Another generation would have to be created before old ones were pruned."""

    def __init__(self, older: int) -> None:
        super().__init__(
            f"{older} older generations still have their streams; remove them with 'inferencecache layout "
            "prune' before another one is created"
        )
        self.older = older


class TooManyLanesError(ValueError):
    """A (tenant, model) would have more lanes than there are partitions."""

    def __init__(self, lanes: Lanes, partitions: int) -> None:
        name = f"{lanes.tenant}/{lanes.model}"
        super().__init__(
            f"{lanes.lanes} lanes of {name} need as many partitions, and there are {partitions}; raise "
            f"--partitions or give --lanes '{name}={partitions}'"
        )
        self.lanes = lanes
        self.partitions = partitions


def succeed(
    current: CurrentLayout, *, partitions: int | None = None, lanes: Iterable[Lanes] = ()
) -> CurrentLayout:
    """The layout of the next generation. Lanes that are not named stay as they are; 1 is the default.

    Raises UnchangedLayoutError, TooManyGenerationsError, TooManyLanesError.
    """
    by_name = {(each.tenant, each.model): each for each in (*current.lanes, *lanes)}
    new = CurrentLayout(
        current.generation + 1,
        current.partitions if partitions is None else partitions,
        tuple(by_name[name] for name in sorted(by_name) if by_name[name].lanes > 1),
        older=current.generations,
    )
    if (new.partitions, set(new.lanes)) == (current.partitions, set(current.lanes)):
        raise UnchangedLayoutError(current.generation)
    for each in new.lanes:
        if each.lanes > new.partitions:
            raise TooManyLanesError(each, new.partitions)
    if len(current.older) >= MOST_OLDER:
        raise TooManyGenerationsError(len(current.older))
    return new


def prune(current: CurrentLayout) -> CurrentLayout:
    """The layout with nothing but the generation in force."""
    return msgspec.structs.replace(current, older=())


def routers_behind(current: CurrentLayout, routers: Iterable[RouterMember]) -> list[RouterMember]:
    """Routers that do not answer by the generation in force: they need an older one, or may need it."""
    return [router for router in routers if router.generation != current.generation]
