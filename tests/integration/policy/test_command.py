"""`inferencecache policy` as a person or a script runs it."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
import yaml

from inferencecache.core.log import Log
from inferencecache.core.log.buckets import Bucket
from inferencecache.schemas.members import RouterMember
from tests.support.nats import NatsServer

FILE = """
apiVersion: inferencecache.io/v1alpha1
kind: CachePolicy
metadata: {namespace: team-a, name: lookup}
spec: {evictionTTL: 30s, minimumPrefixTokens: 200}
---
apiVersion: inferencecache.io/v1alpha1
kind: CacheTenant
metadata: {namespace: team-a, name: x}
spec: {tenantID: team-a, quota: {maxIndexEntries: 5}}
---
apiVersion: inferencecache.io/v1alpha1
kind: PDTopology
metadata: {namespace: team-a, name: pd}
spec:
  prefillPools: [{name: p, replicaIDs: [r1, r2]}]
  decodePools: [{name: d, matchLabels: {phase: decode}}]
"""


class Ran(NamedTuple):
    code: int
    out: str
    err: str


class Command:
    """Runs `inferencecache policy …` against the test's server."""

    def __init__(self, url: str, file: Path) -> None:
        self._url = url
        self.file = file

    async def __call__(self, *arguments: str, stdin: str = "") -> Ran:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "inferencecache.cli", "policy", *arguments, "--nats-url", self._url),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate(stdin.encode())
        assert process.returncode is not None
        return Ran(process.returncode, out.decode(), err.decode())


@pytest.fixture
def command(log: Log, nats_server: NatsServer, tmp_path: Path) -> Command:
    file = tmp_path / "policy.yaml"
    file.write_text(FILE)
    return Command(nats_server.url, file)


async def test_objects_are_applied_shown_and_deleted(command: Command) -> None:
    ran = await command("apply", "-f", str(command.file))
    assert ran.code == 0, ran.err
    assert "CachePolicy team-a/lookup: created (in force for tenant team-a)" in ran.out
    assert "CacheTenant team-a/x: created (tenant team-a: at most 5 distinct keys)" in ran.out
    assert "warning: CachePolicy team-a/lookup: evictionTTL 30s is less than" in ran.out
    assert "warning: PDTopology team-a/pd: a phase without replicas" in ran.out
    assert "policy set: revision" in ran.out

    ran = await command("get")
    assert "version 8, 1 policies, 1 quotas; run by 0 of 0 routers" in ran.out
    assert "2 prefill and 0 decode replicas, Direct" in ran.out

    ran = await command("delete", "cpol", "team-a/lookup")
    assert (ran.code, ran.err) == (0, "")
    assert "CachePolicy team-a/lookup: deleted" in ran.out
    ran = await command("delete", "cpol", "team-a/lookup")
    assert ran.code == 1
    assert "no CachePolicy team-a/lookup; kept here: CacheTenant team-a/x, PDTopology team-a/pd" in ran.err
    ran = await command("delete", "-f", str(command.file))
    assert (ran.code, ran.err) == (0, "")
    assert "CachePolicy team-a/lookup: absent\nCacheTenant team-a/x: deleted\n" in ran.out


async def test_programs_read_json(command: Command) -> None:
    applied = json.loads((await command("apply", "-f", str(command.file), "-o", "json")).out)
    assert applied["revision"] > 0
    assert [(r["kind"], r["name"], r["change"]) for r in applied["resources"]] == [
        ("CachePolicy", "lookup", "created"),
        ("CacheTenant", "x", "created"),
        ("PDTopology", "pd", "created"),
    ]
    shown = json.loads((await command("get", "-o", "json")).out)
    assert shown["revision"] == applied["revision"]
    assert shown["set"]["policies"][0]["minimumPrefixTokens"] == 200
    assert shown["set"]["tenants"] == [
        {"tenantID": "team-a", "maxIndexEntries": 5, "isolationMode": "Fairness"}
    ]
    assert [effect["inForce"] for effect in shown["effects"]] == [True] * 3
    assert shown["resources"][0]["spec"]["minimumMatchedTokens"] == 64
    assert shown["unreadable"] == []


async def test_what_is_shown_as_yaml_can_be_applied_again(command: Command) -> None:
    await command("apply", "-f", str(command.file))
    shown = (await command("get", "-o", "yaml")).out
    assert len(list(yaml.safe_load_all(shown))) == 3
    again = await command("apply", "-f", "-", stdin=shown)
    assert again.out.count(": unchanged") == 3
    one = (await command("get", "cachetenant", "team-a/x", "-o", "yaml")).out
    assert yaml.safe_load(one)["spec"]["tenantID"] == "team-a"


async def test_wrong_files_change_nothing_and_every_problem_is_named(command: Command) -> None:
    command.file.write_text(FILE.replace("30s", "0s").replace("maxIndexEntries: 5", "maxIndexEntries: -1"))
    ran = await command("apply", "-f", str(command.file))
    assert ran.code == 1
    first, second = ran.err.splitlines()
    assert "document 1: CachePolicy team-a/lookup: spec.evictionTTL: 0s is not more than 0" in first
    assert "document 2: CacheTenant team-a/x: spec.quota.maxIndexEntries: expected int >= 0" in second
    assert "policy set: none yet" in (await command("get")).out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("apply",), "give at least one -f FILE"),
        (("delete", "cachepolicy"), "give either KIND NAMESPACE/NAME or -f FILE"),
        (("delete", "cachepolicy", "lookup"), "write NAMESPACE/NAME"),
        (("get", "pods"), "is no kind; write CachePolicy, CacheTenant"),
        (("apply", "-f", "x", "--wait", "soon"), "--wait: 'soon' is not a duration"),
    ],
)
async def test_a_wrong_command_line_says_what_to_write(
    command: Command, arguments: tuple[str, ...], text: str
) -> None:
    ran = await command(*arguments)
    assert ran.code == 2
    assert text in ran.err


async def test_a_command_can_wait_until_routers_run_the_set(command: Command, log: Log) -> None:
    members = Bucket(log, "IC_MEMBERS")
    await members.put("router.r1", msgspec.json.encode(RouterMember("r1", policy_revision=0)))
    ran = await command("apply", "-f", str(command.file), "--wait", "50ms")
    assert ran.code == 1
    assert "router r1 runs revision 0, not yet" in ran.err
    await members.put("router.r1", msgspec.json.encode(RouterMember("r1", policy_revision=10**6)))
    ran = await command("apply", "-f", str(command.file), "--wait", "10s")
    assert ran.code == 0


async def test_without_a_server_it_is_said_where_it_was_looked_for(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    url = nats_server.url
    nats_server.stop()
    ran = await Command(url, tmp_path)("get")
    assert ran.code == 1
    assert f"no connection to NATS at {url}" in ran.err
