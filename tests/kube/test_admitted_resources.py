"""What is stored of a resource where the webhooks are installed, schema and admission together."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kube.objects import ABSENT, an_object, refused, stored, value_at, with_value
from tests.support.backends import hi_cache, pod_local
from tests.support.kube import KubeClient

pytestmark = pytest.mark.kube

TIMEOUT = "spec.observation.firstEventTimeout"


@pytest.mark.rule("CRD-W17", "CRD-09", "CRD-92", "CRD-28", "CRD-29")
async def test_a_default_fills_a_parent_that_admission_has_made(
    guarded: KubeClient, guarded_namespace: str
) -> None:
    wanted = pod_local(namespace=guarded_namespace)
    del wanted["spec"]["type"]
    spec = (await stored(guarded, wanted))["spec"]
    assert spec.pop("type") == "LMCache"
    assert spec.pop("integration") == {"mode": "Offload", "role": "ReadWrite", "failOpen": True}
    assert spec.pop("observation") == {"firstEventTimeout": "5m"}
    assert spec == {key: value for key, value in wanted["spec"].items() if key in spec}
    assert "remoteStorage" not in spec


@pytest.mark.rule("CRD-W18", "CRD-94", "CRD-13")
@pytest.mark.parametrize("timeout", ["0s", "1h30m", "1.5h", "-5m"])
async def test_a_timeout_that_is_a_duration_is_stored_as_written(
    guarded: KubeClient, guarded_namespace: str, timeout: str
) -> None:
    wanted = pod_local(namespace=guarded_namespace)
    wanted["spec"]["observation"] = {"firstEventTimeout": timeout}
    assert value_at(await stored(guarded, wanted), TIMEOUT) == timeout


@pytest.mark.rule("CRD-W18", "CRD-13")
@pytest.mark.parametrize("timeout", ["1d", "", "5", "1 h", "h", ".s", "\u0661s"])
async def test_a_timeout_that_is_no_duration_is_a_bad_request(
    guarded: KubeClient, guarded_namespace: str, timeout: str
) -> None:
    wanted = pod_local(namespace=guarded_namespace)
    wanted["spec"]["observation"] = {"firstEventTimeout": timeout}
    answer = await guarded.create(wanted)
    assert answer.status == 400
    assert TIMEOUT in answer.message


@pytest.mark.rule("CRD-W20", "CRD-62")
async def test_a_host_cache_without_a_size_passes_the_schema_and_not_admission(
    kube: KubeClient, namespace: str, guarded: KubeClient, guarded_namespace: str
) -> None:
    wanted = with_value(hi_cache(namespace=namespace), "spec.hiCache", {})
    await stored(kube, wanted)
    causes = await refused(guarded, with_value(wanted, "metadata.namespace", guarded_namespace))
    assert [cause[1] for cause in causes] == ["spec.hiCache"]


@pytest.mark.rule("CRD-22")
@pytest.mark.parametrize("spec", [ABSENT, {}])
async def test_a_backend_without_a_runtime_is_refused_with_or_without_a_spec(
    guarded: KubeClient, guarded_namespace: str, spec: Any
) -> None:
    causes = await refused(guarded, with_value(pod_local(namespace=guarded_namespace), "spec", spec))
    assert [cause[1] for cause in causes] == ["spec.runtime"]


@pytest.mark.rule("CRD-170", "CRD-W14")
async def test_a_number_beyond_its_type_is_a_bad_request(guarded: KubeClient, guarded_namespace: str) -> None:
    path = "spec.lmCache.chunkSizeTokens"
    answer = await guarded.create(with_value(pod_local(namespace=guarded_namespace), path, 3_000_000_000))
    assert answer.status == 400
    assert path in answer.message


@pytest.mark.rule("CRD-107")
@pytest.mark.parametrize(("ttl", "status"), [("1ns", 201), ("0s", 422), ("-1m", 422), ("1d", 400)])
async def test_a_time_to_live_is_more_than_nothing(
    guarded: KubeClient, guarded_namespace: str, ttl: str, status: int
) -> None:
    answer = await guarded.create(an_object("CachePolicy", guarded_namespace, {"evictionTTL": ttl}))
    assert answer.status == status
    assert status == 201 or "spec.evictionTTL" in answer.message
