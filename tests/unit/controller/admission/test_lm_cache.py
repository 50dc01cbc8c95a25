"""LMCache servers: topology, image, ports, memory, workers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.backends import IMAGE, Document, events_only, hi_cache, node_local, pod_local
from tests.support.judging import NODE_SERVER, SERVER, Found, changed, details, judged

rule = pytest.mark.rule
REQUESTS, LIMITS = f"{SERVER}.resources.requests", f"{SERVER}.resources.limits"
MEMORY = {"requests": {"cpu": "1", "memory": "5Gi"}, "limits": {"memory": "5Gi"}}


def serving(field: str, value: Any) -> Document:
    return changed(pod_local(), {f"{SERVER}.{field}": value})


@rule("ADM-W1")
@pytest.mark.parametrize("make", [pod_local, node_local, hi_cache, events_only])
def test_the_base_backends_are_valid(make: Any) -> None:
    assert judged(make()) == []


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param(
            changed(hi_cache(), {"spec.lmCache": {}}), [("Forbidden", "spec.lmCache")], marks=rule("ADM-27")
        ),
        pytest.param(
            changed(events_only(), {"spec.lmCache": pod_local()["spec"]["lmCache"]}),
            [("Forbidden", "spec.lmCache")],
            marks=rule("ADM-39", "ADM-W8"),
        ),
        pytest.param(
            changed(pod_local(), {"spec.lmCache": None}),
            [("Required", "spec.lmCache"), ("Invalid", "spec.runtime")],
            marks=rule("ADM-40", "ADM-97"),
        ),
        pytest.param(
            changed(pod_local(), {"spec.lmCache.topology": None}),
            [("Required", "spec.lmCache.topology"), ("Invalid", "spec.runtime")],
            marks=rule("ADM-41", "ADM-97", "ADM-W7"),
        ),
        pytest.param(
            changed(pod_local(), {"spec.lmCache.topology": "Rack"}),
            [("NotSupported", "spec.lmCache.topology"), ("Invalid", "spec.runtime")],
            marks=rule("ADM-41"),
        ),
        pytest.param(
            changed(pod_local(), {"spec.lmCache.podLocal": None, "spec.lmCache.nodeLocal": {}}),
            [("Required", "spec.lmCache.podLocal"), ("Forbidden", "spec.lmCache.nodeLocal")],
            marks=rule("ADM-42"),
        ),
        pytest.param(changed(pod_local(), {SERVER: None}), [("Required", SERVER)], marks=rule("ADM-42")),
        pytest.param(
            changed(node_local(), {"spec.lmCache.nodeLocal": None, "spec.lmCache.podLocal": {}}),
            [("Required", "spec.lmCache.nodeLocal"), ("Forbidden", "spec.lmCache.podLocal")],
            marks=rule("ADM-43"),
        ),
        pytest.param(
            changed(node_local(), {NODE_SERVER: None}), [("Required", NODE_SERVER)], marks=rule("ADM-43")
        ),
        *(
            pytest.param(
                changed(node_local(), {"spec.lmCache.nodeLocal.idleRetentionSeconds": seconds}),
                [("Invalid", "spec.lmCache.nodeLocal.idleRetentionSeconds")] if wrong else [],
                marks=rule("ADM-45"),
            )
            for seconds, wrong in ((-1, True), (86401, True), (0, False), (86400, False))
        ),
    ],
)
def test_topology_decides_which_blocks_there_are(document: Document, expected: Found) -> None:
    assert judged(document) == expected


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        pytest.param("image", " ", [("Required", f"{SERVER}.image")], marks=rule("ADM-46")),
        *(
            pytest.param("image", image, [("Invalid", f"{SERVER}.image")], marks=rule("ADM-47", "ADM-W2"))
            for image in (
                "registry.example.com/lmcache:latest",
                f"@sha256:{'a' * 64}",
                f"r@sha256:{'A' * 64}",
                f"r@sha256:{'a' * 63}",
                f"r@sha256:{'a' * 65}",
                f"a b@sha256:{'a' * 64}",
            )
        ),
        pytest.param("image", f" {IMAGE}\n", [], marks=rule("ADM-47")),
        pytest.param("port", 0, [("Invalid", f"{SERVER}.port")], marks=rule("ADM-48")),
        pytest.param("port", 65536, [("Invalid", f"{SERVER}.port")], marks=rule("ADM-48")),
        pytest.param("port", 65535, [], marks=rule("ADM-48")),
        pytest.param("port", 5557, [("Invalid", f"{SERVER}.port")], marks=rule("ADM-49", "ADM-W3")),
        pytest.param("port", 8080, [("Invalid", f"{SERVER}.port")], marks=rule("ADM-49", "ADM-W3")),
        pytest.param("port", 5558, [], marks=rule("ADM-49", "ADM-W3")),
        pytest.param("l1Capacity", 0, [("Invalid", f"{SERVER}.l1Capacity")], marks=rule("ADM-50")),
        pytest.param("l1Capacity", "-1Gi", [("Invalid", f"{SERVER}.l1Capacity")], marks=rule("ADM-50")),
        pytest.param("maxWorkers", 0, [("Invalid", f"{SERVER}.maxWorkers")], marks=rule("ADM-57")),
    ],
)
def test_a_server_is_pinned_reachable_and_not_empty(field: str, value: Any, expected: Found) -> None:
    assert judged(serving(field, value)) == expected


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        pytest.param(
            {"requests": {"memory": "5Gi"}, "limits": {"memory": "5Gi"}},
            [("Required", f"{REQUESTS}[cpu]")],
            marks=rule("ADM-51"),
        ),
        pytest.param(
            {"requests": {"cpu": 0, "memory": "5Gi"}, "limits": {"memory": "5Gi"}},
            [("Required", f"{REQUESTS}[cpu]")],
            marks=rule("ADM-51"),
        ),
        pytest.param(
            {"requests": {"cpu": "1"}, "limits": {"memory": "5Gi"}},
            [("Required", f"{REQUESTS}[memory]")],
            marks=rule("ADM-52"),
        ),
        pytest.param(
            {"requests": {"cpu": "1", "memory": "4Gi"}, "limits": {"memory": "5Gi"}},
            [("Invalid", f"{REQUESTS}[memory]")],
            marks=rule("ADM-53", "ADM-W5"),
        ),
        pytest.param(
            {"requests": {"cpu": "1", "memory": "5Gi"}},
            [("Required", f"{LIMITS}[memory]")],
            marks=rule("ADM-54"),
        ),
        pytest.param(
            {"requests": {"cpu": "1", "memory": "7Gi"}, "limits": {"memory": "6Gi"}},
            [("Invalid", f"{LIMITS}[memory]")],
            marks=rule("ADM-55"),
        ),
        pytest.param(
            {"requests": {"cpu": "1", "memory": "5Gi"}, "limits": {"memory": "4Gi"}},
            [("Invalid", f"{LIMITS}[memory]")] * 2,
            marks=rule("ADM-55", "ADM-56", "ADM-W4"),
        ),
        pytest.param(
            MEMORY | {"claims": [{"name": "c"}]},
            [("Forbidden", f"{SERVER}.resources.claims")],
            marks=rule("ADM-60"),
        ),
    ],
)
def test_a_server_has_memory_for_its_cache_and_one_gibibyte(resources: Document, expected: Found) -> None:
    assert judged(serving("resources", resources)) == expected


@rule("ADM-53", "ADM-56")
def test_an_invalid_capacity_has_no_budget() -> None:
    small = {"requests": {"cpu": "1", "memory": "1Mi"}, "limits": {"memory": "1Mi"}}
    document = changed(serving("resources", small), {f"{SERVER}.l1Capacity": "0"})
    assert judged(document) == [("Invalid", f"{SERVER}.l1Capacity")]


@rule("ADM-49")
@pytest.mark.parametrize(("port", "owner"), [(5557, "KV events"), (8080, "HTTP")])
def test_a_taken_port_names_its_owner(port: int, owner: str) -> None:
    assert owner in details(serving("port", port))[0]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"port": 5557, "httpPort": 8080}, [], marks=rule("ADM-49", "ADM-W3")),
        pytest.param({"httpPort": 6555}, ["httpPort"], marks=rule("ADM-58", "ADM-W6")),
        pytest.param({"port": 0}, ["port"], marks=rule("ADM-58")),
        pytest.param({"httpPort": 65536}, ["httpPort"], marks=rule("ADM-58")),
        pytest.param({"maxGPUWorkers": 0}, ["maxGPUWorkers"], marks=rule("ADM-57")),
        pytest.param({"maxCPUWorkers": 0}, ["maxCPUWorkers"], marks=rule("ADM-57")),
    ],
)
def test_a_shared_server_has_two_ports_and_two_kinds_of_workers(
    changes: dict[str, Any], expected: list[str]
) -> None:
    document = changed(node_local(), {f"{NODE_SERVER}.{field}": value for field, value in changes.items()})
    assert judged(document) == [("Invalid", f"{NODE_SERVER}.{field}") for field in expected]


@rule("ADM-59", "ADM-W6")
def test_a_shared_server_takes_no_gpu_on_either_side() -> None:
    with_gpu = {side: amounts | {"nvidia.com/gpu": 1} for side, amounts in MEMORY.items()}
    document = changed(node_local(), {f"{NODE_SERVER}.resources": with_gpu})
    root = f"{NODE_SERVER}.resources"
    assert judged(document) == [
        ("Forbidden", f"{root}.requests[nvidia.com/gpu]"),
        ("Forbidden", f"{root}.limits[nvidia.com/gpu]"),
    ]
