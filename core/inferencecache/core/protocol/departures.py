"""Saying that a pod is gone: in every partition of every generation, and again where it may not be known.

A pod's holds may be in any partition, and its sidecar's last messages may arrive late, also in a generation
that did not exist when the pod went. So whoever sees pods go remembers the recent ones and repeats them
into each new generation. A server that loses power may lose the end of what it has acknowledged, and one may
begin with an older copy of its storage. A sidecar that lives finds that out by the number of its next batch;
of a pod that is gone nobody else speaks again, and a log without its departure holds what it held. So recent
departures are also repeated after every reconnect. Saying it twice changes nothing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from inferencecache.schemas.layout import CurrentLayout, Layout
from inferencecache.schemas.records import Gone

REMEMBERED_S: Final = 600.0
"""The fold remembers a pod that is gone for as long."""


class Append(NamedTuple):
    """Append the record to the controller's control subject of this partition."""

    generation: int
    partition: int
    record: Gone


class Departures:
    """The pods that have gone lately. Times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._generations: tuple[Layout, ...] = ()
        self._recent: dict[Gone, float] = {}

    def told(self, now: float, current: CurrentLayout) -> list[Append]:
        """The layout, at first and whenever it has changed."""
        self._forget(now)
        new = [layout for layout in current.generations if layout not in self._generations]
        self._generations = current.generations
        return [append for gone in self._recent for layout in new for append in _appends(layout, gone)]

    def gone(self, now: float, gone: Gone) -> list[Append]:
        """A pod has been deleted. Before the layout is known it is only remembered."""
        self._forget(now)
        self._recent[gone] = now
        return [append for layout in self._generations for append in _appends(layout, gone)]

    def reconnected(self, now: float) -> list[Append]:
        """The server may have lost what it had stored: everything recent is said again, everywhere."""
        self._forget(now)
        return [
            append for gone in self._recent for each in self._generations for append in _appends(each, gone)
        ]

    def _forget(self, now: float) -> None:
        self._recent = {gone: at for gone, at in self._recent.items() if now - at < REMEMBERED_S}


def _appends(layout: Layout, gone: Gone) -> list[Append]:
    return [Append(layout.generation, number, gone) for number in range(layout.partitions)]
