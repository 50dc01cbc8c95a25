"""An installation as it is at a moment, by what its processes say of themselves over NATS."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from inferencecache.cli.layouts.store import LayoutStore, State
from inferencecache.cli.owners import Owner, read_owners
from inferencecache.core.log import Log
from inferencecache.core.log.subjects import partition_key
from inferencecache.schemas.members import RouterMember


class Replica(NamedTuple):
    """One replica of a tenant over all partitions. `quiet_s` is the log time since its last event, None when
    it holds nothing; numbers of its engine are None while it has told none.
    """

    tenant: str
    replica: str
    model: str
    prefixes: int
    quiet_s: float | None
    hit_rate: float | None
    pressure: float | None


class Installation(NamedTuple):
    """The layout with who is there, and the owners of the generation in force."""

    state: State
    owners: tuple[Owner, ...]

    @property
    def entries(self) -> dict[str, int]:
        """Distinct prefixes by partition, as owners counted them within the last seconds."""
        return {key: sum(count.keys.values()) for key, count in self.state.counts.items()}

    @property
    def replicas(self) -> list[Replica]:
        """The largest first."""
        return sorted(self._replicas(), key=lambda each: (-each.prefixes, each.tenant, each.replica))

    def _replicas(self) -> Iterator[Replica]:
        layout = self.state.layout
        for number in range(layout.partitions):
            count = self.state.counts.get(partition_key(layout.generation, number))
            for row in count.replicas if count is not None else ():
                stats = row.stats
                quiet_s = (count.time_us - row.last_event_us) / 1e6 if count and row.last_event_us else None
                yield Replica(
                    row.tenant,
                    row.replica,
                    stats.model if stats else "",
                    row.prefix_count,
                    max(0.0, quiet_s) if quiet_s is not None else None,
                    stats.hit_rate if stats else None,
                    stats.pressure if stats else None,
                )


async def read_installation(log: Log) -> Installation:
    """Everything as it is now. Raises LayoutError where there is no installation, ApiError, NoAnswerError."""
    state = await LayoutStore(log).read()
    return Installation(state, await read_owners(log, state.layout.in_force, state.indexers))


def document(installation: Installation) -> dict[str, Any]:
    """All of it as one JSON object."""
    state, entries = installation.state, installation.entries
    return {
        "generation": state.layout.generation,
        "partitions": [
            {
                "partition": owner.partition,
                "owner": owner.indexer or None,
                "lagSeconds": round(owner.lag_s, 3),
                "sequence": owner.sequence,
                "last": owner.last,
                "entries": entries.get(owner.partition),
            }
            for owner in installation.owners
        ],
        "indexers": [
            {"id": row.id, "owned": sum(each.owner for each in row.partitions.values())}
            for row in state.indexers
        ],
        "routers": [
            {
                "id": router.id,
                "address": router.address,
                "generation": router.generation,
                "policyRevision": router.policy_revision,
                "complete": is_complete(router),
                "viewAgeSeconds": view_age_s(router),
            }
            for router in state.routers
        ],
        "replicas": [
            {
                "tenant": each.tenant,
                "replica": each.replica,
                "model": each.model,
                "prefixes": each.prefixes,
                "quietSeconds": None if each.quiet_s is None else round(each.quiet_s, 3),
                "hitRate": each.hit_rate,
                "pressure": each.pressure,
            }
            for each in installation.replicas
        ],
    }


def is_complete(router: RouterMember) -> bool:
    """Whether it answers from a view of every partition that it serves."""
    return bool(router.served) and all(view.complete for view in router.served.values())


def view_age_s(router: RouterMember) -> float | None:
    """Of its oldest view; None while it has none."""
    return max((round(view.age_s, 3) for view in router.served.values()), default=None)
