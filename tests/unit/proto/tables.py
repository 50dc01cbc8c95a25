"""The tables of the wire contract by hand, and descriptors built from them alone.

This is an independent copy: nothing here reads our `.proto` or its stubs. The descriptors live in a
pool of their own, because two copies of one contract declare the same symbols [WIRE-011].
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

PACKAGE: Final = "inferencecache.v1alpha1"
FILE: Final = "inferencecache/v1alpha1/inferencecache.proto"

MESSAGES: Final = {
    "RenderTemplateRequest": """
        1 template_ref string
        2 variables map<string,string>
        3 tenant_id string
        4 model_id string
    """,
    "RenderTemplateResponse": """
        1 rendered_prompt bytes
        2 stable_prefix_hash bytes
        3 tenant_namespace bytes
        4 reason_code string
        5 template_revision string
    """,
    "SLO": """
        1 ttft_ms int32
        2 tbt_ms int32
    """,
    "LookupRouteRequest": """
        1 model_id string
        2 tenant_id string
        3 prefix_hash bytes
        4 prefix_token_count int32
        5 hash_scheme string
        6 slo SLO
        7 block_hashes repeated bytes
        8 block_token_counts repeated int32
        9 token_ids repeated uint32
        10 prompt_text string
        11 adapter_id string
    """,
    "ReplicaScore": """
        1 replica_id string
        2 score float
        3 matched_tokens int32
        4 estimated_cache_hit_prob float
        5 tier CacheTier
    """,
    "LookupRouteResponse": """
        1 replica_scores repeated ReplicaScore
        2 reason_code string
        3 lookup_latency_us int64
        4 token_ids repeated uint32
        5 adapter_id string
    """,
    "LookupPDRouteRequest": """
        1 model_id string
        2 tenant_id string
        3 prefix_hash bytes
        4 prefix_token_count int32
        5 pd_topology_ref string
        6 hash_scheme string
        7 block_hashes repeated bytes
        8 block_token_counts repeated int32
        9 token_ids repeated uint32
        10 adapter_id string
    """,
    "LookupPDRouteResponse": """
        1 prefill_replica_id string
        2 decode_replica_id string
        3 transport_hint string
        4 reason_code string
    """,
    "PrefixEntry": """
        1 prefix_hash bytes
        2 token_count int32
        3 block_hashes repeated bytes
        4 block_token_counts repeated int32
        5 tier CacheTier
        6 adapter_id string
    """,
    "ReplicaStats": """
        1 replica_id string
        2 cache_memory_bytes int64
        3 hit_rate float
        4 pressure float
        5 client_version string
        6 t2_hit_tokens int64
        7 t2_query_tokens int64
        8 requests_running int64
        9 requests_waiting int64
        10 kv_usage float
    """,
    "CacheStateUpdate": """
        1 replica_id string
        2 model_id string
        3 tenant_id string
        4 hash_scheme string
        5 timestamp_us int64
        6 prefixes repeated PrefixEntry
        7 stats ReplicaStats
        8 adapter_id string
    """,
    "CacheSummary": """
        1 total_prefixes int64
        2 hot_prefixes int64
    """,
    "GetCacheStateRequest": """
        1 model_id string
        2 tenant_id string
    """,
    "GetCacheStateResponse": """
        1 replicas repeated ReplicaStats
        2 summary CacheSummary
    """,
    "CacheEvent": """
        1 type CacheEvent.Type
        2 replica_id string
        3 model_id string
        4 tenant_id string
        5 prefix_hash bytes
        6 timestamp_us int64
        7 adapter_id string
    """,
    "StreamEventsRequest": """
        1 model_id string
        2 tenant_id string
        3 types repeated CacheEvent.Type
    """,
    "StreamMetricsRequest": """
        1 names repeated string
    """,
    "Metric": """
        1 name string
        2 type string
        3 labels map<string,string>
        4 value double
        5 timestamp_us int64
    """,
    "Ack": """
        1 accepted bool
        2 reason_code string
    """,
}

ENUMS: Final = {
    "CacheTier": {
        "CACHE_TIER_UNSPECIFIED": 0,
        "CACHE_TIER_T1": 1,
        "CACHE_TIER_T2": 2,
        "CACHE_TIER_T3": 3,
    },
    "CacheEvent.Type": {
        "TYPE_UNSPECIFIED": 0,
        "PREFIX_ADDED": 1,
        "PREFIX_EVICTED": 2,
        "REPLICA_UPDATED": 3,
        "ALL_CLEARED": 4,
    },
}


class Method(NamedTuple):
    request: str
    response: str
    kind: str


METHODS: Final = {
    "RenderTemplate": Method("RenderTemplateRequest", "RenderTemplateResponse", "unary_unary"),
    "LookupRoute": Method("LookupRouteRequest", "LookupRouteResponse", "unary_unary"),
    "LookupPDRoute": Method("LookupPDRouteRequest", "LookupPDRouteResponse", "unary_unary"),
    "GetCacheState": Method("GetCacheStateRequest", "GetCacheStateResponse", "unary_unary"),
    "ReportCacheState": Method("CacheStateUpdate", "Ack", "stream_unary"),
    "PublishEvent": Method("CacheEvent", "Ack", "unary_unary"),
    "StreamCacheEvents": Method("StreamEventsRequest", "CacheEvent", "unary_stream"),
    "StreamMetrics": Method("StreamMetricsRequest", "Metric", "unary_stream"),
}

NUMERIC: Final = {"int32", "int64", "uint32", "float", "double", "bool"}


class Field(NamedTuple):
    """One row: `kind` is a scalar, a message, an enum, or `map<string,string>`."""

    number: int
    name: str
    kind: str
    repeated: bool

    @property
    def packable(self) -> bool:
        return self.repeated and (self.kind in NUMERIC or self.kind in ENUMS)


def fields_of(message: str) -> list[Field]:
    rows = (line.split() for line in MESSAGES[message].strip().splitlines())
    return [Field(int(row[0]), row[1], row[-1], row[2] == "repeated") for row in rows]


Classes = dict[str, type[Message]]


def classes(*, packed: bool = True, unknown_field: str = "") -> Classes:
    """Message classes from the tables in a new pool.

    `packed=False` writes repeated numbers one by one; `unknown_field` adds a text field of that name
    with number 1000 to every message.
    """
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(_file(packed=packed, unknown_field=unknown_field).SerializeToString())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
        for name in MESSAGES
    }


def _file(*, packed: bool, unknown_field: str) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name=FILE, package=PACKAGE, syntax="proto3")
    for name in MESSAGES:
        message = file.message_type.add(name=name)
        for field in fields_of(name):
            _add_field(message, field, packed=packed)
        if unknown_field:
            _add_field(message, Field(1000, unknown_field, "string", repeated=False), packed=packed)
    for name, values in ENUMS.items():
        outer, _, inner = name.rpartition(".")
        home = next((m.enum_type for m in file.message_type if m.name == outer), file.enum_type)
        enum = home.add(name=inner)
        for value, number in values.items():
            enum.value.add(name=value, number=number)
    return file


def _add_field(message: Any, field: Field, *, packed: bool) -> None:
    types = descriptor_pb2.FieldDescriptorProto
    added = message.field.add(name=field.name, number=field.number)
    added.label = types.LABEL_REPEATED if field.repeated else types.LABEL_OPTIONAL
    if field.kind == "map<string,string>":
        entry = field.name.title().replace("_", "") + "Entry"
        nested = message.nested_type.add(name=entry)
        nested.options.map_entry = True
        for number, name in ((1, "key"), (2, "value")):
            nested.field.add(name=name, number=number, type=types.TYPE_STRING, label=types.LABEL_OPTIONAL)
        added.label = types.LABEL_REPEATED
        added.type = types.TYPE_MESSAGE
        added.type_name = f".{PACKAGE}.{message.name}.{entry}"
    elif field.kind in MESSAGES or field.kind in ENUMS:
        added.type = types.TYPE_MESSAGE if field.kind in MESSAGES else types.TYPE_ENUM
        added.type_name = f".{PACKAGE}.{field.kind}"
    else:
        added.type = types.Type.Value(f"TYPE_{field.kind.upper()}")
    if field.packable and not packed:
        added.options.packed = False
