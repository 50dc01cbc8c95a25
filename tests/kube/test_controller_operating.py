"""The controller as an operator: who leads, with which rights, and that it writes only what differs."""

from __future__ import annotations

import asyncio
import threading

import pytest
from prometheus_client import CollectorRegistry

from inferencecache.controller.admission.webhooks import INSTALL_NAMESPACE
from inferencecache.controller.kube.leases import LOCK, LeadershipLostError, LeaseTimes
from inferencecache.controller.kube.writing import NotLeadingError
from inferencecache.controller.rights import rights_of_controller, roles_for_people
from inferencecache.controller.work import work_of
from inferencecache.core.kube.kinds import CACHE_INDICES
from inferencecache.schemas.resources import GROUP, KINDS, VERSION, document_of
from tests.kube.objects import an_object, stored
from tests.support.backends import hi_cache
from tests.support.dataplane import DataPlane
from tests.support.kube import ApiServer, Document, KubeClient, service_account_token
from tests.support.nats import NatsServer
from tests.support.operating import operating, prepared
from tests.support.resources import policy, template, tenant, topology
from tests.support.waiting import eventually, set_within

pytestmark = pytest.mark.kube
TIMES = LeaseTimes(duration_s=15.0, renewal_s=12.0, retry_s=0.3)
WITHIN_S = 45.0
BACKENDS = 100
QUIET_S = 10.0
"""Three ticks, and two publications of the policy set."""


def writes_of(registry: CollectorRegistry) -> dict[tuple[str, str], float]:
    """Writes to the API server so far, by kind and verb."""
    return {
        (sample.labels["kind"], sample.labels["verb"]): sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == "inferencecache_controller_writes_total"
    }


@pytest.mark.rule("CTL-07", "CTL-08", "CTL-222")
async def test_one_leads_until_another_has_the_lease(
    operated_server: ApiServer,
    operator_token: str,
    nats_server: NatsServer,
    operated: KubeClient,
    operated_namespace: str,
) -> None:
    async def is_judged(name: str) -> bool:
        return bool((await operated.get("CachePolicy", name, operated_namespace)).body.get("status"))

    async def lease() -> Document:
        return (await operated.get("Lease", LOCK, INSTALL_NAMESPACE)).body

    at = (operated_server, operator_token, nats_server.url, TIMES)
    async with prepared(*at, leader_elect=True) as first, prepared(*at, leader_elect=True) as second:
        leader = asyncio.ensure_future(first.run(work_of))
        await eventually(lambda: first.is_leading, within_s=WITHIN_S)
        follower = asyncio.ensure_future(second.run(work_of))
        await stored(operated, document_of(policy(f"{operated_namespace}/one")))
        await eventually(lambda: is_judged("one"), within_s=WITHIN_S)
        held = await lease()
        assert held["spec"]["holderIdentity"] == first.id
        assert not second.is_leading
        assert writes_of(second.registry) == {}, "who does not lead writes nothing"
        taken = held["spec"] | {"holderIdentity": "usurper", "leaseDurationSeconds": 2}
        answer = await operated.patch("Lease", LOCK, INSTALL_NAMESPACE, {"spec": taken})
        assert answer.status == 200
        with pytest.raises(ExceptionGroup) as lost:
            await asyncio.wait_for(leader, WITHIN_S)
        assert lost.value.subgroup(LeadershipLostError) is not None
        await eventually(lambda: second.is_leading, within_s=WITHIN_S, what="the usurper's lease to expire")
        await stored(operated, document_of(policy(f"{operated_namespace}/two")))
        await eventually(lambda: is_judged("two"), within_s=WITHIN_S)
        assert (await lease())["spec"]["holderIdentity"] == second.id
        follower.cancel()
        await asyncio.gather(follower, return_exceptions=True)
        assert (await lease())["spec"]["holderIdentity"] == "", "it lets the next one lead at once"


@pytest.mark.rule("CTL-07")
async def test_a_leader_that_stood_still_for_its_lease_writes_nothing_before_it_has_renewed_it(
    operated_server: ApiServer, operator_token: str, nats_server: NatsServer, operated: KubeClient
) -> None:
    times = LeaseTimes(duration_s=4.0, renewal_s=3.5, retry_s=0.3)
    at = (operated_server, operator_token, nats_server.url, times)
    async with prepared(*at, leader_elect=True) as operation:
        assert not operation.may_write(), "it has not looked yet"
        leader = asyncio.ensure_future(operation.run(work_of))
        await eventually(lambda: operation.is_leading, within_s=WITHIN_S)
        await eventually(operation.may_write, within_s=WITHIN_S)
        threading.Event().wait(times.duration_s)  # nothing of the process goes on meanwhile
        with pytest.raises(NotLeadingError):
            await operation.writer.create(CACHE_INDICES, an_object("CacheIndex", "", name="late"))
        assert (await operated.get("CacheIndex", "late")).status == 404
        await eventually(
            operation.may_write, within_s=WITHIN_S, what="its lease, which nobody else has taken"
        )
        leader.cancel()
        await asyncio.gather(leader, return_exceptions=True)


@pytest.mark.rule("CTL-221", "CTL-222", "CTL-223", "CTL-225")
async def test_the_account_may_do_what_the_manifests_say_and_nothing_else(
    operated: KubeClient, operated_server: ApiServer, operator_token: str, operated_namespace: str
) -> None:
    async with KubeClient(operated_server, operator_token) as account:

        async def rules(namespace: str) -> set[tuple[str, str, str]]:
            review = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectRulesReview",
                "spec": {"namespace": namespace},
            }
            path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
            answer = await account.call("POST", path, review)
            return {
                (group, resource, verb)
                for rule in answer.body["status"]["resourceRules"]
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
                if group not in ("authentication.k8s.io", "authorization.k8s.io")  # anybody may ask who it is
            }

        def stated(kind: str) -> set[tuple[str, str, str]]:
            return {
                (group, resource, verb)
                for document in rights_of_controller()
                if document["kind"] == kind
                for rule in document["rules"]
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            }

        everywhere = await rules(operated_namespace)
        assert everywhere == stated("ClusterRole")
        assert await rules(INSTALL_NAMESPACE) == stated("ClusterRole") | stated("Role")
        assert not any(resource.startswith("secrets") for _, resource, _ in everywhere)
        refused = await account.list_all("Secret", operated_namespace)
        assert refused.status == 403


@pytest.mark.rule("CTL-224")
async def test_people_get_roles_to_edit_and_to_view_each_kind(
    operated: KubeClient, operated_server: ApiServer, operated_namespace: str
) -> None:
    roles = {role["metadata"]["name"]: role for role in roles_for_people()}
    assert len(roles) == 2 * len(KINDS)
    for kind in KINDS.values():
        for who, may_write in (("editor", True), ("viewer", False)):
            name = f"inference-cache-{kind.name.lower()}-{who}-role"
            answer = await operated.create(roles[name])
            assert answer.status in (201, 409), answer
            token = await service_account_token(operated, operated_namespace, f"{kind.name.lower()}-{who}")
            subject = {"kind": "ServiceAccount", "name": f"{kind.name.lower()}-{who}"}
            binding = {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": f"{operated_namespace}-{kind.name.lower()}-{who}"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
                "subjects": [subject | {"namespace": operated_namespace}],
            }
            assert (await operated.create(binding)).status == 201
            async with KubeClient(operated_server, token) as person:
                made = an_object(kind.name, operated_namespace, name="cluster-default")
                namespace = made["metadata"].get("namespace", "")
                path = f"/apis/{GROUP}/{VERSION}"
                path += f"/namespaces/{namespace}/{kind.plural}" if namespace else f"/{kind.plural}"

                async def is_allowed(method: str, path: str, document: Document | None = None) -> bool:
                    return (await person.call(method, path, document)).status not in (401, 403)

                assert await is_allowed("GET", path)
                assert await is_allowed("POST", f"{path}?dryRun=All", made) == may_write
                assert await is_allowed("DELETE", f"{path}/absent") == may_write
                assert await is_allowed("GET", f"{path}/absent/status")
                assert not await is_allowed("PUT", f"{path}/absent/status", made)


@pytest.mark.rule("CTL-19", "CTL-43", "CTL-165", "CTL-178", "CTL-187")
async def test_an_idle_controller_writes_nothing(
    operated_server: ApiServer,
    operator_token: str,
    nats_server: NatsServer,
    operated: KubeClient,
    operated_namespace: str,
    plane: DataPlane,
) -> None:
    await plane.owner()
    await plane.follower()
    for number in range(BACKENDS):
        await stored(operated, hi_cache(name=f"b{number}", namespace=operated_namespace))
    for made in (
        policy(f"{operated_namespace}/p"),
        tenant(f"{operated_namespace}/t", "t", 5),
        template("Hello", ref=f"{operated_namespace}/t"),
        topology(f"{operated_namespace}/t"),
    ):
        await stored(operated, document_of(made))
    at = (operated_server, operator_token, nats_server.url)
    async with operating(*at, refresh_interval_s=3.0, push_interval_s=4.0) as operation:

        async def is_settled() -> bool:
            before = writes_of(operation.registry)
            is_done = len(before) >= 6 and before.get(("CacheBackend", "status"), 0) >= BACKENDS
            return is_done and not await changes_within(2.0)

        async def changes_within(seconds: float) -> dict[tuple[str, str], float]:
            before = writes_of(operation.registry)
            await set_within(asyncio.Event(), seconds)
            after = writes_of(operation.registry)
            return {
                which: after[which] - before.get(which, 0)
                for which in after
                if after[which] != before.get(which)
            }

        await eventually(is_settled, within_s=WITHIN_S)
        assert await changes_within(QUIET_S) == {}
