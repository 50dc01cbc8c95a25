"""Answers of a replay for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from inferencecache.cli.replaying.run import Replayed, moment
from inferencecache.core.replay import (
    Block,
    Elsewhere,
    Moment,
    PartitionDifference,
    PartitionState,
    Told,
)
from inferencecache.schemas.senders import ReplicaSender

_WHAT: Final = {
    "in_base": "held already where the replay begins",
    "stored": "stored",
    "refreshed": "stored again",
    "moved": "stored again, moved",
    "uncertain": "became uncertain",
    "not_counted": "not counted",
    "emptied": "gone: the partition began a new log epoch",
    "evicted": "evicted by the engine",
    "not_restated": "gone: not restated by a complete resync",
    "cleared": "cleared: the engine flushed its cache",
    "replaced": "gone: another incarnation of the replica began",
    "gone": "gone: the replica's pod was deleted",
    "ttl": "swept: older than the time to live",
    "quota": "pushed out: the tenant is over its quota",
    "cap": "pushed out: the index is over its cap",
}
_WHY: Final = {
    "gap": "the engine's own sequence has a hole",
    "jump": "a batch is missing",
    "same_engine": "the replica began anew over the same engine process",
}
_SHOWN_KEYS: Final = 8


def show_state(replayed: Replayed, state: PartitionState, console: Console) -> None:
    """Where a partition stands, and what its replicas hold."""
    console.print(Text.assemble((f"partition {state.partition}", "bold"), f" {_at(state)}"))
    console.print(f"{_facts(state)}; digest {state.digest}", style="dim", soft_wrap=True)
    console.print(
        f"{replayed.rebuild.folded} messages behind {replayed.base.name}, {replayed.rebuild.dropped} of them "
        "not counted",
        style="dim",
        soft_wrap=True,
    )
    if not state.replicas:
        return
    table = _table("tenant", "model", "replica")
    for heading in ("keys", "schemes and adapters", "heard", "alive", "began at"):
        table.add_column(heading, justify="right")
    for replica in state.replicas:
        kinds = sorted({"/".join(filter(None, (each.scheme, each.adapter))) for each in replica.holders})
        table.add_row(
            replica.tenant,
            replica.model,
            replica.replica,
            str(replica.entries),
            " ".join(kinds) or "-",
            _ago(replica.heard_us, state.time_us),
            _ago(replica.alive_us, state.time_us),
            str(replica.begun_at) if replica.incarnation else "-",
        )
    console.print(table)


def show_difference(difference: PartitionDifference, console: Console) -> None:
    """What changed in a partition."""
    before, after = difference.before, difference.after
    console.print(Text.assemble((f"partition {before.partition}", "bold"), f" {_at(before)}"))
    console.print(f"  to {_at(after)}")
    for name, old, new in _changed_facts(before, after):
        console.print(f"  {name}: {old} -> {new}")
    table = _table("tenant", "model", "replica", "scheme", "adapter")
    for heading in ("came", "left", "changed"):
        table.add_column(heading, justify="right")
    for holder in difference.holders:
        ids = (holder.tenant, holder.model, holder.replica, holder.scheme, holder.adapter or "-")
        table.add_row(*ids, *(str(len(keys)) for keys in (holder.came, holder.left, holder.changed)))
    if not difference.holders:
        console.print("  every replica holds the same", style="dim")
        return
    console.print(table)
    for holder in difference.holders:
        for what, keys in (("came", holder.came), ("left", holder.left), ("changed", holder.changed)):
            if keys:
                console.print(f"{holder.replica} {what}: {_some(keys)}", style="dim", soft_wrap=True)


def event_line(told: Told) -> Text:
    """One line for a record."""
    who = f"{told.tenant}/{told.model}/{told.replica}" if told.replica else told.sender
    channel = " (gRPC)" if told.sender == "gRPC" else ""
    line = Text(f"{told.partition}:{told.sequence:<8} {moment(told.time_ns)}  {who}{channel}  ")
    line.append(told.record or "-", style="bold")
    line.append(f" {_fields(told.fields)}")
    if told.dropped:
        line.append(f"  not counted: {told.dropped}", style="red")
    return line


def show_history(
    blocks: Sequence[Block],
    elsewhere: Sequence[Elsewhere],
    of: ReplicaSender,
    ttl_us: int,
    console: Console,
) -> None:
    """What became of a prefix on a replica: the verdict, then the moments of each stretch of blocks."""
    console.print(Text(_verdict(blocks, f"{of.tenant}/{of.model}/{of.replica}"), style="bold"))
    for block in blocks:
        span = (
            f"block {block.first}" if block.first == block.last else f"blocks {block.first} to {block.last}"
        )
        console.print(f"{span}, from hash {block.hash}: {_standing(block, ttl_us)}", soft_wrap=True)
        if not block.moments:
            continue
        table = _table("message", "time", "what")
        for first, count in _condensed(block.moments):
            times = f", {count} times in a row" if count > 1 else ""
            table.add_row(str(first.sequence), moment(first.time_ns), f"{_what(first)}{times}")
        console.print(table)
    for other in elsewhere:
        kind = "/".join(filter(None, (other.scheme, other.adapter)))
        last = f"last {_what(other.last)} at message {other.last.sequence}"
        console.print(
            f"elsewhere: {other.replica} ({kind}) holds {other.blocks} of these blocks; {last}",
            style="dim",
            soft_wrap=True,
        )


def _verdict(blocks: Sequence[Block], of: str) -> str:
    total = blocks[-1].last
    leading = 0
    for block in blocks:
        if not block.standing.held or block.standing.stale:
            break
        leading = block.last
    if leading == total:
        return f"{of} holds all {total} blocks"
    if not any(block.moments for block in blocks):
        return f"{of} was never seen with any of {total} blocks"
    return f"{of} holds the first {leading} of {total} blocks"


def _standing(block: Block, ttl_us: int) -> str:
    standing = block.standing
    if standing.held:
        age = f"{_seconds(standing.age_us)} old, time to live {_seconds(ttl_us)}"
        doubt = ", uncertain" if standing.uncertain else ""
        stale = "; stale, lookups pass it over" if standing.stale else ""
        return f"held in tier {standing.tier}{doubt}, {age}{stale}"
    if not any(each.what != "not_counted" for each in block.moments):
        return "never seen" if not block.moments else "never counted"
    return "not held"


def _what(told: Moment) -> str:
    text = _WHAT[told.what]
    if told.tier:
        text += f" to tier {told.tier}" if told.what == "moved" else f" in tier {told.tier}"
    return f"{text}: {_WHY.get(told.why, told.why)}" if told.why else text


def _condensed(moments: Iterable[Moment]) -> Iterator[tuple[Moment, int]]:
    """The last of each run of stores that changed nothing, with their number; all others by themselves."""
    run: list[Moment] = []
    for each in moments:
        if run and each.what != "refreshed":
            yield run[-1], len(run)
            run = []
        if each.what == "refreshed":
            run.append(each)
        else:
            yield each, 1
    if run:
        yield run[-1], len(run)


def _at(state: PartitionState) -> str:
    if not state.sequence:
        return "before the first message"
    return f"behind message {state.sequence} of {moment(state.time_ns)}"


def _facts(state: PartitionState) -> str:
    cap = "none" if state.max_entries < 0 else str(state.max_entries)
    return (
        f"log time {moment(state.time_us * 1000)}, log epoch {state.log_epoch or '-'}, owner "
        f"{state.owner or '-'}; {state.entries} keys, cap {cap}, policy revision {state.policy_revision}"
    )


def _changed_facts(before: PartitionState, after: PartitionState) -> Iterator[tuple[str, object, object]]:
    for field, name in (
        ("log_epoch", "log epoch"),
        ("owner", "owner"),
        ("entries", "keys"),
        ("policy_revision", "policy revision"),
        ("max_entries", "cap"),
    ):
        old, new = getattr(before, field), getattr(after, field)
        if old != new:
            yield name, old, new
    lives = {(each.tenant, each.model, each.replica): each.incarnation for each in before.replicas}
    for each in after.replicas:
        key = (each.tenant, each.model, each.replica)
        old = lives.pop(key, None)
        if old != each.incarnation:
            yield (
                "/".join(key),
                "unknown" if old is None else old or "never began",
                each.incarnation or "known",
            )
    for key, old in lives.items():
        yield "/".join(key), old or "known", "forgotten"


def _fields(fields: dict[str, Any]) -> str:
    """What is in a record, in short: of hashes their number, the first and the last."""
    shown = dict(fields)
    hashes = shown.pop("hashes", None)
    shown.pop("token_counts", None)
    if isinstance(hashes, list):
        shown.pop("width", None)
        span = f"{hashes[0]}..{hashes[-1]}" if len(hashes) > 1 else "".join(hashes)
        shown = {"blocks": len(hashes), "hashes": span or "-"} | shown
    if isinstance(shown.get("holds"), list):
        shown["holds"] = len(shown["holds"])
    return " ".join(f"{name}={value}" for name, value in shown.items() if value not in ("", 0, [], None))


def _some(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - _SHOWN_KEYS} more" if len(keys) > _SHOWN_KEYS else ""
    return f"{' '.join(keys[:_SHOWN_KEYS])}{more}"


def _ago(time_us: int, now_us: int) -> str:
    return _seconds(now_us - time_us) if time_us else "-"


def _seconds(microseconds: int) -> str:
    return f"{microseconds / 1e6:.1f} s"


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name)
    return table
