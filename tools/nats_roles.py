"""What each role may do at the NATS server, and the files of the manifests that say so.

A role hears answers below `_INBOX.<role>` alone. Whoever may create streams or consumers can have the server
copy messages to other subjects, so only this software's own processes may, and people who look; sidecars,
which live in the namespaces of users, create nothing.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from inferencecache.core.log.subjects import (
    AGGREGATE,
    EXPLAIN_SUBJECT,
    LAYOUT,
    LAYOUT_KEY,
    MEMBERS,
    POLICY,
    PROBE_SUBJECT,
    REFS,
    SNAPSHOTS,
    WORK_SUBJECT,
    escape,
)
from inferencecache.schemas.ids import PROBE_TENANT

BUCKETS: Final = (LAYOUT, REFS, POLICY, AGGREGATE, MEMBERS)
_HEADING: Final = """\
# Written by `make generate` from tools/nats_roles.py.
# What each role may do at the NATS server; users.conf says who has which.
"""
_API: Final = "$JS.API"
_LAYOUT: Final = f"$KV.{LAYOUT}.{LAYOUT_KEY}"
_READ: Final = (
    *(f"{_API}.{request}" for request in ("INFO", "STREAM.NAMES", "STREAM.LIST")),
    *(f"{_API}.{request}.*" for request in ("STREAM.INFO", "STREAM.MSG.GET", "DIRECT.GET")),
    f"{_API}.CONSUMER.CREATE.*.>",
    *(f"{_API}.CONSUMER.{request}.*.*" for request in ("MSG.NEXT", "DELETE")),
)
_MAKE: Final = (f"{_API}.STREAM.CREATE.*", f"{_API}.STREAM.UPDATE.*", _LAYOUT)
"""For whoever creates the assets: a new stream that turns out too large is made smaller."""
_BUCKETS_STAY: Final = tuple(f"{_API}.STREAM.UPDATE.KV_{bucket}" for bucket in BUCKETS)
_ASK: Final = (EXPLAIN_SUBJECT, f"{EXPLAIN_SUBJECT}.*", PROBE_SUBJECT)
_LOOK_AT_LAYOUT: Final = f"{_API}.STREAM.MSG.GET.KV_{LAYOUT}"


class Role(NamedTuple):
    """`inbox` is the first word of its connections' names; `answers` lets it reply to what it was asked."""

    name: str
    inbox: str
    publish: tuple[str, ...]
    subscribe: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    answers: bool = False
    about: str = ""


def subscriber(name: str, tenant: str) -> Role:
    """The role of sidecars of one tenant's engines, `*` for any; `tenant` is a token of a subject."""
    return Role(
        name,
        "kvevent-subscriber",
        publish=(f"ic.ev.*.*.{tenant}.*.*.e", _LOOK_AT_LAYOUT),
        subscribe=(f"ic.resync.{tenant}.*.*", _LAYOUT),
        never=tuple(f"ic.ev.*.*.{token}.>" for token in ("_", escape(PROBE_TENANT))),
        about="Sidecars: append what their own engines do, and hear of the layout and of resyncs.",
    )


ROLES: Final = (
    Role(
        "INDEXER",
        "indexer",
        publish=(
            *(*_READ, *_MAKE),
            *("ic.ev.*.*._.o", "ic.dl.*.*", "ic.resync.*.*.*", "ic.snapshot.*.*"),
            *(f"$KV.{REFS}.*.*", f"$KV.{AGGREGATE}.*.*", f"$KV.{MEMBERS}.indexer.*"),
            *(f"$O.{SNAPSHOTS}.>", f"{_API}.STREAM.PURGE.*"),
        ),
        subscribe=("ic.snapshot.*.*",),
        never=(*_BUCKETS_STAY, *(f"{_API}.STREAM.PURGE.KV_{bucket}" for bucket in BUCKETS)),
        about="Owns partitions: control records, deltas, snapshots, references, aggregates.",
    ),
    Role(
        "ROUTER",
        "router",
        publish=(
            *(*_READ, *_MAKE),
            *("ic.ev.*.*.*.*.*.g", "ic.ev.*.*._.r", "ic.snapshot.*.*", WORK_SUBJECT),
            f"$KV.{MEMBERS}.router.*",
        ),
        subscribe=(WORK_SUBJECT, *_ASK),
        never=_BUCKETS_STAY,
        answers=True,
        about="Answers lookups, and appends for producers that speak gRPC.",
    ),
    Role(
        "CONTROLLER",
        "controller",
        publish=(
            *(*_READ, *_MAKE),
            *("ic.ev.*.*._.c", PROBE_SUBJECT, f"$KV.{POLICY}.>", f"$KV.{MEMBERS}.controller.*"),
        ),
        never=_BUCKETS_STAY,
        about="Writes the policy, tells of deleted pods, asks for probes.",
    ),
    Role(
        "OBSERVER",
        "inferencecache",
        publish=(*_READ, *_ASK),
        about="The command `inferencecache` for people who look: it changes nothing.",
    ),
    Role(
        "ADMIN",
        "inferencecache",
        publish=(
            *(*_READ, *_ASK),
            *(_LAYOUT, f"$KV.{POLICY}.>", f"{_API}.STREAM.DELETE.*", f"{_API}.STREAM.PURGE.*"),
        ),
        about="The command `inferencecache` for people who change layout and policy, and prune.",
    ),
)


def permissions_files() -> dict[str, str]:
    """A variable for each role, for `users.conf` to give to users; the server refuses one that is not used,
    so that of sidecars of any tenant, which not every installation has, is in a file of its own.
    """
    parts = {"permissions.conf": ROLES, "subscriber.conf": (subscriber("SUBSCRIBER", "*"),)}
    return {name: "\n".join((_HEADING, *map(written, roles))) for name, roles in parts.items()}


def written(role: Role) -> str:
    """The role as a variable of the server's configuration."""
    allowed = {"publish": role.publish, "subscribe": (f"_INBOX.{role.inbox}.>", *role.subscribe)}
    lines = [f"# {role.about}", f"{role.name}: {{"]
    for what, subjects in allowed.items():
        lines += [f"  {what}: {{", *_list("allow", subjects)]
        if what == "publish" and role.never:
            lines += _list("deny", role.never)
        lines.append("  }")
    if role.answers:
        lines.append('  allow_responses: { max: 1, expires: "30s" }')
    return "\n".join((*lines, "}", ""))


def _list(name: str, subjects: tuple[str, ...]) -> list[str]:
    return [f"    {name}: [", *(f"      {json.dumps(subject)}" for subject in subjects), "    ]"]
