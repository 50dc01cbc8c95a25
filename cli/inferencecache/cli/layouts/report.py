"""How far everybody is with the layout, for people and for programs."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from inferencecache.cli.layouts.store import Pruned, State
from inferencecache.core.log.subjects import partition_key
from inferencecache.schemas.layout import CurrentLayout, Lanes, Layout


def document(state: State) -> dict[str, Any]:
    """All of it as one JSON object."""
    layout = state.layout
    return _generation(layout) | {
        "schema": layout.schema,
        "revision": state.entry.revision,
        "generations": [
            _generation(each)
            | {
                "inForce": each.generation == layout.generation,
                "state": [_partition(state, each, number) for number in range(each.partitions)],
            }
            for each in layout.generations
        ],
        "routers": [{"id": router.id, "generation": router.generation} for router in state.routers],
    }


def change_document(new: CurrentLayout, *, written: bool, state: State | None) -> dict[str, Any]:
    """What `set` did; who answers by it already when that was waited for."""
    behind = None if state is None else [router.id for router in state.behind]
    return _generation(new) | {"written": written, "routersBehind": behind}


def pruned_document(pruned: Pruned) -> dict[str, Any]:
    """What `prune` did."""
    return pruned._asdict()


def show(state: State, console: Console) -> None:
    """A headline, a table of partitions, a line for the routers."""
    layout = state.layout
    console.print(f"layout: {headline(layout)}", soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    table.add_column("GENERATION")
    table.add_column("PARTITION", justify="right")
    table.add_column("OWNER")
    for heading in ("CAUGHT UP", "LOG", "ENTRIES"):
        table.add_column(heading, justify="right")
    for each in layout.generations:
        for number in range(each.partitions):
            row = _partition(state, each, number)
            caught_up = f"{len(row['caughtUp'])} of {len(state.indexers)}"
            table.add_row(
                str(each.generation),
                str(number),
                row["owner"] or "nobody",
                caught_up,
                "" if row["sequence"] is None else str(row["sequence"]),
                "" if row["entries"] is None else str(row["entries"]),
            )
    console.print(table)
    console.print(routers_line(state), soft_wrap=True)
    if layout.older and state.is_followed:
        console.print("older generations are not needed any more: 'inferencecache layout prune'")


def headline(layout: CurrentLayout) -> str:
    """The generation in force in one line."""
    lanes = ", ".join(f"{each.tenant}/{each.model}={each.lanes}" for each in layout.lanes)
    older = ", ".join(str(each.generation) for each in layout.older)
    return (
        f"generation {layout.generation}, {layout.partitions} partitions, "
        f"{f'lanes {lanes}' if lanes else 'one lane each'}{f'; older: {older}' if older else ''}"
    )


def routers_line(state: State) -> str:
    """How many routers answer by the generation in force."""
    there = len(state.routers)
    current = there - len(state.behind)
    return f"routers: {current} of {there} answer by generation {state.layout.generation}"


def _generation(layout: Layout) -> dict[str, Any]:
    return {
        "generation": layout.generation,
        "partitions": layout.partitions,
        "lanes": [_lanes(each) for each in layout.lanes],
    }


def _lanes(lanes: Lanes) -> dict[str, Any]:
    return {"tenant": lanes.tenant, "model": lanes.model, "lanes": lanes.lanes}


def _partition(state: State, layout: Layout, number: int) -> dict[str, Any]:
    """Unknown numbers are None. `entries` counts distinct keys, as the owner last put them."""
    key = partition_key(layout.generation, number)
    folded = {row.id: row.partitions[key] for row in state.indexers if key in row.partitions}
    owner = next((id_ for id_, row in folded.items() if row.owner), None)
    count = state.counts.get(key)
    return {
        "partition": number,
        "owner": owner,
        "caughtUp": [id_ for id_, row in folded.items() if row.caught_up],
        "sequence": folded[owner].sequence if owner is not None else None,
        "entries": sum(count.keys.values()) if count is not None else None,
    }
