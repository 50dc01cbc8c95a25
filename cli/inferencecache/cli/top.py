"""The live view of an installation: partitions, owners, routers, replicas and their load."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from inferencecache.cli.installation import Installation, is_complete, read_installation, view_age_s
from inferencecache.cli.view import table
from inferencecache.core.log import ApiError, Log, NoAnswerError

MOST_REPLICAS: Final = 20
_BEHIND_S: Final = 5.0


class TopView:
    """Renders what was read last; rates are of the time between the last two readings."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._now: Installation | None = None
        self._read_at = 0.0
        self._rates: dict[str, float] = {}
        self._trouble = ""

    async def follow(self, log: Log, interval_s: float) -> None:
        """Read at each interval until cancelled. What cannot be read is said; the last view stays."""
        while True:
            try:
                self.take(await read_installation(log), time.monotonic())
            except (ApiError, NoAnswerError) as error:
                self._trouble = str(error)
            await asyncio.sleep(interval_s)

    def take(self, installation: Installation, at_s: float) -> None:
        """A reading, at a time of the caller's clock."""
        before = {owner.partition: owner.last for owner in self._now.owners} if self._now else {}
        passed_s = at_s - self._read_at
        self._rates = {
            owner.partition: max(0.0, (owner.last - before[owner.partition]) / passed_s)
            for owner in installation.owners
            if owner.partition in before and passed_s > 0
        }
        self._now, self._read_at, self._trouble = installation, at_s, ""

    def __rich__(self) -> RenderableType:
        if self._now is None:
            return Text(self._trouble or f"asking {self._address}")
        state = self._now.state
        head = Text.assemble(
            (f"{self._address}  ", "bold"),
            f"generation {state.layout.generation}, {len(state.indexers)} indexers, "
            f"{len(state.routers)} routers, {len(self._now.replicas)} replicas",
        )
        trouble = [Text(self._trouble, style="bold red")] if self._trouble else []
        parts = (self._partitions(), self._routers(), self._replicas())
        return Group(head, *trouble, *(each for part in parts for each in (Text(), part)))

    def _partitions(self) -> Table:
        made = _table(2, "partition", "owner", "lag", "log", "messages/s", "prefixes")
        installation = self._now
        if installation is None:
            return made
        for owner in installation.owners:
            rate = self._rates.get(owner.partition)
            entries = installation.entries.get(owner.partition)
            made.add_row(
                owner.partition,
                owner.indexer or "nobody",
                f"{owner.lag_s:.1f} s" if owner.indexer else "-",
                str(owner.last),
                "-" if rate is None else f"{rate:.1f}",
                "-" if entries is None else str(entries),
                style="" if owner.indexer and owner.lag_s <= _BEHIND_S else "bold red",
            )
        return made

    def _routers(self) -> Table:
        made = _table(2, "router", "address", "view age", "complete", "policy", "generation")
        for router in self._now.state.routers if self._now else ():
            age_s, complete = view_age_s(router), is_complete(router)
            made.add_row(
                router.id,
                router.address,
                "-" if age_s is None else f"{age_s:.1f} s",
                "yes" if complete else "no",
                str(router.policy_revision),
                str(router.generation),
                style="" if complete and (age_s or 0) <= _BEHIND_S else "bold red",
            )
        return made

    def _replicas(self) -> Table:
        made = _table(3, "replica", "tenant", "model", "prefixes", "last event", "hit rate", "pressure")
        replicas = self._now.replicas if self._now else []
        for each in replicas[:MOST_REPLICAS]:
            made.add_row(
                each.replica,
                each.tenant,
                each.model or "-",
                str(each.prefixes),
                "-" if each.quiet_s is None else f"{each.quiet_s:.0f} s ago",
                "-" if each.hit_rate is None else f"{100 * each.hit_rate:.1f} %",
                "-" if each.pressure is None else f"{each.pressure:.2f}",
            )
        if len(replicas) > MOST_REPLICAS:
            made.add_row(f"and {len(replicas) - MOST_REPLICAS} more")
        return made


def _table(names: int, *headings: str) -> Table:
    """Names in the first columns, numbers in the others."""
    made = table(*headings)
    for column in made.columns[:names]:
        column.justify = "left"
    return made
