"""docker-compose.yaml brought up: it answers, is confined, and what is killed or cut off comes back."""

from __future__ import annotations

import subprocess
from random import Random
from typing import Final

import grpc.aio
import pytest

from tests.compose.stack import INDEXERS, ROUTERS, ComposedStack
from tests.support.fleet.processes import BLOCK_SIZE
from tools.images import IMAGES, tag

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]
rule = pytest.mark.rule

OURS: Final = (*ROUTERS, *INDEXERS, "sidecar-1", "sidecar-2", "engine-1", "engine-2")


def prompt(seed: int) -> list[int]:
    """One that no other test uses."""
    return Random(seed).choices(range(1, 30_000), k=8 * BLOCK_SIZE)


async def test_a_prompt_is_hinted_to_the_engine_that_served_it(stack: ComposedStack) -> None:
    await stack.complete("engine-1", prompt(1))
    await stack.complete("engine-2", prompt(2))
    await stack.hinted(prompt(1), "engine-1")
    await stack.hinted(prompt(2), "engine-2")
    assert "engine-2" not in await stack.holders("router-1", prompt(1))


@rule("OPS-67")
def test_containers_have_no_rights_no_shell_and_nothing_to_write_to(stack: ComposedStack) -> None:
    for service in OURS:
        container = stack.inspect(service)
        assert container["Config"]["User"] == "65532:65532"
        assert container["HostConfig"]["ReadonlyRootfs"] is True
        assert container["HostConfig"]["CapDrop"] == ["ALL"]
        assert isinstance(container["Config"]["Entrypoint"], list)
    for name in IMAGES:
        for program in ("sh", "bash", "apt-get", "pip"):
            started = docker("run", "--rm", "--network=none", "--entrypoint", program, tag(name))
            assert started.returncode == 127, (name, program, started.stderr)


@pytest.mark.usefixtures("stack")
@pytest.mark.parametrize("name", ["server", "indexer", "cli"])
def test_kernels_are_read_from_the_image_and_not_compiled(name: str) -> None:
    ran = docker(
        *("run", "--rm", "--read-only", "--network=none", "--env=NUMBA_DEBUG_CACHE=1"),
        *("--entrypoint=python", tag(name), "-c", "import inferencecache.core.index.kernels"),
    )
    assert ran.returncode == 0, ran.stderr
    assert "[cache] data loaded from" in ran.stdout
    assert "[cache] data saved to" not in ran.stdout


@pytest.mark.usefixtures("stack")
@pytest.mark.parametrize("name", IMAGES)
def test_an_image_says_how_it_is_used(name: str) -> None:
    ran = docker("run", "--rm", "--read-only", "--network=none", tag(name), "--help")
    assert ran.returncode == 0, ran.stderr
    assert "usage" in ran.stdout.lower()


async def test_the_command_line_looks_at_the_stack_from_inside(stack: ComposedStack) -> None:
    shown = stack.run("run", "--rm", "cli", "layout", "show")
    assert shown.returncode == 0, shown.stderr
    assert "generation" in shown.stdout.lower()


@rule("OPS-111")
async def test_routers_answer_while_nats_is_killed_and_learn_more_once_it_is_back(
    stack: ComposedStack,
) -> None:
    await stack.complete("engine-1", prompt(3))
    await stack.hinted(prompt(3), "engine-1")
    stack.kill("nats")
    for router in ROUTERS:
        assert (await stack.holders(router, prompt(3))).get("engine-1") == len(prompt(3))
    await stack.complete("engine-2", prompt(4))
    stack.start("nats")
    await stack.hinted(prompt(4), "engine-2")
    await stack.hinted(prompt(3), "engine-1")


async def test_another_indexer_takes_over_from_one_that_is_killed(stack: ComposedStack) -> None:
    for number, indexer in enumerate(INDEXERS):
        stack.kill(indexer)
        await stack.complete("engine-1", prompt(10 + number))
        await stack.hinted(prompt(10 + number), "engine-1")
        stack.start(indexer)


@rule("OPS-110")
async def test_a_killed_router_comes_back_with_the_answers_of_its_peer(stack: ComposedStack) -> None:
    await stack.complete("engine-1", prompt(5))
    await stack.hinted(prompt(5), "engine-1")
    stack.kill("router-1")
    with pytest.raises(grpc.aio.AioRpcError):
        await stack.holders("router-1", prompt(5))
    assert (await stack.holders("router-2", prompt(5))).get("engine-1") == len(prompt(5))
    stack.start("router-1")
    await stack.hinted(prompt(5), "engine-1", ["router-1"])


async def test_a_sidecar_that_was_cut_off_tells_what_it_missed(stack: ComposedStack) -> None:
    stack.cut("sidecar-2", "bus")
    await stack.complete("engine-2", prompt(6))
    await stack.complete("engine-1", prompt(7))
    await stack.hinted(prompt(7), "engine-1")
    assert "engine-2" not in await stack.holders("router-1", prompt(6))
    stack.mend("sidecar-2", "bus")
    await stack.hinted(prompt(6), "engine-2", within_s=60)


async def test_a_router_that_was_cut_off_answers_from_what_it_knew_and_catches_up(
    stack: ComposedStack,
) -> None:
    await stack.complete("engine-1", prompt(8))
    await stack.hinted(prompt(8), "engine-1")
    stack.cut("router-2", "bus")
    await stack.complete("engine-1", prompt(9))
    await stack.hinted(prompt(9), "engine-1", ["router-1"])
    await stack.hinted(prompt(8), "engine-1", ["router-2"])
    assert await stack.holders("router-2", prompt(9)) == {}
    stack.mend("router-2", "bus")
    await stack.hinted(prompt(9), "engine-1", ["router-2"], within_s=60)


@rule("OPS-15")
def test_everything_of_ours_ends_in_order_when_it_is_told_to(stack: ComposedStack) -> None:
    """Within the time that a slow machine may take; killed, they would end with another code."""
    assert stack.run("stop", "--timeout=60").returncode == 0
    assert {service: stack.inspect(service)["State"]["ExitCode"] for service in OURS} == dict.fromkeys(
        OURS, 0
    )
    said = stack.logs(*ROUTERS, *INDEXERS)
    assert said.count('"msg": "graceful_shutdown_done"') >= len(ROUTERS + INDEXERS)


def docker(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=120, check=False)
