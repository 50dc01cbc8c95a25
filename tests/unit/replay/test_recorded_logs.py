"""Recorded logs lead to the states that they led to when they were recorded.

`tests/data/replay` has slices and, in `expected.json`, where each of their partitions ends. What is there
never changes: a log that folds otherwise is one that an upgraded indexer reads otherwise than its
predecessor wrote it. Run `python -m tests.unit.replay.test_recorded_logs` to write what is missing.
`live.slice` is what `inferencecache replay --export` wrote of an `inferencecache up` whose engines had been
asked and one of whose sidecars had been killed.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from inferencecache.core.index.snapshot import encode_snapshot
from inferencecache.core.log.subjects import partition_key
from inferencecache.core.partitions.messages import log_message
from inferencecache.core.replay import Slice, read_slice, state_of
from inferencecache.schemas.digests import digest_text
from inferencecache.schemas.positions import Position
from tests.oracle.digest import access_digest, digest
from tests.oracle.model import NaiveFold
from tests.oracle.random_log import Mix, RandomLog
from tests.support.slices import KEY, raw, replayed, slice_of

FOLDER = Path(__file__).parents[2] / "data" / "replay"
EXPECTED = FOLDER / "expected.json"
RANDOM = {
    "everything.slice": Mix(),
    "sidecars.slice": Mix(grpc=False, evictions=False, departures=False),
    "evictions.slice": Mix(epochs=False, wild_clocks=False),
}
MESSAGES = 400


def recorded() -> dict[str, dict[str, Any]]:
    expected: dict[str, dict[str, Any]] = json.loads(EXPECTED.read_text())
    return expected


def read(name: str) -> Slice:
    return read_slice([(FOLDER / name).read_bytes()])


def ends(slice_: Slice) -> dict[str, Any]:
    """Where each partition of a slice ends."""
    return {str(partition): _end(slice_, partition) for partition in slice_.partitions}


def _end(slice_: Slice, partition: int) -> dict[str, Any]:
    key = partition_key(slice_.layout.generation, partition)
    rebuild = replayed(slice_.partitions[partition], key)
    state = msgspec.to_builtins(state_of(partition, rebuild.fold))
    return {**state, "replicas": len(state["replicas"]), "dropped": rebuild.dropped}


@pytest.mark.parametrize("name", sorted(recorded()))
def test_a_recorded_log_folds_as_it_did(name: str) -> None:
    assert ends(read(name)) == recorded()[name]


@pytest.mark.parametrize("name", sorted(recorded()))
def test_a_recorded_log_folds_as_the_model_folds_it(name: str) -> None:
    for partition, part in read(name).partitions.items():
        if part.base:
            continue
        naive = NaiveFold()
        for message in part.messages():
            naive.fold(log_message(message.subject, message.payload, message.position))
        end = recorded()[name][str(partition)]
        assert (digest_text(digest(naive)), digest_text(access_digest(naive))) == (
            end["digest"],
            end["accessDigest"],
        )


def test_every_recorded_log_has_an_expected_end() -> None:
    assert {path.name for path in FOLDER.glob("*.slice")} == recorded().keys()


def _written(name: str) -> bytes:
    """A random log; the second half of one behind a snapshot, where its name says so."""
    log = RandomLog(Random(name), RANDOM[name])
    messages = [raw(log.message()) for _ in range(MESSAGES)]
    if name != "evictions.slice":
        return slice_of(messages)
    half = MESSAGES // 2
    rebuild = replayed(read_slice([slice_of(messages[:half])]).partitions[0])
    return slice_of(
        messages[half:], at=rebuild.position, base=list(encode_snapshot(rebuild.fold, Position(), KEY))
    )


def _write_missing() -> None:
    for name in RANDOM:
        if not (FOLDER / name).exists():
            (FOLDER / name).write_bytes(_written(name))
    expected = recorded() if EXPECTED.exists() else {}
    for path in sorted(FOLDER.glob("*.slice")):
        if path.name not in expected:
            expected[path.name] = ends(read(path.name))
    EXPECTED.write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    _write_missing()
