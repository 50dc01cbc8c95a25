"""The sidecar fits its limit of 128 MiB with everything loaded and the default bound of blocks reached."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import random, resource, sys
import msgspec
import inferencecache.kvevent_subscriber.__main__
from inferencecache.kvevent_subscriber.diary import Diary
from inferencecache.kvevent_subscriber.event_path import EventPath, Tell
from inferencecache.kvevent_subscriber.mapping import MappingSettings
from inferencecache.kvevent_subscriber.records import records_of

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()

def peak_resident():  # of this program; getrusage would tell that of the process it was forked from too
    with open("/proc/self/status") as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith("VmHWM:"))

path = EventPath(MappingSettings(), Diary(), replays=False)
rng, before, number = random.Random(1), resident(), 0
for chain in range(3200):  # a quarter more blocks than fit
    parent = None
    for turn in range(5):
        hashes = [rng.randbytes(32) for _ in range(8)]
        event = ["BlockStored", hashes, parent, [rng.randrange(150000) for _ in range(128)], 16]
        payload = msgspec.msgpack.encode([1.0, [event]])
        path.message(0, [b"", number.to_bytes(8, "big"), payload], float(number))
        parent, number = hashes[-1], number + 1
blocks, grown = path.tracked_blocks, resident() - before
groups = [records_of(group.reports, "vllm") for group in path.full_state(float(number))]
print(blocks, grown, peak_resident(), *sorted({"numpy", "numba", "grpc"} & sys.modules.keys()))
"""


@pytest.mark.rule("SUB-091", "SUB-092")
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_process_and_100_000_blocks_stay_below_128_mib() -> None:
    output = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    ).stdout
    blocks, grown, peak, *heavy = output.split()
    assert int(blocks) == 100_000
    assert int(grown) / int(blocks) < 480
    assert int(peak) < 128 * 1024 * 1024
    assert heavy == []
