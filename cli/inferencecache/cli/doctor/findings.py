"""What the doctor can find: one permanent code each, with its severity and remedy [OPS-78..81].

Codes are never given another meaning and never used again [OPS-79]. The reference in the documentation is
made from this table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple


class Severity(Enum):
    """The worst first, as people read a report."""

    FAIL = "FAIL"
    WARN = "WARN"
    INFO = "INFO"
    OK = "OK"

    @property
    def exit_code(self) -> int:
        """Of a report whose worst finding this is [OPS-73]."""
        return {Severity.FAIL: 2, Severity.WARN: 1}.get(self, 0)


class Check(NamedTuple):
    """A group of codes: its name in reports, and what it looks at."""

    name: str
    about: str


CHECKS: Final = (
    Check("ServerReachability", "a router answers gRPC and says that it serves"),
    Check("SnapshotReachability", "the counts of the index, `IC_AGGREGATE`, are complete and fresh"),
    Check(
        "PolicyReachability",
        "the policy set, `IC_POLICY`, is what the cluster's objects say, everywhere",
    ),
    Check("ProbeReachability", "a router answers on `ic.probe`; nothing is probed"),
    Check("CacheBackendHealth", "conditions, engines, events and store of each CacheBackend"),
    Check("EnginePodInjectionAudit", "whether pods that a CacheBackend selects were wired for it"),
    Check("OrphanPodCheck", "pods that name a cache domain and have no CacheBackend"),
    Check("CacheTenantHealth", "tenants beyond their quota"),
    Check("CachePolicyCoverage", "namespaces with backends and not exactly one CachePolicy"),
    Check("StreamHealth", "streams and buckets of the log: there, safe, copied, folded in time"),
    Check(
        "RouterAgreement", "the views that routers answer from: young, and equal where two can be compared"
    ),
    Check("EnginePreconditions", "settings of engines without which no lookup ever matches"),
)
"""In the order in which they run and report; the first nine as the contract has them [OPS-78]."""
(
    SERVER,
    SNAPSHOT,
    POLICY,
    PROBE,
    BACKENDS,
    INJECTION,
    ORPHANS,
    TENANTS,
    COVERAGE,
    STREAMS,
    ROUTERS,
    ENGINES,
) = CHECKS


class Code(NamedTuple):
    """`trigger` is what was seen, `remedy` what to do; both are for people."""

    code: str
    check: Check
    severity: Severity
    trigger: str
    remedy: str = ""


_FAIL, _WARN, _INFO, _OK = Severity
_CODES: Final = (
    Code(
        "SV001",
        SERVER,
        _FAIL,
        "no address of a router, no connection, or its health call failed",
        "see the Service inference-cache-server and its pods, forward its port, or name it with "
        "--server-endpoint; behind TLS give --router-tls-ca-file",
    ),
    Code("SV002", SERVER, _FAIL, "the router does not say SERVING", "read the router's logs"),
    Code("SV003", SERVER, _OK, "the router says SERVING"),
    Code(
        "SN001",
        SNAPSHOT,
        _FAIL,
        "NATS or the bucket `IC_AGGREGATE` cannot be reached",
        "see that NATS and an indexer run, name the server with --nats-url, and see the network policy",
    ),
    Code(
        "SN002",
        SNAPSHOT,
        _WARN,
        "the counts are unreadable, or not of all partitions within the last 15 s",
        "see that indexers run and are of one version",
    ),
    Code(
        "SN003",
        SNAPSHOT,
        _INFO,
        "NATS lets anybody read who gives no credentials",
        "give NATS users with the permissions in deploy/base/nats",
    ),
    Code("SN004", SNAPSHOT, _OK, "the counts are complete and fresh"),
    Code(
        "SN005",
        SNAPSHOT,
        _WARN,
        "NATS refuses these credentials",
        "give those of the role observer, as in --nats-creds-file",
    ),
    Code(
        "PL001",
        POLICY,
        _FAIL,
        "NATS or the bucket `IC_POLICY` cannot be reached",
        "see that NATS and a router run",
    ),
    Code("PL002", POLICY, _OK, "the policy set can be read and is in force, or reading it is refused"),
    Code(
        "PL003",
        POLICY,
        _WARN,
        "the policy set is unreadable, not what the cluster's objects say, or not run by a router",
        "see the logs of the controller and of the routers that are named; all routers are upgraded before "
        "the controller",
    ),
    Code(
        "PB001",
        PROBE,
        _FAIL,
        "NATS cannot be reached, or no router answers on `ic.probe`",
        "see that routers run and are connected to this NATS",
    ),
    Code("PB002", PROBE, _OK, "a router answers, or asking is refused"),
    Code("PB003", PROBE, _WARN, "the answer is none", "see that routers are of this version"),
    Code(
        "API001",
        BACKENDS,
        _FAIL,
        "the Kubernetes API could not be read; the resource names the kind, or the backend whose pods could "
        "not be counted",
        "see the connection and the rights of this account: get and list on what is named",
    ),
    Code(
        "CB001",
        BACKENDS,
        _WARN,
        "Ready is absent or not True",
        "look its reason up in docs/doctor.md",
    ),
    Code(
        "CB002",
        BACKENDS,
        _WARN,
        "the selector matches no pod",
        "align the labels of the engines with spec.engineSelector, scale them up, and make the pods again",
    ),
    Code(
        "CB003",
        BACKENDS,
        _WARN,
        "no engine has ever reported a KV event",
        "set --kvevent-subscriber-image of the controller and make the engine pods again; switch the "
        "engine's KV events on (--kv-events-config); send one request",
    ),
    Code(
        "CB004",
        BACKENDS,
        _WARN,
        "the last KV event is older than two minutes",
        "see whether the engine or its sidecar has stopped",
    ),
    Code(
        "CB005",
        BACKENDS,
        _WARN,
        "the declared store has no endpoint, or it takes no connection",
        "see the store's pod and Service, or the endpoint that the spec names",
    ),
    Code("CB006", BACKENDS, _OK, "nothing else was found about the backend"),
    Code(
        "CB007",
        BACKENDS,
        _WARN,
        "FunctionalProbeOK is not True",
        "look its reason up in docs/doctor.md",
    ),
    Code(
        "EP001",
        INJECTION,
        _WARN,
        "an engine pod without proof that it was wired",
        "make the pod again while the controller's webhook answers",
    ),
    Code("EP002", INJECTION, _OK, "the pod was wired"),
    Code(
        "EP003",
        INJECTION,
        _WARN,
        "a pod that several backends select",
        "make their selectors disjoint",
    ),
    Code(
        "OP001",
        ORPHANS,
        _WARN,
        "an Event NoMatchingCacheBackend within the last 24 h",
        "correct the pod's label inferencecache.io/cache-domain, or make the CacheBackend in its namespace",
    ),
    Code(
        "CT001",
        TENANTS,
        _WARN,
        "a tenant beyond its quota: what it reports evicts its own oldest prefixes",
        "raise spec.quota.maxIndexEntries, or send fewer distinct prompts",
    ),
    Code("CT002", TENANTS, _OK, "a tenant within its quota, or without one"),
    Code("CP001", COVERAGE, _INFO, "no CachePolicy: defaults apply"),
    Code("CP002", COVERAGE, _OK, "exactly one CachePolicy"),
    Code(
        "CP003",
        COVERAGE,
        _WARN,
        "more than one CachePolicy: the first by name is in force",
        "delete the others",
    ),
    Code(
        "JS001",
        STREAMS,
        _FAIL,
        "a stream or bucket of the layout is missing",
        "start an indexer, which makes it again; what it held is told anew by sidecars",
    ),
    Code(
        "JS002",
        STREAMS,
        _FAIL,
        "a stream forgets before three snapshots are made",
        "raise its max_age (nats stream edit), or lower --snapshot-interval of the indexers",
    ),
    Code(
        "JS003",
        STREAMS,
        _WARN,
        "fewer copies than --nats-replicas",
        "raise num_replicas (nats stream edit), which needs as many servers",
    ),
    Code(
        "JS004",
        STREAMS,
        _WARN,
        "a partition without an owner, or one that folds more than 5 s behind the log",
        "see that indexers run, and give them more processors, or models more lanes (inferencecache layout)",
    ),
    Code("JS005", STREAMS, _OK, "all streams are as declared and folded in time"),
    Code(
        "JS006",
        STREAMS,
        _WARN,
        "a stream's setting is not as declared",
        "set it back with nats stream edit",
    ),
    Code(
        "RT001",
        ROUTERS,
        _FAIL,
        "no router has said within 10 s that it is there",
        "start one, and see that it is connected to this NATS",
    ),
    Code(
        "RT002",
        ROUTERS,
        _WARN,
        "a router answers from a view that is older than 5 s, or not complete",
        "see that indexers run, then the router's logs and its connection to NATS",
    ),
    Code(
        "RT003",
        ROUTERS,
        _FAIL,
        "two routers hold different views at one delta",
        "restart the one that differs from the others, and report it with `inferencecache replay --export`",
    ),
    Code("RT004", ROUTERS, _OK, "all routers answer from young and equal views"),
    Code(
        "EN001",
        ENGINES,
        _WARN,
        "the engine's block size is not the routers': no lookup by tokens ever matches it",
        "make --engine-block-size of the routers and --block-size (SGLang: --page-size) of the engine one",
    ),
    Code(
        "EN002",
        ENGINES,
        _WARN,
        "engines that share a store differ in block size, hash seed or hash algorithm: they share nothing",
        "give all engines of the backend one PYTHONHASHSEED, one --prefix-caching-hash-algo and one "
        "--block-size",
    ),
    Code(
        "EN003",
        ENGINES,
        _WARN,
        "the engine serves requests and no KV event has come from it",
        'switch events on: vLLM --kv-events-config \'{"enable_kv_cache_events":true,"publisher":"zmq",'
        '"endpoint":"tcp://*:5557","topic":"kv-events"}\', SGLang the same without the first key; and see '
        "--engine-endpoint of the sidecar",
    ),
    Code(
        "EN004",
        ENGINES,
        _WARN,
        "prefix caching is off: the engine keeps nothing that a hint could lead to",
        "take --no-enable-prefix-caching (SGLang: --disable-radix-cache) out of the engine's arguments",
    ),
    Code(
        "EN005",
        ENGINES,
        _WARN,
        "a hybrid model of whose cache groups none can be used",
        "start the engine with --disable-hybrid-kv-cache-manager, or serve another model",
    ),
    Code(
        "EN006",
        ENGINES,
        _WARN,
        "the engine serves LoRA adapters and its events do not name them",
        "upgrade the engine (vLLM 0.16, SGLang 0.5.23 or later), or name the adapters to the sidecar with "
        "--lora-adapter-names (vLLM)",
    ),
    Code("EN007", ENGINES, _OK, "nothing else was found about the engine"),
    Code(
        "EN008",
        ENGINES,
        _INFO,
        "the engine's pages could not be read, so that little is known of it",
        "allow get on pods/proxy, or name its pages with --engine",
    ),
)
CODES: Final = {code.code: code for code in _CODES}
"""Every code there is, in the order of checks."""


class Finding(NamedTuple):
    """One line of a report. `resource` says what it is about [OPS-91]: `host:port`, a URL,
    `<kind>/<namespace>/<name>`, `namespace/<name>`, or a kind; it may be empty.
    """

    code: str
    check: Check
    resource: str
    message: str

    @property
    def severity(self) -> Severity:
        """The code's."""
        return CODES[self.code].severity


def found(code: str, resource: str, message: str, *, check: Check | None = None) -> Finding:
    """A finding, whose message ends with what to do where something is wrong. `check` is that of the code
    unless it is given: several checks read the Kubernetes API.
    """
    known = CODES[code]
    told = f"{message}; to mend it: {known.remedy}" if known.remedy else message
    return Finding(code, check or known.check, resource, told)


class Report(NamedTuple):
    """All findings in the order of checks."""

    findings: tuple[Finding, ...] = ()

    @property
    def counts(self) -> dict[Severity, int]:
        """How many of each severity, every one named."""
        counted = Counter(finding.severity for finding in self.findings)
        return {severity: counted[severity] for severity in Severity}

    @property
    def exit_code(self) -> int:
        """By the worst finding [OPS-73]."""
        return max((finding.severity.exit_code for finding in self.findings), default=0)

    def of(self, severity: Severity) -> Iterable[Finding]:
        """The findings of one severity."""
        return (finding for finding in self.findings if finding.severity is severity)
