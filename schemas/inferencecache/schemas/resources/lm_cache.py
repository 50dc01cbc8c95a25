"""`spec.lmCache` of a `CacheBackend`: where LMCache's multiprocess servers run and what they get."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from inferencecache.schemas.resources.core_types import Quantity, ResourceRequirements
from inferencecache.schemas.resources.objects import LISTED, Part
from inferencecache.schemas.resources.pod_settings import PodSettings

CAPACITY_RULE: Final = "l1Capacity must be greater than zero"
_CAPACITY_CEL: Final = "type(self) == int ? self > 0 : quantity(self).isGreaterThan(quantity('0'))"

Topology = Literal["PodLocal", "NodeLocal"]
Port = Annotated[int, Meta(ge=1, le=65535, extra_json_schema={"format": "int32"})]
Positive32 = Annotated[int, Meta(ge=1, le=2**31 - 1, extra_json_schema={"format": "int32"})]
Capacity = Annotated[
    Quantity,
    Meta(extra_json_schema={"x-kubernetes-validations": [{"rule": _CAPACITY_CEL, "message": CAPACITY_RULE}]}),
]
"""An amount above 0 [CRD-50]."""


class PodLocalServer(Part, frozen=True):
    """The server that is injected into each engine pod."""

    image: Annotated[
        str, Meta(description="Image of the server, pinned by digest. Never the engine's image.")
    ]
    port: Annotated[Port, Meta(description="Port of the server on the pod's loopback address.")]
    l1_capacity: Annotated[
        Capacity, Meta(description="Host memory for cached blocks of this pod, such as 8Gi; above 0.")
    ]
    max_workers: Annotated[Positive32, Meta(description="Most workers of the server, 1 or more.")]
    resources: Annotated[
        ResourceRequirements, Meta(description="Resources of the injected container; l1Capacity and 1Gi fit.")
    ]


class PodLocal(Part, frozen=True):
    """One server inside each engine pod."""

    server: Annotated[PodLocalServer, Meta(description="The server. The pod webhook acts on it.")]


class NodeLocalServer(Part, frozen=True):
    """The server that engines of one node share."""

    image: Annotated[
        str,
        Meta(description="Image of the server, pinned by digest; engines' start-up gate runs it too."),
    ]
    port: Annotated[Port, Meta(description="Data port on the node.")]
    http_port: Annotated[Port, Meta(description="Port for health and control on the node.")]
    l1_capacity: Annotated[
        Capacity,
        Meta(description="Host memory for cached blocks of each node, shared by its engines; above 0."),
    ]
    max_gpu_workers: Annotated[
        Positive32, Meta(description="Most engines that use one server, 1 or more.")
    ] = msgspec.field(name="maxGPUWorkers")
    max_cpu_workers: Annotated[
        Positive32, Meta(description="Workers on the host for storage, 1 or more.")
    ] = msgspec.field(name="maxCPUWorkers")
    resources: Annotated[
        ResourceRequirements, Meta(description="Resources of each server's pod; l1Capacity and 1Gi fit.")
    ]


class ServerScheduling(PodSettings, frozen=True):
    """Settings of the servers' pods. They choose no nodes: a server runs where its engines do."""


class NodeLocal(Part, frozen=True):
    """One server on each node that has a selected engine."""

    server: Annotated[NodeLocalServer, Meta(description="The server. The controller acts on it.")]
    idle_retention_seconds: Annotated[
        Annotated[int, Meta(ge=0, le=86400, extra_json_schema={"format": "int32"})] | None,
        Meta(
            description="Seconds that a healthy server stays after the last engine has left its node, up to "
            "a day; 0: none. The controller acts on it.",
            extra_json_schema={"default": 300},
            extra={LISTED: True},
        ),
    ] = None
    scheduling: Annotated[
        ServerScheduling | None,
        Meta(description="Settings of the servers' pods. The controller acts on them."),
    ] = None


class LMCache(Part, frozen=True):
    """LMCache with servers of their own beside the engines."""

    topology: Annotated[
        Topology,
        Meta(
            description="PodLocal: a server in each engine pod. NodeLocal: one on each node, shared. The pod "
            "webhook and the controller act on it."
        ),
    ]
    chunk_size_tokens: Annotated[
        Positive32 | None,
        Meta(description="Tokens of a chunk, 1 or more. Absent means 256. The pod webhook acts on it."),
    ] = None
    pod_local: Annotated[
        PodLocal | None, Meta(description="Settings of topology PodLocal, required there.")
    ] = None
    node_local: Annotated[
        NodeLocal | None, Meta(description="Settings of topology NodeLocal, required there.")
    ] = None
