"""What breaks in a cluster and comes back by itself: pods of the installation, the log, its volume."""

from __future__ import annotations

import pytest

from tests.cluster.installation import WITHIN_S, Installation, Pod, prompt
from tests.support.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
rule = pytest.mark.rule

INDEXERS = "app.kubernetes.io/component=indexer"
NATS = "statefulset/inference-cache-nats"


async def two_engines(installation: Installation) -> tuple[Pod, Pod]:
    """Those that the journey of engines has left."""
    found: list[Pod] = []

    async def are_there() -> bool:
        found[:] = await installation.engines()
        return len(found) == 2

    await eventually(are_there, within_s=WITHIN_S)
    return found[0], found[1]


async def test_a_deleted_indexer_is_replaced_without_a_lost_hint(installation: Installation) -> None:
    one, other = await two_engines(installation)
    await installation.complete(one, prompt(100))
    await installation.hinted(prompt(100), one.name)
    for number, indexer in enumerate(await installation.pods(INDEXERS)):
        await installation.kill(indexer.name)
        for router in await installation.routers():
            assert (await installation.holders(router.address, prompt(100))).keys() == {one.name}
        await installation.complete(other, prompt(101 + number))
        await installation.hinted(prompt(101 + number), other.name)
        await installation.available()
    await installation.hinted(prompt(100), one.name)


@rule("OPS-110")
async def test_a_deleted_router_comes_back_with_the_answers_of_its_peer(installation: Installation) -> None:
    one, _ = await two_engines(installation)
    await installation.complete(one, prompt(110))
    await installation.hinted(prompt(110), one.name)
    before = await installation.routers()
    await installation.kill(before[0].name)
    await installation.available()
    assert {router.name for router in await installation.routers()} != {router.name for router in before}
    await installation.hinted(prompt(110), one.name)


@rule("OPS-111")
async def test_nats_that_is_deleted_comes_back_with_its_volume_and_nothing_is_lost(
    installation: Installation,
) -> None:
    one, other = await two_engines(installation)
    await installation.complete(one, prompt(120))
    await installation.hinted(prompt(120), one.name)
    routers = await installation.routers()
    log = await installation.log_created()
    await installation.kill("inference-cache-nats-0")
    for router in routers:
        assert (await installation.holders(router.address, prompt(120))).keys() == {one.name}
    await installation.complete(other, prompt(121))
    await installation.rolled_out(installation.kubectl, NATS)
    await installation.hinted(prompt(121), other.name)
    await installation.hinted(prompt(120), one.name)
    assert await installation.log_created() == log
    await installation.available()


@rule("OPS-109", "OPS-110")
async def test_nats_that_lost_its_volume_is_told_everything_anew(installation: Installation) -> None:
    one, other = await two_engines(installation)
    await installation.complete(one, prompt(130))
    await installation.hinted(prompt(130), one.name)
    log = await installation.log_created()
    kubectl = installation.kubectl
    await kubectl("scale", NATS, "--replicas=0")
    await kubectl.wait("pod/inference-cache-nats-0", "delete", WITHIN_S)
    await kubectl("delete", "pvc", "data-inference-cache-nats-0")
    await installation.add_volume()
    await kubectl("scale", NATS, "--replicas=1")
    await installation.rolled_out(kubectl, NATS)
    await installation.complete(other, prompt(131))
    await installation.hinted(prompt(131), other.name)
    await installation.hinted(prompt(130), one.name)
    assert await installation.log_created() != log
    await installation.available()
