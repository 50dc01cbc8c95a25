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
from inferencecache.core.service import RefusedError, get_logger
from inferencecache.schemas.layout import SCHEMA_VERSION, CurrentLayout, Layout
from inferencecache.schemas.unreadable import UNREADABLE

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


class LayoutUnusableError(RefusedError):
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


class UnsafeRetentionError(RefusedError):
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


class StoreTooSmallError(RefusedError):
    """The server's store cannot reserve even the least size of a stream."""

    def __init__(self, stream: str, description: str) -> None:
        super().__init__(f"stream {stream}: {description}; raise max_file_store in the NATS configuration")
        self.stream = stream


class NotClusteredError(RefusedError):
    """Copies were asked for, of a server that has none to make them on."""

    def __init__(self, replicas: int) -> None:
        super().__init__(
            f"--nats-replicas={replicas} needs a NATS cluster of at least {replicas} servers, and --nats-url "
            "leads to a server that is alone; set --nats-replicas=1, or make it a cluster"
        )
        self.replicas = replicas


class TooFewServersError(ApiError):
    """Not as many servers of the cluster run as copies were asked for; more may come."""

    def __init__(self, error: ApiError, replicas: int) -> None:
        description = f"{error.description}; --nats-replicas={replicas} needs that many servers that run"
        super().__init__(error.request, error.code, error.err_code, description)
        self.replicas = replicas


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
    def divide(cls, store: int, partitions: int, older: int = 0) -> Sizes:
        """A fifth of the store for snapshots, seven tenths for the logs and deltas of all generations.

        Streams reserve their room, so the first generation takes half of it, one that is created beside
        `older` others half of what these leave: the streams of a next one always fit.
        """
        share = 2 ** (older + 1)
        return cls(store // 2 // share // partitions, store // 5 // share // partitions, store // 5)


def declare(
    layout: Layout, store: int, *, replicas: int = 1, retention_s: float = RETENTION_S
) -> list[dict[str, Any]]:
    """The configuration of every stream behind the assets of all generations; `store` has so many bytes."""
    declared = [
        _bucket(subjects.LAYOUT, replicas),
        _bucket(subjects.REFS, replicas),
        _bucket(subjects.POLICY, replicas, history=POLICY_HISTORY),
        _bucket(subjects.AGGREGATE, replicas),
        _members(replicas),
        _object_store(
            subjects.SNAPSHOTS, replicas, Sizes.divide(store, layout.partitions).snapshots, 2 * retention_s
        ),
    ]
    for older, generation in enumerate(layout.generations):
        sizes = Sizes.divide(store, generation.partitions, older)
        for partition in range(generation.partitions):
            at = (generation.generation, partition)
            events, deltas = subjects.events_stream(*at), subjects.deltas_stream(*at)
            declared += [
                _stream(events, subjects.events_subjects(*at), replicas, sizes.events, retention_s)
                | {"compression": "s2"},
                _stream(deltas, subjects.delta_subject(*at), replicas, sizes.deltas, retention_s),
            ]
    return declared


def drifts(config: dict[str, Any], actual: dict[str, Any]) -> list[Drift]:
    """How a stream that exists differs from its declaration; its size is the server's to grant."""
    return [
        Drift(config["name"], setting, declared, actual.get(setting))
        for setting, declared in config.items()
        if setting != "max_bytes" and actual.get(setting, False) != declared
    ]


def store_of(account: jetstream.AccountInfo) -> int:
    """How much the account may store in bytes, or what is divided where it does not say."""
    return account.limits.max_storage if account.limits.max_storage > 0 else DEFAULT_STORE_BYTES


async def ensure_assets(
    log: Log,
    layout: Layout,
    *,
    replicas: int = 1,
    retention_s: float = RETENTION_S,
    snapshot_period_s: float = SNAPSHOT_PERIOD_S,
) -> list[Drift]:
    """Create what is missing; what differs from the declaration is logged and returned.

    A server that does not say how much it can store is asked for less until it can reserve all of it,
    and then for half of that: a next generation needs room beside.

    Raises UnsafeRetentionError, StoreTooSmallError, NotClusteredError, ApiError, NoAnswerError.
    """
    store = store_of(await jetstream.account_info(log)) // replicas
    least_age_s = SNAPSHOT_PERIODS_KEPT * snapshot_period_s
    created: set[str] = set()
    is_learned = False
    while True:
        drifts: list[Drift] = []
        try:
            for config in declare(layout, store, replicas=replicas, retention_s=retention_s):
                drifts += await _ensure(log, config, least_age_s, created)
            break
        except _NoRoomError as error:
            if error.max_bytes <= LEAST_STREAM_BYTES:
                raise StoreTooSmallError(error.stream, error.description) from None
            store, is_learned = store // 2, True
            await _shrink(log, created, declare(layout, store, replicas=replicas, retention_s=retention_s))
    if is_learned:
        await _shrink(log, created, declare(layout, store // 2, replicas=replicas, retention_s=retention_s))
    for drift in drifts:
        logger.warning("asset_drift", **drift._asdict())
    return drifts


async def ensure_members(log: Log, *, replicas: int = 1) -> None:
    """Create the bucket of members again: it lives in memory and goes with the server."""
    await _ensure(log, _members(replicas), 0.0, set())


async def ensure_layout(log: Log, *, default: Layout, replicas: int = 1) -> CurrentLayout:
    """The layout in force; `default` becomes it when there is none yet. Raises LayoutUnusableError."""
    await _ensure(log, _bucket(subjects.LAYOUT, replicas), 0.0, set())
    while True:
        layout = await read_layout(log)
        if layout is not None:
            return layout
        try:
            await Bucket(log, subjects.LAYOUT).create(subjects.LAYOUT_KEY, msgspec.json.encode(default))
        except (WrongLastSequenceError, NotStoredError) as error:
            logger.info("layout_contended", error=str(error))


class LayoutEntry(NamedTuple):
    """The layout in force and the revision under which it may be replaced."""

    layout: CurrentLayout
    revision: int


async def read_layout(log: Log) -> CurrentLayout | None:
    """The layout in force, None when nobody has set one. Raises LayoutUnusableError."""
    entry = await read_layout_entry(log)
    return entry.layout if entry is not None else None


async def read_layout_entry(log: Log) -> LayoutEntry | None:
    """As `read_layout`, for whoever means to change it."""
    try:
        entry = await Bucket(log, subjects.LAYOUT).get(subjects.LAYOUT_KEY)
    except NoStreamError:
        return None
    if entry is None:
        return None
    try:
        layout = msgspec.json.decode(entry.value, type=CurrentLayout)
    except UNREADABLE as error:
        raise LayoutUnreadableError(str(error)) from None
    for generation in layout.generations:
        if generation.schema > SCHEMA_VERSION:
            raise LayoutTooNewError(generation.schema)
        if generation.partitions < 1:
            raise LayoutUnreadableError(f"it has {generation.partitions} partitions")
    return LayoutEntry(layout, entry.revision)


async def wait_for_layout(log: Log) -> CurrentLayout:
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


class _NoRoomError(Exception):
    """The server cannot reserve `max_bytes` for a stream."""

    def __init__(self, stream: str, max_bytes: int, description: str) -> None:
        super().__init__(description)
        self.stream = stream
        self.max_bytes = max_bytes
        self.description = description


async def _ensure(log: Log, config: dict[str, Any], least_age_s: float, created: set[str]) -> list[Drift]:
    """Create one stream, whose name is then among `created`, or say how the one that exists differs."""
    name = config["name"]
    try:
        await jetstream.create_stream(log, config)
    except ApiError as error:
        if error.err_code == jetstream.INSUFFICIENT_STORAGE:
            raise _NoRoomError(name, config["max_bytes"], error.description) from None
        if error.err_code == jetstream.NOT_CLUSTERED:
            raise NotClusteredError(config["num_replicas"]) from None
        if error.err_code == jetstream.NO_PEERS:
            raise TooFewServersError(error, config["num_replicas"]) from None
        if error.err_code != jetstream.NAME_IN_USE:
            raise
    else:
        created.add(name)
        return []
    actual = (await jetstream.stream_info(log, name)).config
    max_age_ns = actual.get("max_age", 0)
    if name.startswith("IC_") and 0 < max_age_ns < least_age_s * 1e9:
        raise UnsafeRetentionError(name, max_age_ns / 1e9, least_age_s)
    return drifts(config, actual)


async def _shrink(log: Log, created: set[str], declared: list[dict[str, Any]]) -> None:
    """Reserve no more than declared for streams that were just created and hold nothing yet."""
    for config in declared:
        if config["name"] in created and config["max_bytes"] > 0:
            info = await jetstream.stream_info(log, config["name"])
            if info.state.last_seq == 0 and info.config["max_bytes"] > config["max_bytes"]:
                await jetstream.update_stream(log, info.config | {"max_bytes": config["max_bytes"]})


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
