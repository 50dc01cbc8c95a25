"""`CacheBackend` as the schema alone has it; what admission adds is tested there [CRD-22..86]."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kube.fields import REQUIRED, Field, check_field, field
from tests.kube.objects import (
    AFFINITY,
    BACKEND,
    BACKEND_STATUS,
    ENV,
    POD_SECURITY,
    RESOURCES,
    SCHEDULING,
    SPREAD,
    TOLERATIONS,
    an_object,
    refused,
    stored,
    value_at,
    with_value,
)
from tests.support.kube import KubeClient

pytestmark = pytest.mark.kube
rule = pytest.mark.rule

LMCACHE = "spec.lmCache"
POD = "spec.lmCache.podLocal.server"
NODE = "spec.lmCache.nodeLocal.server"
STORAGE = "spec.remoteStorage"
REDIS = "spec.remoteStorage.redis"
HICACHE = "spec.hiCache"
INTEGRATION = "spec.integration"
PORTS: dict[str, Any] = {"accepted": [1, 65535], "absent": REQUIRED, "invalid": [0, 65536], "mistyped": ["1"]}
WORKERS: dict[str, Any] = {"accepted": [1, 2**31 - 1], "absent": REQUIRED, "invalid": [0, 2**31]}
CAPACITIES: dict[str, Any] = {
    "accepted": ["8Gi", 4294967296, "1.5G", "+1Ki", "500m", "1e3"],
    "absent": REQUIRED,
    "invalid": ["0", 0, "-1Gi", -1, "8 Gi", "8gi", "", "0Gi"],
    "mistyped": [True],
}
NEEDS: dict[str, Any] = {"accepted": [RESOURCES, {}], "absent": REQUIRED, "mistyped": ["1Gi"]}
COUNTS: dict[str, Any] = {"accepted": [0, 7], "invalid": [-1]}
SECRET = {"name": "s", "key": "k"}


@pytest.mark.parametrize(
    "row",
    [
        field(
            rule("CRD-23"),
            "spec.runtime",
            ["VLLM", "SGLang"],
            absent=REQUIRED,
            unsupported=["vllm", "sglang", "", "TensorRT"],
        ),
        field(
            rule("CRD-24"),
            "spec.type",
            ["LMCache", "SGLangHiCache"],
            absent="LMCache",
            unsupported=["External", "Mooncake", "lmcache", ""],
        ),
        field(rule("CRD-25"), LMCACHE, mistyped=["x"]),
        field(rule("CRD-26"), HICACHE, [{}], mistyped=["x"]),
        field(rule("CRD-27"), STORAGE, mistyped=["x"]),
        field(rule("CRD-28"), "spec.observation", mistyped=["x"]),
        field(rule("CRD-29"), "spec.integration", mistyped=["x"]),
        field(rule("CRD-30"), "spec.engineSelector", [{}], mistyped=["x"]),
        field(
            rule("CRD-30"),
            "spec.engineSelector.matchLabels",
            [{}, {"a": "b", "c": ""}],
            mistyped=[["a"], {"a": 1}],
        ),
        field(rule("CRD-31"), "spec.allowCrossNamespace", [True, False], mistyped=["true"]),
        field(
            rule("CRD-32"),
            f"{LMCACHE}.topology",
            ["PodLocal", "NodeLocal"],
            absent=REQUIRED,
            unsupported=["podLocal", ""],
        ),
        field(rule("CRD-33"), f"{LMCACHE}.chunkSizeTokens", [1, 512], invalid=[0, -1], mistyped=["256"]),
        field(rule("CRD-34"), f"{LMCACHE}.podLocal", missing=[{}]),
        field(rule("CRD-34"), POD, absent=REQUIRED, missing=[{}]),
        field(rule("CRD-35"), f"{POD}.image", ["any/image:tag", ""], absent=REQUIRED),
        field(rule("CRD-36"), f"{POD}.port", **PORTS),
        field(rule("CRD-37", "CRD-50", "CRD-14", "CRD-W14"), f"{POD}.l1Capacity", **CAPACITIES),
        field(rule("CRD-38"), f"{POD}.maxWorkers", **WORKERS),
        field(rule("CRD-39"), f"{POD}.resources", **NEEDS),
        field(rule("CRD-40"), f"{LMCACHE}.nodeLocal", missing=[{}, {"idleRetentionSeconds": 1}]),
        field(rule("CRD-40"), NODE, absent=REQUIRED, missing=[{}]),
        field(
            rule("CRD-41", "CRD-W15"),
            f"{LMCACHE}.nodeLocal.idleRetentionSeconds",
            [0, 86400],
            absent=300,
            invalid=[86401, -1],
        ),
        field(rule("CRD-42"), f"{NODE}.image", ["any/image:tag"], absent=REQUIRED),
        field(rule("CRD-43"), f"{NODE}.port", **PORTS),
        field(rule("CRD-44"), f"{NODE}.httpPort", **PORTS),
        field(rule("CRD-45", "CRD-50", "CRD-14", "CRD-W14"), f"{NODE}.l1Capacity", **CAPACITIES),
        field(rule("CRD-46"), f"{NODE}.maxGPUWorkers", **WORKERS),
        field(rule("CRD-47"), f"{NODE}.maxCPUWorkers", **WORKERS),
        field(rule("CRD-48"), f"{NODE}.resources", **NEEDS),
        field(rule("CRD-49"), f"{LMCACHE}.nodeLocal.scheduling", [{}, SCHEDULING], mistyped=["x"]),
        field(
            rule("CRD-49"),
            f"{LMCACHE}.nodeLocal.scheduling.terminationGracePeriodSeconds",
            [0, 2**40],
            invalid=[-1],
        ),
        field(
            rule("CRD-51", "CRD-W13"),
            f"{STORAGE}.provider",
            ["Redis"],
            absent=REQUIRED,
            unsupported=["Mooncake", "redis", ""],
        ),
        field(
            rule("CRD-52"),
            f"{STORAGE}.ownership",
            ["Managed", "External"],
            absent=REQUIRED,
            unsupported=["managed", ""],
        ),
        field(rule("CRD-53"), f"{STORAGE}.endpoint", ["", "not host:port", "h:1"], mistyped=[6379]),
        field(rule("CRD-54"), f"{STORAGE}.workload", [{}, {"nodeSelector": {"a": "b"}}], mistyped=["x"]),
        field(rule("CRD-54"), f"{STORAGE}.workload.terminationGracePeriodSeconds", [0], invalid=[-1]),
        field(rule("CRD-55"), REDIS, [{}], mistyped=["x"]),
        field(rule("CRD-56"), f"{REDIS}.image", ["redis:7", ""]),
        field(rule("CRD-57"), f"{REDIS}.resources", [{}, RESOURCES]),
        field(
            rule("CRD-58"),
            f"{REDIS}.authentication",
            [{"password": SECRET}, {"password": SECRET, "username": SECRET}],
            missing=[{}, {"username": SECRET}, {"password": {"name": "s"}}],
        ),
        field(
            rule("CRD-59"),
            f"{REDIS}.tls",
            [{"caCertificate": SECRET}, {"caCertificate": SECRET, "serverName": "x"}],
            missing=[{}, {"serverName": "x"}],
        ),
        field(rule("CRD-60"), f"{REDIS}.database", [0, 15], invalid=[-1]),
        field(rule("CRD-61", "CRD-W20"), f"{HICACHE}.sizeGB", [1], invalid=[0, -1]),
        field(rule("CRD-62"), f"{HICACHE}.ratio", ["2", "nonsense", ""], mistyped=[2.0]),
        field(
            rule("CRD-63", "CRD-66"),
            f"{HICACHE}.writePolicy",
            ["write_back", "write_through", "write_through_selective"],
            unsupported=["write-back", ""],
        ),
        field(
            rule("CRD-64", "CRD-66"),
            f"{HICACHE}.ioBackend",
            ["direct", "kernel", "kernel_ascend"],
            unsupported=["Direct", ""],
        ),
        field(
            rule("CRD-65", "CRD-66"),
            f"{HICACHE}.memoryLayout",
            ["layer_first", "page_first", "page_first_direct", "page_first_kv_split", "page_head"],
            unsupported=["page", ""],
        ),
        field(
            rule("CRD-67"),
            f"{INTEGRATION}.mode",
            ["Offload", "EventsOnly"],
            absent="Offload",
            unsupported=["offload", ""],
        ),
        field(
            rule("CRD-68"),
            f"{INTEGRATION}.role",
            ["ReadOnly", "WriteOnly", "ReadWrite"],
            absent="ReadWrite",
            unsupported=["None", ""],
        ),
        field(rule("CRD-69"), f"{INTEGRATION}.failOpen", [True, False], absent=True, mistyped=["true"]),
        field(rule("CRD-70"), f"{INTEGRATION}.engineOverrides", [{}], mistyped=["x"]),
        field(rule("CRD-70"), f"{INTEGRATION}.engineOverrides.args", [[], ["a", "a"]], mistyped=["a", [1]]),
        field(rule("CRD-70"), f"{INTEGRATION}.engineOverrides.suppressArgs", [["a", "a"]], mistyped=["a"]),
        field(
            rule("CRD-70", "CRD-16"),
            f"{INTEGRATION}.engineOverrides.env",
            [ENV, [{"name": "A"}, {"name": "A"}]],
            missing=[[{"value": "1"}]],
        ),
        field(rule("CRD-70"), f"{INTEGRATION}.engineOverrides.suppressEnv", [["a", "a"]], mistyped=["a"]),
        field(rule("CRD-71"), "spec.observation.modelID", ["", "acme/docs-7b"], mistyped=[7]),
        field(
            rule("CRD-72", "CRD-13"),
            "spec.observation.firstEventTimeout",
            ["0s", "-5m", "1h30m", "1d", ""],
            absent="5m",
            mistyped=[300],
        ),
    ],
)
async def test_a_field_of_the_spec_takes_its_values_and_no_others(
    kube: KubeClient, namespace: str, row: Field
) -> None:
    await check_field(kube, namespace, "CacheBackend", row)


@pytest.mark.parametrize(
    "row",
    [
        field(rule("CRD-73"), "status.connector", [{}]),
        field(rule("CRD-74"), "status.connector.mode", ["Multiprocess"], unsupported=["Embedded", ""]),
        field(rule("CRD-75"), "status.connector.topology", ["PodLocal", "NodeLocal"], unsupported=["Local"]),
        field(rule("CRD-76"), "status.connector.matchedEnginePods", **COUNTS),
        field(rule("CRD-76"), "status.connector.readyEnginePods", **COUNTS),
        field(rule("CRD-76"), "status.connector.desiredServers", **COUNTS),
        field(rule("CRD-76"), "status.connector.readyServers", **COUNTS),
        field(rule("CRD-76"), "status.connector.coveredEnginePods", **COUNTS),
        field(rule("CRD-76"), "status.connector.uncoveredEnginePods", **COUNTS),
        field(
            rule("CRD-77", "CRD-11", "CRD-W21"),
            "status.connector.enginePodCoverage",
            [[], [{"name": "engine-0", "ready": False, "covered": False, "reason": "any"}]],
            doubled=[[{"name": "engine-0", "ready": True, "covered": True, "reason": "ConnectorReady"}] * 2],
            missing=[
                [{"ready": True, "covered": True, "reason": "r"}],
                [{"name": "e", "covered": True, "reason": "r"}],
                [{"name": "e", "ready": True, "reason": "r"}],
                [{"name": "e", "ready": True, "covered": True}],
            ],
        ),
        field(rule("CRD-78"), "status.remoteStorage", [{}]),
        field(rule("CRD-78"), "status.remoteStorage.provider", ["Redis"], unsupported=["Mooncake"]),
        field(rule("CRD-78"), "status.remoteStorage.endpoint", ["", "h:1"]),
        field(rule("CRD-78"), "status.remoteStorage.ready", ["True", "False", "Unknown", "later"]),
        field(rule("CRD-79", "CRD-18"), "status.matchedEnginePods", **COUNTS),
        field(rule("CRD-80"), "status.engineSelectorMessage", ["", "no pod"]),
        field(rule("CRD-81", "CRD-18"), "status.failOpen", [True, False], mistyped=["True"]),
        field(rule("CRD-82"), "status.observedGeneration", [0, 2**40], invalid=[-1]),
        field(
            rule("CRD-83"),
            "status.firstKVEventObservedAt",
            ["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123456Z"],
            mistyped=["yesterday"],
        ),
        field(rule("CRD-84"), "status.firstAvailableAt", ["2026-01-02T03:04:05Z"], mistyped=["5m", ""]),
        field(rule("CRD-85", "CRD-18"), "status.indexParticipation", [{"prefixCount": 0}], missing=[{}]),
        field(
            rule("CRD-85"),
            "status.indexParticipation.prefixCount",
            [0, 2**40],
            absent=REQUIRED,
            invalid=[-1],
        ),
        field(
            rule("CRD-85", "CRD-18"),
            "status.indexParticipation.lastEventAt",
            ["2026-01-02T03:04:05Z"],
            mistyped=["now"],
        ),
        field(rule("CRD-85", "CRD-17", "CRD-18"), "status.indexParticipation.hitRate", mistyped=[0.5]),
        field(
            rule("CRD-85", "CRD-17", "CRD-18"),
            "status.indexParticipation.t2HitRate",
            ["0", "0.78"],
            mistyped=[0.78],
        ),
        field(rule("CRD-86"), "status.conditions", [[]]),
    ],
)
async def test_a_field_of_the_status_takes_its_values_and_is_never_made_up(
    kube: KubeClient, namespace: str, row: Field
) -> None:
    await check_field(kube, namespace, "CacheBackend", row)


@pytest.mark.rule("CRD-86", "CRD-15")
async def test_every_condition_of_a_backend_has_its_place(kube: KubeClient, namespace: str) -> None:
    types = [
        "Ready",
        "Progressing",
        "Degraded",
        "ConnectorReady",
        "RemoteStorageReady",
        "FunctionalProbeOK",
        "EngineKernelsHealthy",
        "T2Degraded",
        "EngineCompatibility",
    ]
    conditions = [BACKEND_STATUS["conditions"][0] | {"type": type_} for type_ in types]
    await stored(kube, an_object("CacheBackend", namespace, BACKEND))
    answer = await kube.set_status("CacheBackend", "one", namespace, {"conditions": conditions})
    assert answer.body["status"] == {"conditions": conditions}


@pytest.mark.rule("CRD-22")
async def test_a_backend_needs_no_spec_but_a_spec_needs_a_runtime(kube: KubeClient, namespace: str) -> None:
    assert "spec" not in await stored(kube, an_object("CacheBackend", namespace))
    causes = await refused(kube, an_object("CacheBackend", namespace, {}, name="two"))
    assert causes == [("FieldValueRequired", "spec.runtime", "Required value")]


@pytest.mark.rule("CRD-W13", "CRD-23", "CRD-24", "CRD-51")
@pytest.mark.parametrize(
    ("path", "value", "supported"),
    [
        ("spec.runtime", "vllm", ["VLLM", "SGLang"]),
        ("spec.type", "External", ["LMCache", "SGLangHiCache"]),
        ("spec.type", "Mooncake", ["LMCache", "SGLangHiCache"]),
        ("spec.remoteStorage.provider", "Mooncake", ["Redis"]),
    ],
)
async def test_a_refused_name_is_told_beside_those_that_are_supported(
    kube: KubeClient, namespace: str, path: str, value: str, supported: list[str]
) -> None:
    [(reason, where, message)] = await refused(
        kube, with_value(an_object("CacheBackend", namespace, BACKEND), path, value)
    )
    assert (reason, where) == ("FieldValueNotSupported", path)
    assert message.startswith(f'Unsupported value: "{value}": supported values: ')
    assert all(f'"{name}"' in message for name in supported)


@pytest.mark.rule("CRD-50", "CRD-W14")
@pytest.mark.parametrize("path", [f"{POD}.l1Capacity", f"{NODE}.l1Capacity"])
@pytest.mark.parametrize("value", ["0", "-1Gi", 0])
async def test_a_capacity_of_nothing_is_refused_in_words(
    kube: KubeClient, namespace: str, path: str, value: object
) -> None:
    [(reason, where, message)] = await refused(
        kube, with_value(an_object("CacheBackend", namespace, BACKEND), path, value)
    )
    assert (reason, where) == ("FieldValueInvalid", path)
    assert message.endswith(": l1Capacity must be greater than zero")


@pytest.mark.rule("CRD-W14")
async def test_a_capacity_may_be_a_number_of_bytes(kube: KubeClient, namespace: str) -> None:
    wanted = with_value(an_object("CacheBackend", namespace, BACKEND), f"{POD}.l1Capacity", 4294967296)
    assert value_at(await stored(kube, wanted), f"{POD}.l1Capacity") == 4294967296


@pytest.mark.rule("CRD-10", "CRD-27", "CRD-28", "CRD-29", "CRD-92")
async def test_the_schema_makes_no_parent_for_a_default(kube: KubeClient, namespace: str) -> None:
    made = await stored(kube, an_object("CacheBackend", namespace, {"runtime": "VLLM"}))
    assert made["spec"] == {"runtime": "VLLM", "type": "LMCache"}


@pytest.mark.rule("CRD-10", "CRD-67", "CRD-68", "CRD-69", "CRD-72")
@pytest.mark.parametrize("nothing", [{}, {"mode": None, "role": None, "failOpen": None}])
async def test_defaults_fill_what_a_parent_leaves_out(
    kube: KubeClient, namespace: str, nothing: dict[str, None]
) -> None:
    spec = {"runtime": "VLLM", "type": None, "integration": nothing, "observation": {}}
    made = await stored(kube, an_object("CacheBackend", namespace, spec))
    assert made["spec"] == {
        "runtime": "VLLM",
        "type": "LMCache",
        "integration": {"mode": "Offload", "role": "ReadWrite", "failOpen": True},
        "observation": {"firstEventTimeout": "5m"},
    }


@pytest.mark.rule("CRD-12", "CRD-42")
async def test_a_pod_local_backend_may_become_node_local(kube: KubeClient, namespace: str) -> None:
    made = await stored(kube, an_object("CacheBackend", namespace, BACKEND))
    made["spec"]["lmCache"]["topology"] = "NodeLocal"
    del made["spec"]["lmCache"]["podLocal"]
    answer = await kube.replace(made)
    assert answer.status == 200
    assert answer.body["spec"]["lmCache"] == made["spec"]["lmCache"]


@pytest.mark.rule("CRD-101", "CRD-102", "CRD-103")
async def test_the_schema_takes_every_annotation(kube: KubeClient, namespace: str) -> None:
    annotations = {
        "inferencecache.io/lmcache-kernel-check": "sometimes",
        "inferencecache.io/require-kv-events": "no",
        "inferencecache.io/skip-functional-probe": "1",
    }
    wanted = an_object("CacheBackend", namespace, {"runtime": "VLLM"})
    wanted["metadata"]["annotations"] = annotations
    assert (await stored(kube, wanted))["metadata"]["annotations"] == annotations


@pytest.mark.rule("CRD-16")
@pytest.mark.parametrize(
    ("path", "value", "kept"),
    [
        (f"{REDIS}.resources.claims", [{"name": "a"}, {"name": "a"}], "FieldValueDuplicate"),
        (f"{REDIS}.resources.claims", [{"request": "a"}], "FieldValueRequired"),
        (f"{REDIS}.resources.limits", {"cpu": "1 core"}, "FieldValueInvalid"),
        (f"{REDIS}.authentication.password", {"name": "s"}, "FieldValueRequired"),
        (f"{INTEGRATION}.engineOverrides.env[2].valueFrom.secretKeyRef", {"name": "s"}, "FieldValueRequired"),
        (f"{INTEGRATION}.engineOverrides.env[1].valueFrom.configMapKeyRef", {}, "FieldValueRequired"),
        (f"{INTEGRATION}.engineOverrides.env[3].valueFrom.fieldRef", {}, "FieldValueRequired"),
        (f"{INTEGRATION}.engineOverrides.env[4].valueFrom.resourceFieldRef", {}, "FieldValueRequired"),
        (
            f"{INTEGRATION}.engineOverrides.env[5].valueFrom.fileKeyRef",
            {"key": "k", "path": "p"},
            "FieldValueRequired",
        ),
        (
            f"{STORAGE}.workload.topologySpreadConstraints",
            [{"maxSkew": 1, "topologyKey": "zone"}],
            "FieldValueRequired",
        ),
        (f"{STORAGE}.workload.tolerations", [{"tolerationSeconds": "60"}], "FieldValueTypeInvalid"),
        (f"{STORAGE}.workload.affinity", {"podAffinity": "near"}, "FieldValueTypeInvalid"),
        (f"{STORAGE}.workload.securityContext", {"runAsUser": "root"}, "FieldValueTypeInvalid"),
    ],
)
async def test_embedded_types_are_judged_by_their_own_shape(
    kube: KubeClient, namespace: str, path: str, value: object, kept: str
) -> None:
    causes = await refused(kube, with_value(an_object("CacheBackend", namespace, BACKEND), path, value))
    assert kept in {reason for reason, where, _ in causes if where.startswith(path)}


@pytest.mark.rule("CRD-16", "CRD-10")
@pytest.mark.parametrize(
    ("path", "value", "kept"),
    [
        (f"{REDIS}.authentication.password", {"key": "k"}, {"key": "k", "name": ""}),
        (f"{STORAGE}.workload.imagePullSecrets", [{}], [{"name": ""}]),
        (
            f"{INTEGRATION}.engineOverrides.env[5].valueFrom.fileKeyRef",
            {"key": "k", "path": "p", "volumeName": "v"},
            {"key": "k", "path": "p", "volumeName": "v", "optional": False},
        ),
        (f"{STORAGE}.workload.affinity", AFFINITY | {"later": 1}, AFFINITY),
        (f"{STORAGE}.workload.securityContext", POD_SECURITY | {"later": 1}, POD_SECURITY),
        (f"{STORAGE}.workload.tolerations", [TOLERATIONS[0] | {"later": 1}], TOLERATIONS),
        (f"{STORAGE}.workload.topologySpreadConstraints", [SPREAD[0] | {"later": 1}], SPREAD),
        (f"{REDIS}.resources", RESOURCES | {"later": 1}, RESOURCES),
    ],
)
async def test_embedded_types_have_their_own_defaults_and_lose_what_they_do_not_know(
    kube: KubeClient, namespace: str, path: str, value: object, kept: object
) -> None:
    wanted = with_value(an_object("CacheBackend", namespace, BACKEND), path, value)
    assert value_at(await stored(kube, wanted, strict=False), path) == kept


REMOVED = [
    ("spec", ("endpoint", "backendConfig", "resources", "storage", "deploymentKind", "replicas")),
    ("spec", ("autoscaling", "template")),
    (INTEGRATION, ("engine", "firstEventTimeout", "lookupTimeoutMs", "minimumPrefixTokens")),
    (LMCACHE, ("multiprocess", "hostMemory", "workerImage", "workerPort", "remoteSerde")),
    (f"{LMCACHE}.nodeLocal.scheduling", ("nodeSelector", "affinity")),
    (STORAGE, ("lmCacheServer", "mooncake")),
    (f"{STORAGE}.workload", ("replicas", "autoscaling", "containers")),
    ("status", ("endpoint", "observedServerInstance", "health", "capacity", "indexEntries")),
]


@pytest.mark.rule("CRD-07", "CRD-08", "CRD-W16", "CRD-19")
async def test_fields_that_there_are_not_are_dropped_unless_the_client_is_strict(
    kube: KubeClient, namespace: str
) -> None:
    wanted = an_object("CacheBackend", namespace, BACKEND) | {"status": BACKEND_STATUS}
    for parent, names in REMOVED:
        for name in names:
            wanted = with_value(wanted, f"{parent}.{name}", 3)
    strict = await kube.create(wanted, strict=True)
    assert strict.status == 400
    for parent, names in REMOVED:
        assert all(f'unknown field "{parent}.{name}"' in strict.message for name in names)
    made = await stored(kube, wanted, strict=False)
    assert made["spec"] == BACKEND
    answer = await kube.replace(made | {"status": wanted["status"]}, part="status")
    assert answer.body["status"] == BACKEND_STATUS


@pytest.mark.rule("CRD-14")
@pytest.mark.parametrize("amount", ["1n", "1u", "1m", "1k", "1M", "1G", "1T", "1P", "1E"])
async def test_a_quantity_may_have_a_decimal_suffix(kube: KubeClient, namespace: str, amount: str) -> None:
    path = f"{REDIS}.resources.requests"
    wanted = with_value(an_object("CacheBackend", namespace, BACKEND), path, {"cpu": amount})
    assert value_at(await stored(kube, wanted), path) == {"cpu": amount}


@pytest.mark.rule("CRD-14", "CRD-16")
async def test_a_quantity_may_be_signed_a_number_or_a_power(kube: KubeClient, namespace: str) -> None:
    path = f"{REDIS}.resources.requests"
    amounts = {"a": "-1", "b": "+.5Ki", "c": "2.Mi", "d": "1Gi", "e": "1Ti", "f": "1Pi", "g": "1Ei"}
    amounts |= {"h": "1e-3", "i": "1E3", "j": "0"}
    wanted = with_value(an_object("CacheBackend", namespace, BACKEND), path, amounts | {"k": 7})
    assert value_at(await stored(kube, wanted), path) == amounts | {"k": 7}


@pytest.mark.rule("CRD-170")
async def test_a_number_beyond_its_type_is_refused(kube: KubeClient, namespace: str) -> None:
    path = f"{LMCACHE}.chunkSizeTokens"
    causes = await refused(
        kube, with_value(an_object("CacheBackend", namespace, BACKEND), path, 3_000_000_000)
    )
    assert [(reason, where) for reason, where, _ in causes] == [("FieldValueInvalid", path)]


@pytest.mark.rule("CRD-11")
async def test_a_list_without_keys_is_replaced_whole(kube: KubeClient, namespace: str) -> None:
    wanted = an_object("CacheBackend", namespace, {"runtime": "VLLM", "integration": {"engineOverrides": {}}})
    for manager, name in (("first", "A"), ("second", "B")):
        wanted["spec"]["integration"]["engineOverrides"] = {"env": [{"name": name, "value": "1"}]}
        assert (await kube.apply(wanted, manager=manager, force=True)).status in (200, 201)
    made = (await kube.get("CacheBackend", "one", namespace)).body
    assert value_at(made, f"{INTEGRATION}.engineOverrides.env") == [{"name": "B", "value": "1"}]
