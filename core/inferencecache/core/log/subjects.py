"""Names in the log: streams, buckets, subjects, and the partition a replica's messages belong to.

Identity travels in subjects, so that NATS permissions can restrict it. An id becomes one subject
token by a reversible escape: letters, digits, `-`, `_` and `/` stand for themselves, every other
UTF-8 byte is `=XX` (upper-case hexadecimal), the empty id is `=`, and the id `_`, which marks control
subjects, is `=5F`. Only this canonical spelling is read: a second one for the same id would slip
past a permission that names the first.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

from xxhash import xxh3_64_intdigest

from inferencecache.schemas.ids import MAX_ID_BYTES, ModelId, ReplicaId, TenantId
from inferencecache.schemas.layout import Layout
from inferencecache.schemas.senders import ControlSender, ReplicaSender, Sender

SNAPSHOTS: Final = "IC_SNAPSHOTS"
"""Object store; the others below are KV buckets."""
REFS: Final = "IC_REFS"
POLICY: Final = "IC_POLICY"
AGGREGATE: Final = "IC_AGGREGATE"
MEMBERS: Final = "IC_MEMBERS"
LAYOUT: Final = "IC_LAYOUT"

POLICY_KEY: Final = "set"
LAYOUT_KEY: Final = "layout"
PROBE_SUBJECT: Final = "ic.probe"
EXPLAIN_SUBJECT: Final = "ic.explain"
WORK_SUBJECT: Final = "ic.work"

_PLAIN: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_/")
_ESCAPES: Final = tuple(chr(b) if b in _PLAIN else f"={b:02X}" for b in range(256))
_NEEDS_ESCAPE: Final = re.compile(r"[^-_/A-Za-z0-9]")
_ESCAPED_BYTE: Final = re.compile(rb"=([0-9A-F]{2})")
_CONTROL: Final = "_"
_PARTITION_STREAM: Final = re.compile(r"IC_(?:EVENTS|DELTAS)_([0-9]+)_[0-9]+")


class InvalidIdError(ValueError):
    """An id that no subject can carry: over 255 bytes, or not encodable as UTF-8."""


class UnknownSubjectError(ValueError):
    """A subject that no sender of this version uses; its message is dropped and counted."""


def escape(id_: str) -> str:
    """One subject token (or KV key token) for an id. Raises InvalidIdError."""
    if not _NEEDS_ESCAPE.search(id_) and 0 < len(id_) <= MAX_ID_BYTES and id_ != _CONTROL:
        return id_
    try:
        raw = id_.encode()
    except UnicodeEncodeError as error:
        raise InvalidIdError("an id must be valid Unicode text") from error
    if len(raw) > MAX_ID_BYTES:
        raise InvalidIdError(f"an id has at most {MAX_ID_BYTES} UTF-8 bytes, this one has {len(raw)}")
    if not raw:
        return "="
    if id_ == _CONTROL:
        return "=5F"
    return "".join(_ESCAPES[b] for b in raw)


def unescape(token: str) -> str:
    """The id of a token. Raises UnknownSubjectError unless the token is the canonical one of an id."""
    if not _NEEDS_ESCAPE.search(token) and 0 < len(token) <= MAX_ID_BYTES and token != _CONTROL:
        return token
    try:
        raw = _ESCAPED_BYTE.sub(_unescape_byte, token.encode()) if len(token) > 1 else b""
        id_ = raw.decode()
        if escape(id_) == token:
            return id_
    except ValueError:
        pass
    raise UnknownSubjectError("a token is no canonical escape of an id")


def _unescape_byte(match: re.Match[bytes]) -> bytes:
    return bytes.fromhex(match[1].decode())


def partition_of(tenant: str, model: str, replica: str, layout: Layout) -> int:
    """The partition of one replica's messages.

    (XXH3-64(length-prefixed tenant, model) + lane) mod count, lane = XXH3-64(replica) mod lanes; a
    length prefix is 4 bytes, big-endian.
    """
    lane = xxh3_64_intdigest(replica.encode()) % layout.lanes_of(tenant, model)
    return (_domain_hash(tenant, model) + lane) % layout.partitions


def partitions_of(tenant: str, model: str, layout: Layout) -> tuple[int, ...]:
    """Every partition that may hold replicas of (tenant, model), one a lane, distinct."""
    first = _domain_hash(tenant, model)
    lanes = min(layout.lanes_of(tenant, model), layout.partitions)
    return tuple((first + lane) % layout.partitions for lane in range(lanes))


def _domain_hash(tenant: str, model: str) -> int:
    parts = (tenant.encode(), model.encode())
    return xxh3_64_intdigest(b"".join(len(part).to_bytes(4, "big") + part for part in parts))


def events_stream(generation: int, partition: int) -> str:
    return f"IC_EVENTS_{generation}_{partition}"


def events_subjects(generation: int, partition: int) -> str:
    """Wildcard over everything an events stream stores."""
    return f"ic.ev.{generation}.{partition}.>"


def deltas_stream(generation: int, partition: int) -> str:
    return f"IC_DELTAS_{generation}_{partition}"


def generation_of_stream(name: str) -> int | None:
    """The layout generation of an events or deltas stream; None for any other stream."""
    match = _PARTITION_STREAM.fullmatch(name)
    return int(match[1]) if match is not None else None


def delta_subject(generation: int, partition: int) -> str:
    return f"ic.dl.{generation}.{partition}"


def partition_key(generation: int, partition: int) -> str:
    """Key of a partition in `IC_REFS`, `IC_AGGREGATE` and members' values."""
    return f"{generation}.{partition}"


def budget_key(generation: int) -> str:
    """Key in `IC_AGGREGATE` of how a generation's partitions share the cap and quotas."""
    return f"{generation}.budget"


def member_key(role: Literal["indexer", "router", "controller"], id_: str) -> str:
    """Key of a member in `IC_MEMBERS`."""
    return f"{role}.{escape(id_)}"


class PolicyKey(NamedTuple):
    """A key of `IC_POLICY` that names something: a template or topology, or an object as it was applied.

    `ids` are namespace and name, for an object its kind before them.
    """

    family: Literal["template", "topology", "object"]
    ids: tuple[str, ...]


def template_key(namespace: str, name: str) -> str:
    """Key of a resolved prompt template in `IC_POLICY`. Raises InvalidIdError."""
    return f"template.{escape(namespace)}.{escape(name)}"


def topology_key(namespace: str, name: str) -> str:
    """Key of a resolved prefill/decode topology in `IC_POLICY`. Raises InvalidIdError."""
    return f"topology.{escape(namespace)}.{escape(name)}"


def object_key(kind: str, namespace: str, name: str) -> str:
    """Key of a custom resource that is kept in `IC_POLICY` for want of a cluster. Raises InvalidIdError."""
    return f"object.{escape(kind)}.{escape(namespace)}.{escape(name)}"


def parse_policy_key(key: str) -> PolicyKey:
    """What a key of `IC_POLICY` other than `set` names. Raises UnknownSubjectError."""
    match key.split("."):
        case [("template" | "topology") as family, namespace, name]:
            return PolicyKey(family, (unescape(namespace), unescape(name)))
        case ["object", kind, namespace, name]:
            return PolicyKey("object", (unescape(kind), unescape(namespace), unescape(name)))
    raise UnknownSubjectError(f"a key of {len(key)} characters names nothing in {POLICY}")


def replica_subject(generation: int, partition: int, sender: ReplicaSender) -> str:
    """Subject of messages about one replica. Raises InvalidIdError."""
    ids = f"{escape(sender.tenant)}.{escape(sender.model)}.{escape(sender.replica)}"
    return f"ic.ev.{generation}.{partition}.{ids}.{sender.channel}"


def control_subject(generation: int, partition: int, role: Literal["o", "c", "r"]) -> str:
    """Subject of messages about a whole partition."""
    return f"ic.ev.{generation}.{partition}._.{role}"


def parse_subject(subject: str) -> tuple[int, int, Sender]:
    """Generation, partition and sender of an events subject. Raises UnknownSubjectError."""
    match subject.split("."):
        case ["ic", "ev", generation, partition, "_", ("o" | "c" | "r") as role]:
            sender: Sender = ControlSender(role)
        case ["ic", "ev", generation, partition, tenant, model, replica, ("e" | "g") as channel]:
            sender = ReplicaSender(
                TenantId(unescape(tenant)),
                ModelId(unescape(model)),
                ReplicaId(unescape(replica)),
                channel,
            )
        case _:
            raise UnknownSubjectError(f"a subject of {len(subject)} characters names no sender")
    return _number(generation), _number(partition), sender


def _number(digits: str) -> int:
    if digits.isascii() and digits.isdecimal() and (digits == "0" or not digits.startswith("0")):
        return int(digits)
    raise UnknownSubjectError("generation and partition are plain decimal numbers")


def resync_subject(tenant: str, model: str, replica: str) -> str:
    """Where an owner asks a replica's producer to begin anew. Raises InvalidIdError."""
    return f"ic.resync.{escape(tenant)}.{escape(model)}.{escape(replica)}"


def explain_subject(router: str) -> str:
    """Where the router of that id is asked to explain a lookup; on `EXPLAIN_SUBJECT` any one is."""
    return f"{EXPLAIN_SUBJECT}.{escape(router)}"


def snapshot_request_subject(generation: int, partition: int) -> str:
    """Where readers ask the owner of a partition for a fresh snapshot."""
    return f"ic.snapshot.{generation}.{partition}"
