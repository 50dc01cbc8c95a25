"""The doctor reads the pages of real programs: an engine that serves while its events go nowhere is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from inferencecache.cli.doctor.checks.engines import check_engines
from inferencecache.cli.doctor.collecting.engines import EnginePages, collect_named
from inferencecache.cli.doctor.facts import EnginePage, SidecarPage, Unreachable
from tests.support.local_stack import LocalStack
from tests.support.waiting import eventually

LIMIT_S = 300


def pages(stack: LocalStack) -> EnginePages:
    engine = stack.option("engine-1", "--http-bind-address")
    sidecar = stack.option("sidecar-1", "--health-address")
    return EnginePages("engine-1", f"http://{engine}/metrics", f"http://{sidecar}/metrics")


async def codes(stack: LocalStack, block_size: int = 16) -> list[str]:
    engines = await collect_named([pages(stack)])
    return [finding.code for finding in check_engines(engines, {"router": block_size})]


@pytest.mark.timeout(LIMIT_S)
async def test_an_engine_whose_events_arrive_is_healthy_until_routers_cut_blocks_otherwise(
    tmp_path: Path,
) -> None:
    async with LocalStack(tmp_path, "--engines=1") as stack:
        assert await codes(stack) == ["EN007"]
        await stack.complete("engine-1", list(range(1, 98)))
        await eventually(lambda: stack.is_hinted("router-1", list(range(1, 97)), "engine-1"), within_s=30)
        (facts,) = await collect_named([pages(stack)])
        assert isinstance(facts.page, EnginePage)
        assert (facts.page.block_size, facts.page.prefix_caching, facts.page.served > 0) == (16, True, True)
        assert isinstance(facts.sidecar, SidecarPage)
        assert (facts.sidecar.block_size, facts.sidecar.stored > 0) == (16, True)
        assert await codes(stack) == ["EN007"]
        assert await codes(stack, block_size=32) == ["EN001"]


@pytest.mark.timeout(LIMIT_S)
async def test_an_engine_that_serves_while_its_events_go_nowhere_is_found(tmp_path: Path) -> None:
    async with LocalStack(tmp_path, "--engines=1", "--break-events") as stack:
        assert await codes(stack) == ["EN007"]
        await stack.complete("engine-1", list(range(1, 98)))
        assert await codes(stack) == ["EN003"]


async def test_pages_that_cannot_be_read_are_said_to_be_so() -> None:
    (facts,) = await collect_named([EnginePages("e", "http://127.0.0.1:1/metrics")])
    assert isinstance(facts.page, Unreachable)
    assert facts.sidecar is None
    assert [each.code for each in check_engines([facts], {})] == ["EN008"]
