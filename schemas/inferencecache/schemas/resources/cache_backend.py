"""`CacheBackend`: the cache of one set of engine pods, and how they use it."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from inferencecache.schemas.resources.core_types import EnvVar, Texts
from inferencecache.schemas.resources.lm_cache import LMCache, Positive32, Topology
from inferencecache.schemas.resources.objects import (
    WHOLE_LIST,
    Conditions,
    Count32,
    Count64,
    Labels,
    ObservedGeneration,
    Part,
    Resource,
    Time,
    listed_by,
)
from inferencecache.schemas.resources.remote_storage import Provider, RemoteStorage

Runtime = Literal["VLLM", "SGLang"]
CacheType = Literal["LMCache", "SGLangHiCache"]
Mode = Literal["Offload", "EventsOnly"]
Role = Literal["ReadOnly", "WriteOnly", "ReadWrite"]
WritePolicy = Literal["write_back", "write_through", "write_through_selective"]
IOBackend = Literal["direct", "kernel", "kernel_ascend"]
MemoryLayout = Literal["layer_first", "page_first", "page_first_direct", "page_first_kv_split", "page_head"]


class HiCache(Part, frozen=True):
    """SGLang's own cache in host memory. What is absent is left to the engine."""

    size_gb: Annotated[
        Positive32 | None,
        Meta(
            description="Host memory in decimal gigabytes, 1 or more; this or ratio. The pod webhook acts "
            "on it."
        ),
    ] = msgspec.field(name="sizeGB", default=None)
    ratio: Annotated[
        str | None,
        Meta(
            description="Host memory as a multiple of the device's, a number above 0; this or sizeGB. The "
            "pod webhook acts on it."
        ),
    ] = None
    write_policy: Annotated[
        WritePolicy | None,
        Meta(description="When blocks are written to the host. The pod webhook acts on it."),
    ] = None
    io_backend: Annotated[
        IOBackend | None,
        Meta(description="How blocks are moved. The pod webhook acts on it."),
    ] = None
    memory_layout: Annotated[
        MemoryLayout | None,
        Meta(description="How blocks lie in host memory. The pod webhook acts on it."),
    ] = None


class EngineOverrides(Part, frozen=True):
    """Changes to what the pod webhook would inject into the engine's container."""

    args: Annotated[Texts | None, Meta(description="Arguments to add or to use instead.")] = None
    suppress_args: Annotated[Texts | None, Meta(description="Names of arguments not to inject.")] = None
    env: Annotated[
        tuple[EnvVar, ...] | None,
        Meta(description="Variables to add or to use instead.", extra_json_schema=WHOLE_LIST),
    ] = None
    suppress_env: Annotated[Texts | None, Meta(description="Names of variables not to inject.")] = None


class Integration(Part, frozen=True):
    """How engines use the cache."""

    mode: Annotated[
        Mode | None,
        Meta(
            description="Offload: engines use the cache and report its events. EventsOnly: they report "
            "events only. The pod webhook and the controller act on it.",
            extra_json_schema={"default": "Offload"},
        ),
    ] = None
    role: Annotated[
        Role | None,
        Meta(
            description="Whether engines read, write or both; LMCache and HiCache do both. The pod webhook "
            "acts on it.",
            extra_json_schema={"default": "ReadWrite"},
        ),
    ] = None
    fail_open: Annotated[
        bool | None,
        Meta(
            description="true: without the remote store engines serve on. false: the backend is not ready "
            "then. The pod webhook and the controller act on it.",
            extra_json_schema={"default": True},
        ),
    ] = None
    engine_overrides: Annotated[
        EngineOverrides | None,
        Meta(description="Changes to what is injected into engines. The pod webhook acts on them."),
    ] = None


class Observation(Part, frozen=True):
    """How events of engines are observed."""

    model_id: Annotated[
        str | None,
        Meta(
            description="Model that events are about. Absent or empty: no sidecar observes the engines. The "
            "pod webhook acts on it."
        ),
    ] = msgspec.field(name="modelID", default=None)
    first_event_timeout: Annotated[
        str | None,
        Meta(
            description="How long readiness waits for the first event, as a duration such as 10m; 0 and less "
            "mean 5m. The controller acts on it.",
            extra_json_schema={"default": "5m"},
        ),
    ] = None


class EngineSelector(Part, frozen=True):
    """Which pods are the backend's engines."""

    match_labels: Annotated[
        Labels | None,
        Meta(
            description="Label inferencecache.io/cache-domain of the engine pods, and no other. Absent or "
            "empty selects none. The pod webhook and the controller act on it."
        ),
    ] = None


class CacheBackendSpec(Part, frozen=True):
    """What is wanted. `type` and `runtime` choose the engines' side, `remote_storage` the shared store;
    neither implies the other.
    """

    runtime: Annotated[
        Runtime,
        Meta(description="Which engines: VLLM or SGLang. The pod webhook and the controller act on it."),
    ]
    type: Annotated[
        CacheType | None,
        Meta(
            description="Which cache on the engines' side: LMCache or SGLangHiCache. The pod webhook and the "
            "controller act on it.",
            extra_json_schema={"default": "LMCache"},
        ),
    ] = None
    lm_cache: Annotated[
        LMCache | None,
        Meta(description="Settings of type LMCache, required there with mode Offload."),
    ] = None
    hi_cache: Annotated[HiCache | None, Meta(description="Settings of SGLangHiCache, required there.")] = None
    remote_storage: Annotated[
        RemoteStorage | None,
        Meta(description="A store that all engines share. Absent: none, and nothing makes one."),
    ] = None
    observation: Annotated[
        Observation | None,
        Meta(description="How events of engines are observed. The admission webhook makes it."),
    ] = None
    integration: Annotated[
        Integration | None, Meta(description="How engines use the cache. The admission webhook makes it.")
    ] = None
    engine_selector: Annotated[
        EngineSelector | None, Meta(description="Which pods are the backend's engines. Absent: none.")
    ] = None
    allow_cross_namespace: Annotated[
        bool | None,
        Meta(
            description="Whether remoteStorage.endpoint may name a Service of another namespace. Absent: no. "
            "The admission webhook acts on it."
        ),
    ] = None


class EnginePodCoverage(Part, frozen=True):
    """How one engine pod is served."""

    name: Annotated[str, Meta(description="Name of the pod.")]
    ready: Annotated[bool, Meta(description="Whether the pod is ready.")]
    covered: Annotated[
        bool, Meta(description="Whether exactly one healthy server of this generation serves it.")
    ]
    reason: Annotated[
        str,
        Meta(
            description="ConnectorReady, ConnectorInjectionUnverified, MPServersNotReady, "
            "EngineSchedulingPending, NodeLocalWorkerCapacityExceeded or AmbiguousNodeLocalServers."
        ),
    ]
    node_name: Annotated[str | None, Meta(description="Its node; absent while it has none.")] = None


class Connector(Part, frozen=True):
    """The engines' side of the cache as it runs."""

    mode: Annotated[Literal["Multiprocess"] | None, Meta(description="Multiprocess.")] = None
    topology: Annotated[Topology | None, Meta(description="Where servers run.")] = None
    matched_engine_pods: Annotated[Count32 | None, Meta(description="Engine pods selected.")] = None
    ready_engine_pods: Annotated[Count32 | None, Meta(description="Those that are ready.")] = None
    desired_servers: Annotated[
        Count32 | None, Meta(description="Servers wanted: one an engine (PodLocal) or a node (NodeLocal).")
    ] = None
    ready_servers: Annotated[Count32 | None, Meta(description="Those that are ready.")] = None
    covered_engine_pods: Annotated[Count32 | None, Meta(description="Engine pods that are served.")] = None
    uncovered_engine_pods: Annotated[Count32 | None, Meta(description="Those that are not.")] = None
    engine_pod_coverage: Annotated[
        tuple[EnginePodCoverage, ...] | None,
        Meta(description="A row for each engine pod, by name.", extra_json_schema=listed_by("name")),
    ] = None


class RemoteStorageStatus(Part, frozen=True):
    """The shared store as it runs."""

    provider: Annotated[Provider | None, Meta(description="What it is.")] = None
    endpoint: Annotated[str | None, Meta(description="host:port that engines use.")] = None
    ready: Annotated[str | None, Meta(description="True, False or Unknown.")] = None


class IndexParticipation(Part, frozen=True):
    """What the index holds of the backend's engines."""

    prefix_count: Annotated[Count64, Meta(description="Distinct prefix keys; 0 is written too.")]
    last_event_at: Annotated[Time | None, Meta(description="When the last event came.")] = None
    hit_rate: Annotated[str | None, Meta(description="Reserved; nobody writes it.")] = None
    t2_hit_rate: Annotated[
        str | None,
        Meta(
            description="Share of the shared store's queries that found their block, 0 to 1. Absent: none "
            'was made; "0": nothing was found.'
        ),
    ] = None


class CacheBackendStatus(Part, frozen=True):
    """Written by the controller. What is not known yet is absent, never 0 [CRD-18]."""

    connector: Annotated[
        Connector | None,
        Meta(description="The engines' side as it runs. Absent with EventsOnly and SGLangHiCache."),
    ] = None
    remote_storage: Annotated[
        RemoteStorageStatus | None, Meta(description="The shared store as it runs. Absent without one.")
    ] = None
    matched_engine_pods: Annotated[
        Count32 | None, Meta(description="Engine pods selected. Absent: not computed; 0: none.")
    ] = None
    engine_selector_message: Annotated[
        str | None, Meta(description="Set while the selector selects no pod though engines are expected.")
    ] = None
    fail_open: Annotated[bool | None, Meta(description="integration.failOpen as last observed.")] = None
    observed_generation: ObservedGeneration | None = None
    first_kv_event_observed_at: Annotated[
        Time | None, Meta(description="When the first event came; written once.")
    ] = msgspec.field(name="firstKVEventObservedAt", default=None)
    first_available_at: Annotated[Time | None, Meta(description="From when on firstEventTimeout runs.")] = (
        None
    )
    index_participation: Annotated[
        IndexParticipation | None, Meta(description="What the index holds of these engines.")
    ] = None
    conditions: Conditions | None = None


class CacheBackend(Resource, frozen=True, tag="CacheBackend"):
    """The cache of one set of engine pods [CRD-21..103]. The pod webhook injects it into engines, the
    controller runs its servers and its shared store.
    """

    spec: Annotated[CacheBackendSpec | None, Meta(description="What is wanted.")] = None
    status: CacheBackendStatus | None = None
