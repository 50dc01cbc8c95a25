"""When the policy set is published, and what becomes of failures."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from inferencecache.controller.intent.bucket import IntentBucket
from inferencecache.controller.intent.policy_set import THE_SET, PolicySetPublisher
from inferencecache.controller.kube.observed import Change, Observed
from inferencecache.controller.kube.recording import Recorder
from inferencecache.controller.kube.writing import Writer
from inferencecache.controller.reconciling.queue import RetryError
from inferencecache.core.kube.api import KubeApi, Listing, RefusedCallError, UnansweredError
from inferencecache.core.kube.kinds import (
    CACHE_POLICIES,
    CACHE_TENANTS,
    PODS,
    Document,
    ObjectKey,
    ObjectKind,
)
from tests.unit.controller.intent.test_policy_set import raw

MISSING = RefusedCallError("GET", 404, "NotFound", "no such kind")
POLICY = raw("CachePolicy", "team-a/p")
TENANT = raw("CacheTenant", "team-a/x", {"tenantID": "t", "quota": {"maxIndexEntries": 1}})


class Api(KubeApi):
    """Lists what it is told, or fails."""

    def __init__(self, lists: dict[ObjectKind, list[Document] | Exception]) -> None:
        self.lists = lists

    async def list_all(self, kind: ObjectKind, namespace: str = "", labels: str = "") -> Listing:
        found = self.lists[kind]
        if isinstance(found, Exception):
            raise found
        return Listing(found, "1")


class Means:
    def __init__(self, api: KubeApi) -> None:
        self.api = api
        self.observed = Observed([CACHE_POLICIES, CACHE_TENANTS])
        self.writer = Writer(api, CollectorRegistry())

    def recorder(self, component: str) -> Recorder:
        raise NotImplementedError


class Put(IntentBucket):
    """Remembers what is put."""

    def __init__(self) -> None:
        self.sets: list[Any] = []
        self.fails = False

    async def put(self, key: str, value: bytes) -> int:
        if self.fails:
            raise RetryError("no")
        self.sets.append(msgspec.json.decode(value))
        return len(self.sets)


class World:
    def __init__(self, policies: list[Document] | Exception, tenants: list[Document] | Exception) -> None:
        self.bucket = Put()
        self.told: list[tuple[str, ObjectKey]] = []
        self.api = Api({CACHE_POLICIES: policies, CACHE_TENANTS: tenants})
        self.publisher = PolicySetPublisher(
            Means(self.api), self.bucket, 30.0, lambda kind, key: self.told.append((kind.name, key))
        )

    async def publish(self) -> float | None:
        return await self.publisher.reconcile(THE_SET)


@pytest.mark.rule("CTL-188")
async def test_the_whole_set_is_published_and_again_after_each_interval() -> None:
    world = World([POLICY], [TENANT])
    assert await world.publish() == 30.0
    assert await world.publish() == 30.0
    assert world.bucket.sets[0] == world.bucket.sets[1]
    assert [len(world.bucket.sets[0][part]) for part in ("policies", "tenants")] == [1, 1]
    assert world.told == [
        ("CachePolicy", ObjectKey("team-a", "p")),
        ("CacheTenant", ObjectKey("team-a", "x")),
    ], "once, since nothing has changed"


@pytest.mark.rule("CTL-191")
async def test_without_the_definition_of_policies_nothing_is_published() -> None:
    world = World(MISSING, [TENANT])
    assert await world.publish() == 30.0
    assert world.bucket.sets == []


@pytest.mark.rule("CTL-191")
async def test_without_the_definition_of_tenants_policies_are_published() -> None:
    world = World([POLICY], MISSING)
    assert await world.publish() == 30.0
    (published,) = world.bucket.sets
    assert "tenants" not in published


@pytest.mark.rule("CTL-190", "CTL-191")
@pytest.mark.parametrize("error", [UnansweredError("no"), RefusedCallError("GET", 403, "Forbidden", "no")])
async def test_any_other_failure_publishes_nothing_and_is_tried_again(error: Exception) -> None:
    world = World([POLICY], error)
    with pytest.raises(RetryError) as failure:
        await world.publish()
    assert failure.value.within_s == 30.0, "a period later at the latest"
    assert world.bucket.sets == []
    world.api.lists[CACHE_TENANTS] = []
    world.bucket.fails = True
    with pytest.raises(RetryError):
        await world.publish()
    assert world.told == []


async def test_a_set_that_no_router_takes_is_told_to_every_object_of_it() -> None:
    many = [raw("CachePolicy", f"{'n' * 200}{number}/p") for number in range(6000)]
    world = World(many, [])
    with pytest.raises(RetryError, match="policy set takes"):
        await world.publish()
    standing = world.publisher.standing(many[0])
    assert standing is not None
    assert standing.reason == "PolicySetTooLarge"
    assert len(world.told) == len(many)


@pytest.mark.rule("CTL-188")
def test_every_change_but_that_of_a_status_has_the_set_published() -> None:
    publisher = World([], []).publisher
    key = ObjectKey("team-a", "p")
    newer = raw("CachePolicy", "team-a/p", generation=2)
    told = dict(POLICY, status={"observedGeneration": 1})
    for before, after, expected in (
        (None, POLICY, (THE_SET,)),
        (POLICY, newer, (THE_SET,)),
        (POLICY, None, (THE_SET,)),
        (POLICY, told, ()),
        (POLICY, POLICY, (THE_SET,)),  # as at a resync
    ):
        assert publisher.concerns(Change(CACHE_POLICIES, key, before, after)) == expected
    assert publisher.concerns(Change(PODS, key, None, POLICY)) == ()
