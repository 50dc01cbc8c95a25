"""What checks judge: everything that was seen, and what could not be seen and why. No check asks for more.

`None` in place of facts means that nobody asked, so that what depends on them does not apply.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from inferencecache.cli.agreement import Disagreement
from inferencecache.cli.owners import Owner
from inferencecache.core.kube.kinds import Document
from inferencecache.core.log.assets import Drift
from inferencecache.schemas.members import RouterMember


class Unreachable(NamedTuple):
    """No answer, or nothing there that could answer."""

    reason: str


class Refused(NamedTuple):
    """The server knows who asked and says no."""

    reason: str


class Unreadable(NamedTuple):
    """There is an answer, and it is none."""

    reason: str


NotSeen = Unreachable | Refused | Unreadable


class Health(NamedTuple):
    """What a router's gRPC health service says, as in SERVING."""

    status: str


class ServerFacts(NamedTuple):
    """`address` is empty when none was found."""

    address: str
    health: Health | Unreachable


class Counted(NamedTuple):
    """The value of a partition in `IC_AGGREGATE`; `age_s` by the server's clock, `problem` if unreadable."""

    age_s: float
    problem: str = ""


class AggregateFacts(NamedTuple):
    """Of every partition of the generation in force, by its key; None: no value."""

    partitions: Mapping[str, Counted | None] | NotSeen
    with_credentials: bool = True


class PolicyFacts(NamedTuple):
    """`value` of the set, None when there is none; `wanted` is what the cluster's objects make of it, None
    without a cluster. `routers` are the live ones.
    """

    value: bytes | None
    revision: int = 0
    wanted: bytes | None = None
    routers: tuple[RouterMember, ...] = ()


class ProbeAnswer(NamedTuple):
    """Who answered."""

    router: str


class StreamFacts(NamedTuple):
    """One stream or bucket as declared and as found; `copies` and times are what is, None when missing."""

    name: str
    is_there: bool
    max_age_s: float = 0.0
    copies: int = 0
    reserved_bytes: int = 0
    drifts: tuple[Drift, ...] = ()


class LogFacts(NamedTuple):
    """The streams of the layout in force, and who owns its partitions."""

    streams: tuple[StreamFacts, ...]
    owners: tuple[Owner, ...]
    store_bytes: int = 0
    """What the account may store, 0 when the server does not say."""


class RouterFacts(NamedTuple):
    """The live routers as they last said, and what was compared meanwhile."""

    routers: tuple[RouterMember, ...]
    compared: int = 0
    disagreements: tuple[Disagreement, ...] = ()


class BusFacts(NamedTuple):
    """All that comes over NATS, whose address this is."""

    address: str
    aggregate: AggregateFacts
    policy: PolicyFacts | NotSeen
    probe: ProbeAnswer | NotSeen
    log: LogFacts | NotSeen
    routers: RouterFacts | NotSeen


class ReadFailed(NamedTuple):
    """The Kubernetes API did not give a list."""

    reason: str


Listed = tuple[Document, ...] | ReadFailed


class KubeFacts(NamedTuple):
    """Objects as stored: of all namespaces or of the one that was asked for.

    `pods` has the namespaces where a backend has a selector; `dials` has the endpoints that were tried, with
    what failed, empty when nothing did.
    """

    now: datetime
    backends: Listed
    pods: Mapping[str, Listed]
    events: Listed
    tenants: Listed
    policies: Listed
    dials: Mapping[str, str] | None = None

    @classmethod
    def nothing(cls, failed: ReadFailed) -> KubeFacts:
        """No list was read."""
        return cls(datetime.now(UTC), failed, {}, failed, failed, failed)


class EngineSpec(NamedTuple):
    """What an engine's own arguments and environment say; None: they do not say.

    `store` names the shared store that the engine's blocks go to, empty without one.
    """

    runtime: str = ""
    version: tuple[int, ...] = ()
    block_size: int | None = None
    hash_algorithm: str | None = None
    hash_seed: str | None = None
    prefix_caching: bool | None = None
    events: bool | None = None
    adapters: bool = False
    store: str = ""


class EnginePage(NamedTuple):
    """What an engine's metrics page says; None: it does not say. `served` counts requests or tokens."""

    block_size: int | None = None
    hash_algorithm: str | None = None
    prefix_caching: bool | None = None
    served: float = 0.0
    adapters: bool = False


class SidecarPage(NamedTuple):
    """What a sidecar's metrics page says of the events that it saw."""

    block_size: int = 0
    messages: int = 0
    stored: int = 0
    ignored_groups: int = 0
    nameless_adapters: int = 0
    tracked_blocks: int = 0


class EngineFacts(NamedTuple):
    """One engine by its resource; pages are None where nobody asked for them."""

    resource: str
    spec: EngineSpec = EngineSpec()
    page: EnginePage | Unreachable | None = None
    sidecar: SidecarPage | Unreachable | None = None


class Facts(NamedTuple):
    """Everything. `router_block_sizes` are what live routers fingerprint with, by their ids."""

    server: ServerFacts | None = None
    bus: BusFacts | None = None
    kube: KubeFacts | None = None
    engines: tuple[EngineFacts, ...] = ()
    router_block_sizes: Mapping[str, int] = {}
