"""kube-apiserver away: the data plane does not notice, and statuses catch up once it is back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from inferencecache.controller.aggregate import IncompleteAggregateError
from inferencecache.controller.operating import Operating
from inferencecache.schemas.resources import document_of
from tests.faults.conftest import Staged
from tests.support.fleet.injector import lasting
from tests.support.kube import ApiServer, Document, KubeClient
from tests.support.operating import install_rights, operating
from tests.support.resources import policy
from tests.support.waiting import eventually

pytestmark = [pytest.mark.kube, pytest.mark.timeout(420)]
AWAY_S = 5.0
WITHIN_S = 120.0


async def told(kube: KubeClient) -> Document:
    """The status of the one CacheIndex."""
    answer = await kube.get("CacheIndex", "cluster-default")
    status: Document = answer.body.get("status", {}) if answer.status == 200 else {}
    return status


async def is_up_to_date(kube: KubeClient, operation: Operating) -> bool:
    try:
        total = operation.aggregate.read().aggregate.total_prefixes
    except IncompleteAggregateError:
        return False
    return total > 0 and (await told(kube)).get("prefixes", {}).get("summary", {}).get("total") == total


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "frozen"])
async def test_the_data_plane_goes_on_and_statuses_catch_up(
    staged: Staged, tmp_path: Path, killed: bool
) -> None:
    server = ApiServer(tmp_path / "kube")
    try:
        await asyncio.to_thread(server.start)
        async with staged() as scene, KubeClient(server) as kube:
            token = await install_rights(kube)
            async with operating(server, token, scene.fleet.nats.url) as operation:
                await eventually(lambda: is_up_to_date(kube, operation), within_s=WITHIN_S, what="a status")
                before = await told(kube)
                if killed:
                    server.kill_api()
                else:
                    server.pause_api()
                await scene.under_load()
                await lasting(AWAY_S)
                await scene.under_load()
                if killed:
                    await asyncio.to_thread(server.restart_api)
                else:
                    server.resume_api()
                made = document_of(policy("kube-public/lookup", minimumMatchedTokens=16))
                answer = await kube.create(made)
                assert answer.status == 201, answer.body

                async def is_propagated() -> bool:
                    now = (await kube.get("CachePolicy", "lookup", "kube-public")).body
                    conditions = now.get("status", {}).get("conditions", ())
                    return [each["status"] for each in conditions] == ["True"]

                await eventually(is_propagated, within_s=WITHIN_S, what="propagation")
                await scene.settle()
                assert not scene.asking.amiss()
                await eventually(lambda: is_up_to_date(kube, operation), within_s=WITHIN_S, what="a status")
                assert (await told(kube))["lastUpdated"] > before["lastUpdated"]
    finally:
        server.stop()
