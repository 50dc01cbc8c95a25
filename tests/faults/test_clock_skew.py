"""A sidecar's, the owner's and a router's clock are an hour off, either way: order, ages and sweeps are as
ever. The server's clock is the fold's to bear (`tests/unit/index/test_clock.py`).
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from inferencecache.schemas.records import Tick
from tests.faults.conftest import Staged
from tests.oracle.model import NaiveFold
from tests.support.fleet.holds import folded_holds
from tests.support.fleet.injector import wrong_clock
from tests.support.fleet.processes import Fleet
from tests.support.fleet.requests import set_ttl
from tests.support.fleet.witness import PartitionCopy
from tests.support.waiting import eventually

TTL_S = 5
SLACK_S = 4
FLAGS = {"sidecar": ("--alive-interval=1s",), "indexer": ("--sweep-interval=1s",)}
SECOND_US = 1_000_000


@pytest.mark.faketime
@pytest.mark.parametrize("hours", [1, -1])
async def test_an_hour_changes_neither_order_nor_ages_nor_sweeps(staged: Staged, hours: int) -> None:
    wrong = wrong_clock(hours)
    skewed = {"indexer": wrong, "router-1": wrong, "sidecar-1": wrong, "sidecar-2": wrong}
    async with staged(flags=FLAGS, environment=skewed, loaded=False) as scene:
        fleet, witness = scene.fleet, scene.witness
        for name in ("indexer-1", "indexer-2", "router-1", "sidecar-1", "sidecar-2"):
            assert abs(clock_error(fleet, name) - timedelta(hours=hours)) < timedelta(minutes=5)
        assert abs(clock_error(fleet, "router-2")) < timedelta(minutes=5)
        copy = witness.partitions[scene.partition]
        async with scene.loaded():
            await set_ttl(witness, TTL_S)
        scene.asking.forget()
        killed_at = time.monotonic()
        await fleet.kill("sidecar-2")
        await eventually(lambda: "engine-2" not in folded_holds(witness.folds), within_s=60)
        assert TTL_S - SLACK_S < time.monotonic() - killed_at < TTL_S + SLACK_S
        assert_time_passes(copy)
        await fleet.start("sidecar-2")
        async with scene.loaded():
            await eventually(lambda: "engine-2" in folded_holds(witness.folds), within_s=60)

        owner = scene.owner(scene.partition)
        [standby] = set(fleet.running("indexer")) - {owner}
        fleet.environment.pop("indexer")
        await fleet.restart(standby)
        async with scene.loaded():
            await fleet.kill(owner)
            await eventually(lambda: scene.owner(scene.partition) == standby, within_s=30)
            await scene.under_load()
            await fleet.start(owner)
            await scene.settle()
        assert_time_passes(copy)
        assert not scene.asking.amiss()


def clock_error(fleet: Fleet, name: str) -> timedelta:
    """How far the clock was off by which a process wrote its last line."""
    lines = [line for line in fleet.said(name).splitlines() if line.startswith("{")]
    said = datetime.fromisoformat(json.loads(lines[-1])["time"])
    return said - datetime.now(UTC)


def assert_time_passes(copy: PartitionCopy) -> None:
    """Log time never goes back, stands still no longer than two ticks that come at once, and at most doubles
    while it catches up with a clock that was behind.
    """
    fold, times = NaiveFold(), list[int]()
    for message in copy.messages:
        fold.fold(message)
        if message.batch is not None and any(isinstance(each, Tick) for each in message.batch.batch.records):
            times.append(fold.time_us)
    assert len(times) > TTL_S
    assert all(0 <= after - before <= 2 * SECOND_US for before, after in pairwise(times))
    assert all(before < after for before, after in zip(times, times[3:], strict=False))
