"""Makes the reference of the log: streams, buckets, subjects, and every record."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any, Final, get_args

import msgspec

from inferencecache.core.log import subjects
from inferencecache.schemas import records
from inferencecache.schemas.ids import MAX_ID_BYTES
from inferencecache.schemas.senders import ReplicaSender
from tools.docs.tables import cell, table

_RULES: Final = re.compile(r" \[[A-Z]+-[^]]*\]")
_INTRODUCTION: Final = """\
# Event log

All state is in NATS JetStream. `g` is the generation of the [layout](../layout.md), `p` a partition. Who
may write what is in [ownership](../ownership.md); which NATS user may do so, in
`deploy/base/nats/permissions.conf`.
"""
_IDS: Final = f"""\
An id in a subject is one token: letters, digits, `-`, `_` and `/` stand for themselves, any other byte of
UTF-8 is `=` and two hexadecimal digits, so `org/model.v1` is `{subjects.escape("org/model.v1")}`. The empty
id is `{subjects.escape("")}`. An id has at most {MAX_ID_BYTES} bytes."""
_BATCH: Final = """\
One message of an events stream is one `Batch` in MessagePack; structs are arrays with their fields in the
order below. A record is an array that begins with its tag. A reader skips tags that it does not know and
takes defaults for fields that are missing at the end, so both may be added. JSON Schemas are in
[`batch.schema.json`](../../schemas/generated/json-schema/batch.schema.json) and its neighbours."""


def event_log_page() -> dict[str, str]:
    """One page."""
    lines = [_INTRODUCTION, "## Streams and buckets", "", *table(("Asset", "Kind", "Content"), _assets())]
    lines += ["", "## Subjects", "", *table(("Subject", "Who sends", "What"), _subjects())]
    lines += [
        "",
        _IDS,
        "",
        "## Batch",
        "",
        _BATCH,
        "",
        *_fields(records.Batch),
    ]
    for record in record_types():
        tag = record.__struct_config__.tag
        lines += ["", f"## {record.__name__}", "", f"Tag {tag}. {_about(record)}", ""]
        lines += _fields(record) if record.__struct_fields__ else ["No fields."]
    nested = (records.TenantPolicy, records.TenantQuota, records.CreditedHolds)
    for part in nested:
        lines += ["", f"## {part.__name__}", "", _about(part), "", *_fields(part)]
    return {"event-log.md": "\n".join([*lines, "", "Written by `make generate` from the schemas.", ""])}


def record_types() -> tuple[type[records.Record], ...]:
    """Every record, by its tag."""
    return tuple(sorted(get_args(records.AnyRecord), key=lambda record: record.__struct_config__.tag))


def _assets() -> Iterator[tuple[str, str, str]]:
    events, deltas = subjects.events_stream(1, 0), subjects.deltas_stream(1, 0)
    yield f"`{events}`, … `IC_EVENTS_<g>_<p>`", "stream", "the log of a partition, kept for 24 h"
    yield (
        f"`{deltas}`, … `IC_DELTAS_<g>_<p>`",
        "stream",
        "what changed in a partition's index, purged behind snapshots",
    )
    yield f"`{subjects.SNAPSHOTS}`", "object store", "snapshots of the index, under names that are used once"
    yield f"`{subjects.REFS}`", "bucket", "which snapshots of a partition are current and previous"
    yield (
        f"`{subjects.POLICY}`",
        "bucket",
        f"`{subjects.POLICY_KEY}`: the policy set; templates and topologies",
    )
    yield (
        f"`{subjects.AGGREGATE}`",
        "bucket",
        "counts of each partition; `<g>.budget`: how cap and quotas are divided",
    )
    yield f"`{subjects.MEMBERS}`", "bucket, in memory", "who is alive, told once a second"
    yield f"`{subjects.LAYOUT}`", "bucket", f"`{subjects.LAYOUT_KEY}`: generations, partitions and lanes"


def _subjects() -> Iterator[tuple[str, str, str]]:
    def replica(channel: Any) -> str:
        sender = ReplicaSender("TENANT", "MODEL", "REPLICA", channel)  # type: ignore[arg-type] # placeholders
        return subjects.replica_subject(1, 0, sender)

    yield f"`{replica('e')}`", "the replica's sidecar", "what its engine holds"
    yield f"`{replica('g')}`", "routers", "reports that came over gRPC"
    yield (
        f"`{subjects.control_subject(1, 0, 'o')}`",
        "the owner",
        "`Claim`, `Tick`, `PolicyApplied`, `Budget`",
    )
    yield f"`{subjects.control_subject(1, 0, 'r')}`", "routers", "`Credit`"
    yield f"`{subjects.control_subject(1, 0, 'c')}`", "the controller", "`Gone`"
    yield f"`{subjects.delta_subject(1, 0)}`", "the owner", "deltas"
    yield (
        f"`{subjects.resync_subject('TENANT', 'MODEL', 'REPLICA')}`",
        "the owner",
        "a sidecar is to begin anew",
    )
    yield f"`{subjects.snapshot_request_subject(1, 0)}`", "readers", "the owner is to write a snapshot"
    yield (
        f"`{subjects.PROBE_SUBJECT}`",
        "the controller, `doctor`",
        "a router is to try the way through the log",
    )
    yield f"`{subjects.EXPLAIN_SUBJECT}`", "`lookup --explain`", "a router is to explain a lookup"
    yield f"`{subjects.WORK_SUBJECT}`", "routers", "work that hints assigned"


def _about(struct: type) -> str:
    return cell(_RULES.sub("", inspect.getdoc(struct) or ""))


def _fields(struct: type[msgspec.Struct]) -> Iterator[str]:
    rows = []
    for field in msgspec.structs.fields(struct):
        default = "" if field.default is msgspec.NODEFAULT else f"`{field.default!r}`"
        kind = "records" if field.name == "records" else _kind(field.type)
        rows.append((f"`{field.name}`", kind, default))
    yield from table(("Field", "Type", "Default"), rows)


def _kind(annotation: Any) -> str:
    if arguments := get_args(annotation):
        return f"list of {_kind(arguments[0])}"
    base = getattr(annotation, "__supertype__", annotation)
    names = {str: "string", int: "integer", float: "number", bool: "boolean", bytes: "bytes"}
    if base in names:
        return names[base]
    return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
