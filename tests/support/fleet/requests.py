"""What operators and readers ask of a fleet: a policy, another layout, a fresh snapshot."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from typing import Final

from inferencecache.cli.stack.plan import TENANT
from inferencecache.core.log import Bucket
from inferencecache.core.log.subjects import POLICY, POLICY_KEY, snapshot_request_subject
from inferencecache.core.partitions import References
from inferencecache.core.policy import encode_policy_set
from inferencecache.schemas.ids import TenantId
from inferencecache.schemas.policy import PolicySet, ResolvedPolicy
from inferencecache.schemas.positions import Refs
from tests.support.fleet.processes import Fleet
from tests.support.fleet.witness import PartitionCopy, Witness
from tests.support.waiting import eventually

ASK_AGAIN_S: Final = 5.0
"""A snapshot whose turn has passed is dropped, and not tried again by itself."""


async def put_ttl(witness: Witness, seconds: int) -> int:
    """Give the tenant a time to live; the policy's revision."""
    policy = ResolvedPolicy(
        TenantId(TENANT), eviction_ttl_ms=seconds * 1000, routing_floor_score=0.0, affinity_routing=False
    )
    policies = encode_policy_set(PolicySet(policies=(policy,)))
    return await Bucket(witness.log, POLICY).put(POLICY_KEY, policies)


async def set_ttl(witness: Witness, seconds: int) -> int:
    """`put_ttl`, and wait until every partition has applied it."""
    revision = await put_ttl(witness, seconds)
    await eventually(
        lambda: all(fold.policy_revision == revision for fold in witness.folds),
        within_s=30,
        what="the policy",
    )
    return revision


async def fresh_snapshot(witness: Witness, copy: PartitionCopy) -> Refs:
    """Ask a partition's owner for a snapshot; the references once there is one of the log as it is now."""
    end = copy.messages[-1].position.sequence
    references = References(witness.log, copy.key)

    asked_at = -ASK_AGAIN_S

    async def is_there() -> bool:
        nonlocal asked_at
        if time.monotonic() - asked_at >= ASK_AGAIN_S:
            asked_at = time.monotonic()
            await witness.log.send(snapshot_request_subject(copy.generation, copy.number), b"")
        refs, _ = await references.read()
        return refs is not None and refs.current is not None and refs.current.log.sequence >= end

    await eventually(is_there, within_s=60, what="a fresh snapshot")
    refs, _ = await references.read()
    assert refs is not None
    return refs


async def set_partitions(fleet: Fleet, partitions: int) -> None:
    """Cut the log into so many partitions from now on, as an operator does."""
    await _layout(fleet, "set", "--partitions", str(partitions))


async def prune_layouts(fleet: Fleet) -> bool:
    """Remove earlier generations; false when that was refused because a router needs them."""
    return await _layout(fleet, "prune") == 0


async def _layout(fleet: Fleet, *arguments: str) -> int:
    command = (sys.executable, "-m", "inferencecache.cli", "layout", *arguments)
    nats = ("--nats-url", fleet.nats.url, "--insecure-nats")
    process = await asyncio.create_subprocess_exec(
        *command, *nats, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return await process.wait()
