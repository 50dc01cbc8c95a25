"""What objects of Kubernetes say of endpoints, where they say it in a way that is easily misread."""

from __future__ import annotations

from typing import Any

from inferencecache.core.gateway import Endpoints
from inferencecache.router.gateway.kube_endpoints import endpoints_of_pool, endpoints_of_slices
from tests.support.endpoints import endpoint


def pod(name: str, ip: str, *, is_ready: bool = True) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": str(is_ready)}]
    return {"metadata": {"name": name, "uid": name}, "status": {"podIP": ip, "conditions": conditions}}


def test_a_failed_pod_that_is_still_listed_does_not_hide_who_took_over_its_address() -> None:
    pool = {"spec": {"targetPorts": [{"number": 8000}]}}
    alive, failed = pod("alive", "10.0.0.1"), pod("failed", "10.0.0.1", is_ready=False)
    for pods in ([alive, failed], [failed, alive]):
        table = Endpoints(endpoints_of_pool(pool, pods))
        assert table.ready() == [endpoint("10.0.0.1:8000", "alive", "alive")]


def test_a_port_without_a_number_is_no_engine() -> None:
    document = {
        "addressType": "IPv4",
        "ports": [{"name": "any"}, {"name": "all", "port": None}, {"name": "http", "port": 8000}],
        "endpoints": [{"addresses": ["10.0.0.1"], "targetRef": {"kind": "Pod", "name": "a", "uid": "u"}}],
    }
    assert endpoints_of_slices([document]) == (endpoint("10.0.0.1:8000", "a", "u"),)
    assert endpoints_of_slices([document], "any") == ()
