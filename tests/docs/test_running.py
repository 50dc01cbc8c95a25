"""What guides show can be done: their commands run on a live system and say what the guides say."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from inferencecache.cli.local import TRY_PROMPT
from tests.docs.reading import ROOT, commands
from tests.support.local_stack import LocalStack
from tests.support.ports import free_ports
from tests.support.waiting import eventually

LIMIT_S = 120
ENVOY = "http://127.0.0.1:8088"
ASKING_ENVOY = ("README.md", "docs/start/envoy.md", "docs/gateways.md")
PROMPT = list(range(1, 82))
ELSEWHERE = (
    *(
        "inferencecache up",
        "--router-tls",
        "tls://",
        "acme/",
        "policy.yaml",
        "all.yaml",
        "team-a/",
        "127.0.0.1:8001",
    ),
    "inferencecache tail --tenant serving --kind stored",
)
"""The whole system, TLS, models and files that only a reader has, and what goes on until it is ended."""
ORDER = (
    *("start", "concepts", "tasks/tenants", "tasks/tune", "tasks/troubleshoot", "replay"),
    *("tasks/scale-out", "layout"),
)
EXPECTED = {
    "inferencecache lookup --tokens 1..80": "PREFIX_MATCH",
    "inferencecache lookup --tokens 1..80 --explain": "without load - 0.5 x (W - least W of all)",
    "inferencecache lookup --tokens 1..80 --tenant nobody": "UNKNOWN_TENANT",
    "inferencecache policy apply -f deploy/samples/cachetenant.yaml": "at most 250000 distinct keys",
    "inferencecache policy apply -f deploy/samples/cachepolicy.yaml": "in force for tenant serving",
    "inferencecache policy delete": "deleted",
    "inferencecache layout set --partitions 4": "set: generation 2, 4 partitions, one lane each; older: 1",
    "inferencecache layout prune": "removed generation",
    "inferencecache doctor": "(exit 0)",
}


def shown() -> list[tuple[str, str]]:
    """Commands with their pages, in an order in which a reader may come along."""

    def place(page: str) -> int:
        return next(number for number, part in enumerate(ORDER) if page.startswith(f"docs/{part}"))

    found = [
        (page, line)
        for page, line in commands()
        if any(page.startswith(f"docs/{part}") for part in ORDER)
        and line.startswith("inferencecache ")
        and not any(part in line for part in ELSEWHERE)
    ]
    return sorted(found, key=lambda one: place(one[0]))


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_what_guides_show_happens_on_a_live_system(tmp_path: Path) -> None:
    folder = tmp_path / "reader"
    folder.mkdir()
    (folder / "deploy").symlink_to(ROOT / "deploy")
    async with LocalStack(tmp_path, "--engines=2") as stack:
        await stack.complete("engine-1", PROMPT)
        await eventually(lambda: stack.is_hinted("router-1", PROMPT[:80], "engine-1"), within_s=30)
        router = stack.option("router-1", "--grpc-bind-address")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("KUBE")} | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": "/nonexistent",
            "INFERENCECACHE_NATS_URL": stack.option("router-1", "--nats-url"),
            "INFERENCECACHE_ROUTER": router,
        }
        ran = shown()
        assert {page for page, _ in ran} >= {
            "docs/start/demo.md",
            "docs/tasks/tune.md",
            "docs/tasks/scale-out.md",
            "docs/replay.md",
            "docs/layout.md",
        }
        for page, line in ran:
            line_here = line + (f" --server-endpoint {router}" if line == "inferencecache doctor" else "")
            process = await asyncio.create_subprocess_exec(
                *("bash", "-c", line_here),
                cwd=folder,
                env=environment,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            said = (await asyncio.wait_for(process.communicate(), LIMIT_S))[0].decode()
            assert process.returncode == 0, f"{page}: {line}\n{said}"
            expected = max((begin for begin in EXPECTED if line.startswith(begin)), key=len, default="")
            assert EXPECTED.get(expected, "") in " ".join(said.split()), f"{page}: {line}\n{said}"


def test_pages_ask_envoy_what_the_demo_says_to_ask() -> None:
    assert {page for page, line in commands() if ENVOY in line and TRY_PROMPT in line} == set(ASKING_ENVOY)


@pytest.mark.envoy
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", ASKING_ENVOY)
async def test_a_prompt_that_is_asked_twice_through_envoy_is_led_to_its_prefix(
    page: str, tmp_path: Path
) -> None:
    (line,) = {line for where, line in commands() if where == page and ENVOY in line}
    async with LocalStack(tmp_path, "--engines=2") as stack:
        reasons: list[str] = []

        async def is_matched() -> bool:
            process = await asyncio.create_subprocess_exec(
                *("bash", "-c", line.replace(ENVOY, stack.gateway)), stdout=asyncio.subprocess.PIPE
            )
            said = (await asyncio.wait_for(process.communicate(), LIMIT_S))[0].decode()
            reasons.extend(re.findall(r"x-inferencecache-reason: (\w+)", said))
            return "PREFIX_MATCH" in reasons

        await eventually(is_matched, within_s=LIMIT_S)
        assert reasons[0] in ("AFFINITY_HINT", "NO_HINT")


@pytest.mark.timeout(240)
async def test_a_certificate_of_ones_own_serves_both_kinds_of_tls_as_shown(tmp_path: Path) -> None:
    lines = [line for page, line in commands() if page == "docs/tasks/tls.md"]
    *steps, table, answer = lines[next(at for at, line in enumerate(lines) if line.startswith("openssl")) :]
    nats, grpc, http, gateway, indexer = map(str, free_ports(5))
    environment = dict(os.environ) | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "INFERENCECACHE_ROUTER": f"127.0.0.1:{grpc}",
        "INFERENCECACHE_GRPC_BIND_ADDRESS": f"127.0.0.1:{grpc}",
        "INFERENCECACHE_HTTP_BIND_ADDRESS": f"127.0.0.1:{http}",
        "INFERENCECACHE_GATEWAY_BIND_ADDRESS": f"127.0.0.1:{gateway}",
    }
    said = ""

    async def says(*expected: str) -> bool:
        nonlocal said
        said += (await process.stdout.readline()).decode() if process.stdout else ""
        return all(part in said for part in expected)

    asked = (
        f"until {table} | grep '^1  .*1 of 1'; do sleep 1; done",
        f"until {answer} | grep NO_HINT; do sleep 1; done",
    )
    shell = "\n".join((*steps, *asked, "wait")).replace("--addr", f"--port {nats} --addr")
    shell = shell.replace(":4222", f":{nats}").replace(":8090", f":{indexer}")
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", shell),
        cwd=tmp_path,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        outcome = ("TLS required for client", "partition_owned", '"grpc_tls": true', "1 of 1", "NO_HINT")
        await eventually(lambda: says(*outcome), within_s=LIMIT_S)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
