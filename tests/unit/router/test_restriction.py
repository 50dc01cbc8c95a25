"""A restricted router answers for its part of the fleet, and takes reports for all of it."""

from __future__ import annotations

import pytest

from inferencecache.core.log import Log
from inferencecache.core.log.subjects import partitions_of
from inferencecache.core.service import NatsSettings
from inferencecache.router.generation import FollowedGeneration
from inferencecache.router.restriction import EVERYTHING, Restriction
from inferencecache.router.settings import read_settings
from inferencecache.schemas.ids import ModelId, TenantId
from inferencecache.schemas.layout import Lanes, Layout
from inferencecache.v1alpha1.inferencecache_pb2 import (
    CacheStateUpdate,
    GetCacheStateRequest,
    LookupRouteRequest,
    PrefixEntry,
    ReplicaStats,
)
from tests.support.router import Router, served_router

URL = ("--nats-url=nats://127.0.0.1:4222", "--insecure-nats")
LANES = (Lanes(TenantId("t"), ModelId("m"), 3),)
WIDE = Layout(1, 64, LANES)


def restriction(tenants: str = "", models: str = "") -> Restriction:
    return read_settings([*URL, f"--tenants={tenants}", f"--models={models}"], {}).restriction


def followed(layout: Layout, by: Restriction) -> FollowedGeneration:
    log = Log(NatsSettings("nats://127.0.0.1:4222", insecure=True), "test")
    return FollowedGeneration(log, layout, by, on_change=lambda: None, on_missing=lambda: None)


async def report(router: Router, tenant: str, model: str) -> None:
    update = CacheStateUpdate(
        tenant_id=tenant,
        model_id=model,
        hash_scheme="vllm",
        replica_id="r",
        prefixes=[PrefixEntry(prefix_hash=b"p", token_count=64)],
        stats=ReplicaStats(hit_rate=0.5),
    )
    await router.stub.ReportCacheState(iter([update]))


async def reason(router: Router, tenant: str, model: str) -> str:
    request = LookupRouteRequest(tenant_id=tenant, model_id=model, hash_scheme="vllm", prefix_hash=b"p")
    return (await router.stub.LookupRoute(request)).reason_code


@pytest.mark.parametrize(
    ("part", "served"),
    [
        (EVERYTHING, {("t", "m"), ("t", "n"), ("u", "m"), ("u", "n")}),
        (restriction(tenants="t"), {("t", "m"), ("t", "n")}),
        (restriction(models="n, x"), {("t", "n"), ("u", "n")}),
        (restriction(tenants="t,u", models="m"), {("t", "m"), ("u", "m")}),
    ],
)
async def test_lookups_about_anything_else_get_no_hint_and_reports_are_taken_for_all(
    part: Restriction, served: set[tuple[str, str]]
) -> None:
    async with served_router() as router:
        router.log.restriction = part
        for tenant, model in (("t", "m"), ("t", "n"), ("u", "m"), ("u", "n")):
            await report(router, tenant, model)
            is_served = (tenant, model) in served
            assert await reason(router, tenant, model) == ("PREFIX_MATCH" if is_served else "NO_HINT")
            state = await router.stub.GetCacheState(GetCacheStateRequest(tenant_id=tenant, model_id=model))
            assert state.summary.total_prefixes == is_served
            assert len(state.replicas) == is_served
        assert sum(fold.view.entries for fold in router.log.folds) == 4


def test_only_partitions_that_may_have_it_are_followed_when_tenants_and_models_are_named() -> None:
    part = restriction(tenants="t", models="m,n")
    generation = followed(WIDE, part)
    needed = {*partitions_of("t", "m", WIDE), *partitions_of("t", "n", WIDE)}
    assert {int(replica.key.partition(".")[2]) for replica in generation.replicas} == needed
    assert len(generation.views) == 64
    for number in range(64):
        assert (generation.replica(number) is not None) == (number in needed)
    assert generation.replica(64) is None


@pytest.mark.parametrize("part", [EVERYTHING, restriction(tenants="t"), restriction(models="m")])
def test_otherwise_all_partitions_are_followed(part: Restriction) -> None:
    assert len(followed(Layout(1, 6), part).replicas) == 6


@pytest.mark.parametrize("text", ["t,,u", ",", "t,"])
def test_an_empty_name_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        restriction(tenants=text)
    assert "--tenants" in capsys.readouterr().err
