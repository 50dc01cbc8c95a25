"""Every stream and bucket of an installation, declared in one place, created by the first that needs them.

Indexers, routers and controllers call `ensure_assets` when they start and after every reconnect; a
sidecar only waits (`wait_for_layout`). Creating what exists changes nothing. What exists otherwise
than declared is reported, never changed behind an operator's back, and refused when it would lose
data: a log that forgets before its snapshots cover it.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple

import msgspec

from inferencecache.core.log import jetstream, subjects
from inferencecache.core.log.buckets import Bucket
from inferencecache.core.log.connection import Log
from inferencecache.core.log.inbox import NoAnswerError
from inferencecache.core.log.jetstream import ApiError, NoStreamError
from inferencecache.core.log.publisher import NotStoredError, WrongLastSequenceError
from inferencecache.core.service import get_logger
from inferencecache.schemas.layout import SCHEMA_VERSION, Layout

RETENTION_S: Final = 24 * 3600.0
SNAPSHOT_PERIOD_S: Final = 3600.0
"""Longest time between two snapshots of a partition."""
SNAPSHOT_PERIODS_KEPT: Final = 3
DUPLICATE_WINDOW_S: Final = 120.0
MEMBERS_AGE_S: Final = 10.0
POLICY_HISTORY: Final = 64
DEFAULT_STORE_BYTES: Final = 8 * 1024**3
"""Divided over the streams when the NATS account states no storage limit."""
LEAST_STREAM_BYTES: Final = 16 * 1024**2
_WAIT_S: Final = 0.5

logger = get_logger("log")


class LayoutUnusableError(Exception):
    """There is a layout, and this process cannot work by it."""


class LayoutUnreadableError(LayoutUnusableError):
    """The value of the layout is no layout: somebody else than this software wrote it."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"{subjects.LAYOUT} holds no layout under `{subjects.LAYOUT_KEY}`: {reason}; restore its last "
            "value, or delete the key where nothing is stored yet"
        )
        self.reason = reason


class LayoutTooNewError(LayoutUnusableError):
    """The log is written in a newer schema than this version reads."""

    def __init__(self, schema: int) -> None:
        super().__init__(
            f"the layout names schema {schema}, this version reads up to {SCHEMA_VERSION}; upgrade it"
        )
        self.schema = schema


class UnsafeRetentionError(Exception):
    """A stream exists that forgets before snapshots cover what it forgets."""

    def __init__(self, stream: str, max_age_s: float, needed_s: float) -> None:
        super().__init__(
            f"stream {stream} keeps messages for {max_age_s:.0f} s, at least {needed_s:.0f} s are needed; "
            f"raise its max_age (nats stream edit {stream} --max-age), or snapshot more often "
            "(--snapshot-interval)"
        )
        self.stream = stream
        self.max_age_s = max_age_s
        self.needed_s = needed_s


class StoreTooSmallError(Exception):
    """The server's store cannot reserve even the least size of a stream."""

    def __init__(self, stream: str, description: str) -> None:
        super().__init__(f"stream {stream}: {description}; raise max_file_store in the NATS configuration")
        self.stream = stream


class Drift(NamedTuple):
    """A setting of an existing stream that is not as declared."""

    stream: str
    setting: str
    declared: object
    actual: object


class Sizes(NamedTuple):
    """Bytes reserved at creation: one events stream, one deltas stream, the snapshot store."""

    events: int
    deltas: int
    snapshots: int

    @classmethod
    def divide(cls, store: int, partitions: int) -> Sizes:
        """Half of the store for the log, a fifth each for deltas and snapshots, the rest for buckets."""
        return cls(store // 2 // partitions, store // 5 // partitions, store // 5)


def declare(
    layout: Layout, sizes: Sizes, *, replicas: int = 1, retention_s: float = RETENTION_S
) -> list[dict[str, Any]]:
    """The configuration of every stream behind the assets of one layout generation."""
    generation = layout.generation
    declared = [
        _bucket(subjects.LAYOUT, replicas),
        _bucket(subjects.REFS, replicas),
        _bucket(subjects.POLICY, replicas, history=POLICY_HISTORY),
        _bucket(subjects.AGGREGATE, replicas),
        _members(replicas),
        _object_store(subjects.SNAPSHOTS, replicas, sizes.snapshots, 2 * retention_s),
    ]
    for partition in range(layout.partitions):
        events = subjects.events_stream(generation, partition)
        deltas = subjects.deltas_stream(generation, partition)
        declared += [
            _stream(
                events, subjects.events_subjects(generation, partition), replicas, sizes.events, retention_s
            )
            | {"compression": "s2"},
            _stream(
                deltas, subjects.delta_subject(generation, partition), replicas, sizes.deltas, retention_s
            ),
        ]
    return declared


async def ensure_assets(
    log: Log,
    layout: Layout,
    *,
    replicas: int = 1,
    retention_s: float = RETENTION_S,
    snapshot_period_s: float = SNAPSHOT_PERIOD_S,
) -> list[Drift]:
    """Create what is missing; what differs from the declaration is logged and returned.

    Raises UnsafeRetentionError, StoreTooSmallError, ApiError, NoAnswerError.
    """
    account = await jetstream.account_info(log)
    store = account.limits.max_storage if account.limits.max_storage > 0 else DEFAULT_STORE_BYTES
    sizes = Sizes.divide(store // replicas, layout.partitions)
    drifts: list[Drift] = []
    for config in declare(layout, sizes, replicas=replicas, retention_s=retention_s):
        drifts += await _ensure(log, config, SNAPSHOT_PERIODS_KEPT * snapshot_period_s)
    for drift in drifts:
        logger.warning("asset_drift", **drift._asdict())
    return drifts


async def ensure_members(log: Log, *, replicas: int = 1) -> None:
    """Create the bucket of members again: it lives in memory and goes with the server."""
    await _ensure(log, _members(replicas), 0.0)


async def ensure_layout(log: Log, *, default: Layout, replicas: int = 1) -> Layout:
    """The layout in force; `default` becomes it when there is none yet. Raises LayoutUnusableError."""
    await _ensure(log, _bucket(subjects.LAYOUT, replicas), 0.0)
    while True:
        layout = await read_layout(log)
        if layout is not None:
            return layout
        try:
            await Bucket(log, subjects.LAYOUT).create(subjects.LAYOUT_KEY, msgspec.json.encode(default))
        except (WrongLastSequenceError, NotStoredError) as error:
            logger.info("layout_contended", error=str(error))


async def read_layout(log: Log) -> Layout | None:
    """The layout in force, None when nobody has set one. Raises LayoutUnusableError."""
    try:
        entry = await Bucket(log, subjects.LAYOUT).get(subjects.LAYOUT_KEY)
    except NoStreamError:
        return None
    if entry is None:
        return None
    try:
        layout = msgspec.json.decode(entry.value, type=Layout)
    except (msgspec.DecodeError, ValueError) as error:
        raise LayoutUnreadableError(str(error)) from None
    if layout.schema > SCHEMA_VERSION:
        raise LayoutTooNewError(layout.schema)
    if layout.partitions < 1:
        raise LayoutUnreadableError(f"it has {layout.partitions} partitions")
    return layout


async def wait_for_layout(log: Log) -> Layout:
    """The layout, as soon as somebody has set one: how a process that creates nothing starts."""
    while True:
        try:
            layout = await read_layout(log)
        except (NoAnswerError, ApiError) as error:
            logger.info("layout_unreadable", error=str(error))
        else:
            if layout is not None:
                return layout
        await asyncio.sleep(_WAIT_S)


async def _ensure(log: Log, config: dict[str, Any], least_age_s: float) -> list[Drift]:
    while True:
        try:
            await jetstream.create_stream(log, config)
            return []
        except ApiError as error:
            if error.err_code == jetstream.NAME_IN_USE:
                break
            if error.err_code != jetstream.INSUFFICIENT_STORAGE:
                raise
            if config["max_bytes"] <= LEAST_STREAM_BYTES:
                raise StoreTooSmallError(config["name"], error.description) from None
            config = config | {"max_bytes": max(config["max_bytes"] // 2, LEAST_STREAM_BYTES)}
    actual = (await jetstream.stream_info(log, config["name"])).config
    max_age_ns = actual.get("max_age", 0)
    if config["name"].startswith("IC_") and 0 < max_age_ns < least_age_s * 1e9:
        raise UnsafeRetentionError(config["name"], max_age_ns / 1e9, least_age_s)
    return [
        Drift(config["name"], setting, declared, actual.get(setting))
        for setting, declared in config.items()
        if setting != "max_bytes" and actual.get(setting, False) != declared
    ]


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)


def _stream(name: str, subject: str, replicas: int, max_bytes: int, max_age_s: float) -> dict[str, Any]:
    return {
        "name": name,
        "subjects": [subject],
        "storage": "file",
        "retention": "limits",
        "discard": "old",
        "num_replicas": replicas,
        "max_bytes": max(max_bytes, LEAST_STREAM_BYTES),
        "max_age": _ns(max_age_s),
        "duplicate_window": _ns(DUPLICATE_WINDOW_S),
        "allow_direct": True,
    }


def _bucket(name: str, replicas: int, *, history: int = 1) -> dict[str, Any]:
    return {
        "name": f"KV_{name}",
        "subjects": [f"$KV.{name}.>"],
        "storage": "file",
        "retention": "limits",
        "discard": "new",
        "num_replicas": replicas,
        "max_msgs_per_subject": history,
        "max_bytes": -1,
        "duplicate_window": _ns(DUPLICATE_WINDOW_S),
        "allow_rollup_hdrs": True,
        "allow_direct": True,
        "deny_delete": True,
    }


def _members(replicas: int) -> dict[str, Any]:
    """In memory, and a member that stopped writing leaves a marker when its row expires."""
    return _bucket(subjects.MEMBERS, replicas) | {
        "storage": "memory",
        "max_age": _ns(MEMBERS_AGE_S),
        "duplicate_window": _ns(MEMBERS_AGE_S),
        "allow_msg_ttl": True,
        "subject_delete_marker_ttl": _ns(MEMBERS_AGE_S),
    }


def _object_store(name: str, replicas: int, max_bytes: int, max_age_s: float) -> dict[str, Any]:
    return {
        "name": f"OBJ_{name}",
        "subjects": [f"$O.{name}.C.>", f"$O.{name}.M.>"],
        "storage": "file",
        "retention": "limits",
        "discard": "new",
        "num_replicas": replicas,
        "max_bytes": max(max_bytes, LEAST_STREAM_BYTES),
        "max_age": _ns(max_age_s),
        "duplicate_window": _ns(DUPLICATE_WINDOW_S),
        "allow_rollup_hdrs": True,
        "allow_direct": True,
    }
