"""Policies, tenants, templates and topologies of a cluster, as real routers act on them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from inferencecache.controller.operating import Operating
from inferencecache.core.log import Bucket, NoStreamError
from inferencecache.core.log.subjects import POLICY, POLICY_KEY
from inferencecache.schemas.resources import document_of
from inferencecache.v1alpha1.inferencecache_pb2 import (
    CacheStateUpdate,
    LookupPDRouteRequest,
    LookupPDRouteResponse,
    LookupRouteRequest,
    PrefixEntry,
    RenderTemplateRequest,
)
from tests.kube.objects import stored
from tests.support.dataplane import DataPlane
from tests.support.kube import ApiServer, Document, KubeClient
from tests.support.live_router import LiveRouter, served_over
from tests.support.nats import NatsServer
from tests.support.operating import operating
from tests.support.resources import policy, template, tenant, topology
from tests.support.waiting import eventually

pytestmark = pytest.mark.kube
WITHIN_S = 45.0


@pytest.fixture
async def operation(
    operated_server: ApiServer, operator_token: str, nats_server: NatsServer
) -> AsyncIterator[Operating]:
    """A running controller."""
    async with operating(operated_server, operator_token, nats_server.url) as operation:
        yield operation


@pytest.fixture
async def router(plane: DataPlane) -> AsyncIterator[LiveRouter]:
    """A router whose index has an owner."""
    await plane.owner()
    async with served_over(await plane.follower()) as router:
        yield router


def condition(document: Document, type_: str) -> tuple[str, str]:
    """Status and reason of a condition; empty when it is absent."""
    for each in document.get("status", {}).get("conditions", ()):
        if each["type"] == type_:
            return each["status"], each["reason"]
    return "", ""


async def is_propagated(kube: KubeClient, of: Document) -> Document | None:
    """The object once it is propagated in its present generation."""
    metadata = of["metadata"]
    now = (await kube.get(of["kind"], metadata["name"], metadata["namespace"])).body
    is_current = now.get("status", {}).get("observedGeneration") == now["metadata"]["generation"]
    return now if is_current and condition(now, "Propagated")[0] == "True" else None


async def published_set(plane: DataPlane) -> dict[str, Any]:
    """The policy set as the bucket has it."""
    try:
        entry = await Bucket(await plane.log(), POLICY).get(POLICY_KEY)
    except NoStreamError:
        return {}
    return {} if entry is None else msgspec.json.decode(entry.value)


def an_engine_pod(namespace: str, name: str, **labels: str) -> Document:
    container = {"name": "engine", "image": "engine"}
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


async def set_ready(kube: KubeClient, pod: Document, status: str = "True") -> None:
    """Say of a pod what its kubelet would."""
    conditions = [{"type": "Ready", "status": status}]
    answer = await kube.set_status(
        "Pod", pod["metadata"]["name"], pod["metadata"]["namespace"], {"conditions": conditions}
    )
    assert answer.status == 200, answer.body


@pytest.mark.rule("CTL-188", "CTL-189", "CTL-218")
async def test_a_policy_is_applied_by_every_router_and_then_says_so(
    operation: Operating, router: LiveRouter, operated: KubeClient, operated_namespace: str
) -> None:
    scope: dict[str, Any] = {"tenant_id": operated_namespace, "model_id": "m", "hash_scheme": "vllm"}

    async def reason() -> str:
        return (await router.stub.LookupRoute(LookupRouteRequest(**scope, prefix_hash=b"p"))).reason_code

    update = CacheStateUpdate(
        **scope, replica_id="r", prefixes=[PrefixEntry(prefix_hash=b"p", token_count=128)]
    )
    assert (await router.stub.ReportCacheState(iter([update]))).accepted
    await eventually(lambda: is_reason(reason, "PREFIX_MATCH"))
    made = document_of(
        policy(f"{operated_namespace}/lookup", minimumMatchedTokens=200, affinityRouting="Disabled")
    )
    made = await stored(operated, made)
    done = await propagation_of(operated, made)
    assert condition(done, "Propagated") == ("True", "Acknowledged")
    assert await reason() == "NO_HINT"
    assert router.following.policy(operated_namespace) is not None  # type: ignore[arg-type]
    answer = await operated.patch(
        "CachePolicy", "lookup", operated_namespace, {"spec": {"minimumMatchedTokens": 64}}
    )
    assert answer.body["metadata"]["generation"] == 2
    await propagation_of(operated, made)
    assert await reason() == "PREFIX_MATCH"
    await operated.delete("CachePolicy", "lookup", operated_namespace)
    await eventually(
        lambda: router.following.policy(operated_namespace) is None,  # type: ignore[arg-type]
        within_s=WITHIN_S,
    )


async def is_reason(reason: Any, expected: str) -> bool:
    return bool(await reason() == expected)


async def propagation_of(kube: KubeClient, of: Document) -> Document:
    """The object, once it is propagated."""
    found: list[Document] = []

    async def is_done() -> bool:
        if (now := await is_propagated(kube, of)) is not None:
            found.append(now)
        return bool(found)

    await eventually(is_done, within_s=WITHIN_S, what=f"propagation of {of['kind']}")
    return found[-1]


async def test_without_a_router_nothing_is_propagated(
    operation: Operating, plane: DataPlane, operated: KubeClient, operated_namespace: str
) -> None:
    made = await stored(operated, document_of(policy(f"{operated_namespace}/lookup")))

    async def judged() -> bool:
        now = (await operated.get("CachePolicy", "lookup", operated_namespace)).body
        return condition(now, "Propagated") == ("Unknown", "NoRouters")

    await eventually(judged, within_s=WITHIN_S)
    await plane.owner()
    await plane.follower()
    await propagation_of(operated, made)


@pytest.mark.rule("CTL-193", "CTL-194", "CTL-201", "CTL-218")
async def test_the_bucket_has_the_whole_set_with_what_the_server_filled_in(
    operation: Operating, plane: DataPlane, operated: KubeClient, operated_namespace: str
) -> None:
    namespace = operated_namespace
    for made in (
        policy(f"{namespace}/zeta", eviction="LRU"),
        policy(f"{namespace}/alpha", eviction="LRU", routingFloorScore="0"),
        tenant(f"{namespace}/quota", namespace, 10),
    ):
        await stored(operated, document_of(made))
    filled = {"minimumMatchedTokens": 64, "affinityRouting": True}
    expected = {
        "version": 8,
        "policies": [{"namespace": namespace, **filled, "routingFloorScore": 0.0, "eviction": "lru"}],
        "tenants": [{"tenantID": namespace, "maxIndexEntries": 10, "isolationMode": "Fairness"}],
    }

    async def is_published() -> bool:
        return await published_set(plane) == expected

    await eventually(is_published, within_s=WITHIN_S)

    async def is_shadowed() -> bool:
        now = (await operated.get("CachePolicy", "zeta", namespace)).body
        return condition(now, "Propagated") == ("False", "NotInForce")

    await eventually(is_shadowed, within_s=WITHIN_S)
    await operated.delete("CachePolicy", "alpha", namespace)

    async def is_reverted() -> bool:
        reverted = {"namespace": namespace, **filled, "routingFloorScore": 0.1, "eviction": "lru"}
        return await published_set(plane) == {**expected, "policies": [reverted]}

    await eventually(is_reverted, within_s=WITHIN_S)


@pytest.mark.rule("CTL-192")
async def test_a_set_that_was_lost_or_overwritten_is_written_again(
    operation: Operating, plane: DataPlane, operated: KubeClient, operated_namespace: str
) -> None:
    await stored(operated, document_of(policy(f"{operated_namespace}/lookup", routingFloorScore="0.5")))
    bucket = Bucket(await plane.log(), POLICY)

    async def is_there() -> bool:
        return [entry["namespace"] for entry in (await published_set(plane)).get("policies", ())] == [
            operated_namespace
        ]

    await eventually(is_there, within_s=WITHIN_S)
    await bucket.put(POLICY_KEY, b'{"version":8,"policies":[]}')
    await eventually(is_there, within_s=WITHIN_S)
    await bucket.delete(POLICY_KEY)
    await eventually(is_there, within_s=WITHIN_S)


async def test_a_template_ends_in_what_a_router_renders(
    operation: Operating, router: LiveRouter, operated: KubeClient, operated_namespace: str
) -> None:
    ref = f"{operated_namespace}/greeting"

    async def rendered() -> tuple[str, bytes, str]:
        request = RenderTemplateRequest(template_ref=ref, variables={"name": "you"})
        answer = await router.stub.RenderTemplate(request)
        return answer.reason_code, answer.rendered_prompt, answer.template_revision

    made = template("Hello {{name}}", {"name": "name", "type": "Stable"}, ref=ref)
    done = await propagation_of(operated, await stored(operated, document_of(made)))
    assert await rendered() == ("OK", b"Hello you", done["status"]["templateRevision"])
    await operated.patch("PromptTemplate", "greeting", operated_namespace, {"spec": {"body": "Bye {{name}}"}})
    again = await propagation_of(operated, done)
    assert await rendered() == ("OK", b"Bye you", again["status"]["templateRevision"])
    assert again["status"]["templateRevision"] != done["status"]["templateRevision"]
    await operated.delete("PromptTemplate", "greeting", operated_namespace)

    async def is_gone() -> bool:
        return (await rendered())[0] == "TEMPLATE_NOT_FOUND"

    await eventually(is_gone, within_s=WITHIN_S)


async def test_a_topology_ends_in_the_pair_that_a_router_picks(
    operation: Operating, router: LiveRouter, operated: KubeClient, operated_namespace: str
) -> None:
    namespace = operated_namespace
    scope: dict[str, Any] = {"tenant_id": namespace, "model_id": "m", "hash_scheme": "vllm"}
    pools = {
        "prefillPools": [{"name": "p", "matchLabels": {"phase": "prefill"}}],
        "decodePools": [{"name": "d", "matchLabels": {"phase": "decode"}}],
    }

    async def pair() -> LookupPDRouteResponse:
        request = LookupPDRouteRequest(**scope, pd_topology_ref=f"{namespace}/pd", prefix_hash=b"p")
        return await router.stub.LookupPDRoute(request)

    made = await stored(operated, document_of(topology(f"{namespace}/pd", transport="NIXL", **pools)))
    await propagation_of(operated, made)
    assert (await pair()).reason_code == "EMPTY_POOL"
    for name in ("prefill-1", "prefill-2", "outside"):
        update = CacheStateUpdate(
            **scope, replica_id=name, prefixes=[PrefixEntry(prefix_hash=b"p", token_count=128)]
        )
        assert (await router.stub.ReportCacheState(iter([update]))).accepted
    pods = [
        await stored(operated, an_engine_pod(namespace, name, phase=name.rpartition("-")[0]))
        for name in ("prefill-1", "prefill-2", "decode-1", "outside")
    ]
    for pod in pods:
        await set_ready(operated, pod)

    async def is_picked() -> bool:
        answer = await pair()
        return (
            answer.prefill_replica_id in ("prefill-1", "prefill-2")
            and answer.decode_replica_id == "decode-1"
            and answer.transport_hint == "NIXL"
        )

    await eventually(is_picked, within_s=WITHIN_S)
    picked = (await pair()).prefill_replica_id
    await set_ready(operated, pods[0 if picked == "prefill-1" else 1], "False")

    async def is_the_other_picked() -> bool:
        return (await pair()).prefill_replica_id == ("prefill-2" if picked == "prefill-1" else "prefill-1")

    await eventually(is_the_other_picked, within_s=WITHIN_S)
    await operated.call("DELETE", f"/api/v1/namespaces/{namespace}/pods/decode-1", {"gracePeriodSeconds": 0})

    async def is_empty() -> bool:
        return (await pair()).reason_code == "EMPTY_POOL"

    await eventually(is_empty, within_s=WITHIN_S)
    await operated.delete("PDTopology", "pd", namespace)

    async def is_unknown() -> bool:
        return (await pair()).reason_code == "UNKNOWN_TOPOLOGY"

    await eventually(is_unknown, within_s=WITHIN_S)


@pytest.mark.rule("CTL-181", "CTL-182", "CTL-183", "CTL-184", "CTL-185", "CTL-W25")
async def test_tenants_tell_what_they_hold_and_whose_quota_counts(
    operation: Operating, router: LiveRouter, operated: KubeClient, operated_namespace: str
) -> None:
    namespace, id_ = operated_namespace, f"t-{operated_namespace}"
    scope: dict[str, Any] = {"tenant_id": id_, "model_id": "m", "hash_scheme": "vllm"}
    entries = [PrefixEntry(prefix_hash=b"p%d" % number, token_count=16) for number in range(3)]
    update = CacheStateUpdate(**scope, replica_id="r", prefixes=entries)
    assert (await router.stub.ReportCacheState(iter([update]))).accepted
    for made in (
        tenant(f"{namespace}/x", id_, 10),
        tenant(f"{namespace}/y", id_, 99),
        tenant(f"{namespace}/z", id_),
        tenant(f"{namespace}/free", f"{id_}-free"),
    ):
        await stored(operated, document_of(made))

    async def told(name: str) -> tuple[object, tuple[str, str], tuple[str, str]]:
        now = (await operated.get("CacheTenant", name, namespace)).body
        return (
            now.get("status", {}).get("indexEntries"),
            condition(now, "Ready"),
            condition(now, "QuotaExceeded"),
        )

    shadowed = (3, ("False", "DuplicateTenantID"), ("False", "NotEffective"))
    expected = {
        "x": (3, ("True", "Observed"), ("False", "WithinBudget")),
        "y": shadowed,
        "z": shadowed,
        "free": (0, ("True", "Observed"), ("False", "NoQuota")),
    }

    async def all_told() -> bool:
        return {name: await told(name) for name in expected} == expected

    await eventually(all_told, within_s=WITHIN_S)
    await operated.delete("CacheTenant", "x", namespace)

    async def is_next() -> bool:
        return (await told("y"))[1:] == (("True", "Observed"), ("False", "WithinBudget"))

    await eventually(is_next, within_s=WITHIN_S)
    assert (await told("z")) == shadowed
