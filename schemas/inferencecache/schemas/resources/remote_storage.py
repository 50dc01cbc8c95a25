"""`spec.remoteStorage` of a `CacheBackend`: the store that its engines share."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from inferencecache.schemas.resources.core_types import (
    Affinity,
    ResourceRequirements,
    SecretKeySelector,
    TopologySpreadConstraint,
)
from inferencecache.schemas.resources.objects import ATOMIC, Count32, Labels, Part
from inferencecache.schemas.resources.pod_settings import PodSettings

Provider = Literal["Redis"]
Ownership = Literal["Managed", "External"]


class StorageWorkload(PodSettings, frozen=True):
    """Scheduling and security of a managed store's pod."""

    node_selector: Annotated[Labels | None, Meta(description="Labels of nodes it may run on.")] = None
    affinity: Annotated[Affinity | None, Meta(description="Where it may or should run.")] = None
    topology_spread_constraints: Annotated[
        tuple[TopologySpreadConstraint, ...] | None, Meta(description="How evenly it is spread.")
    ] = None


class RedisAuthentication(Part, frozen=True):
    """Secrets of the object's namespace with what engines log in with."""

    password: Annotated[SecretKeySelector, Meta(description="The password.", extra_json_schema=ATOMIC)]
    username: Annotated[
        SecretKeySelector | None,
        Meta(description="The ACL user; External only. Absent: the default user.", extra_json_schema=ATOMIC),
    ] = None


class RedisTLS(Part, frozen=True):
    """How a TLS connection is verified."""

    ca_certificate: Annotated[
        SecretKeySelector, Meta(description="Certificate of the authority.", extra_json_schema=ATOMIC)
    ]
    server_name: Annotated[str | None, Meta(description="Name in the server's certificate.")] = None


class Redis(Part, frozen=True):
    """Settings of provider Redis."""

    image: Annotated[
        str | None,
        Meta(
            description="Image of a managed Redis. Absent means docker.io/library/redis:7.4-alpine. The "
            "controller acts on it."
        ),
    ] = None
    resources: Annotated[
        ResourceRequirements | None,
        Meta(
            description="Resources of a managed Redis. Absent means requests memory 4Gi, limits memory 8Gi; "
            "four fifths of the limit are for cached blocks. The controller acts on them."
        ),
    ] = None
    authentication: Annotated[
        RedisAuthentication | None,
        Meta(
            description="How engines log in. Absent: without a password. The pod webhook and the "
            "controller act on it."
        ),
    ] = None
    tls: Annotated[RedisTLS | None, Meta(description="Reserved: refused at admission.")] = None
    database: Annotated[Count32 | None, Meta(description="Reserved: refused at admission, 0 too.")] = None


class RemoteStorage(Part, frozen=True):
    """A store that all engines of the backend share."""

    provider: Annotated[Provider, Meta(description="What it is: Redis.")]
    ownership: Annotated[
        Ownership,
        Meta(
            description="Managed: the controller runs it. External: somebody else does. The controller acts "
            "on it."
        ),
    ]
    endpoint: Annotated[
        str | None,
        Meta(
            description="host:port of an External store, required there; Managed has its own. The pod "
            "webhook and the controller act on it."
        ),
    ] = None
    workload: Annotated[
        StorageWorkload | None,
        Meta(
            description="Scheduling and security of a Managed store's pod. The controller acts on it.",
        ),
    ] = None
    redis: Annotated[Redis | None, Meta(description="Settings of provider Redis.")] = None
