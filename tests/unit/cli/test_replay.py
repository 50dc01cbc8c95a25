"""`inferencecache replay` says what is wrong with what it was given, and answers from a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from inferencecache.cli.app import app
from inferencecache.cli.replaying.points import point
from inferencecache.core.replay import AtSequence, AtTime
from inferencecache.schemas.ids import ModelId, ReplicaId, TenantId
from inferencecache.schemas.records import Begin, Gap, Gone, Stats, TenantPolicy
from tests.oracle.logs import LogWriter, evicted, stored
from tests.support.slices import raw, slice_of

NOW_NS = 1_800_000_000_000_000_000
RECORDED = Path(__file__).parents[2] / "data" / "replay"
HASH = b"block-01"
OTHER = b"block-02"
OF_T = ("--tenant", "t", "--model", "m")


@pytest.fixture(autouse=True)
def _keep_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inferencecache.cli.commands.replay.configure_logging", lambda *_: None)


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["replay", *arguments], env={"COLUMNS": "160"})


def answer(*arguments: str) -> Any:
    ran = run(*arguments, "--json")
    assert ran.exit_code == 0, ran.output
    return json.loads(ran.stdout)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--events", "--explain", "--tokens", "1..80"], "--events and --explain are different questions"),
        (["--since", "5m"], "--since goes with"),
        (["--diff", "1", "2", "--until", "3"], "names both points"),
        (["--export", "x.slice", "--tenant", "t"], "whole partitions"),
        (["--explain"], "exactly one form"),
        (["--explain", "--tokens", "1", "--hashes", "aa"], "exactly one form"),
        (["--tokens", "1..80"], "exactly one form"),
        (["--why", "1..80"], "name it with --replica"),
        (["--why", "1..3", "--replica", "r"], "no whole block of 16"),
        (["--why", "abc", "--replica", "r"], "whole numbers"),
        (["--explain", "--tokens", "1", "--replica", "r"], "leave --replica out"),
        (["--diff", "9", "2", "--from", str(RECORDED / "live.slice")], "the earlier point first"),
        (
            ["--events", "--since", "1s", "--until", "5s", "--from", str(RECORDED / "live.slice")],
            "--since: 1s is",
        ),
        (["--until", "soon", "--from", str(RECORDED / "live.slice")], "no point of the log"),
        (["--until", "3", "--from", str(RECORDED / "live.slice")], "name it with --partition"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_the_setting(arguments: list[str], said: str) -> None:
    ran = run(*arguments)
    assert ran.exit_code == 2
    assert said in ran.stderr


def test_a_file_that_is_no_slice_or_not_there_is_named(tmp_path: Path) -> None:
    ran = run("--from", str(tmp_path / "missing.slice"))
    assert (ran.exit_code, "cannot read" in ran.stderr) == (1, True)
    (tmp_path / "bad.slice").write_bytes((RECORDED / "live.slice").read_bytes()[:-1])
    ran = run("--from", str(tmp_path / "bad.slice"))
    assert (ran.exit_code, "incomplete" in ran.stderr) == (1, True)
    assert "Traceback" not in ran.output


def test_points_are_sequences_times_and_ages() -> None:
    assert point("17", "--until", NOW_NS) == AtSequence(17)
    assert point("5m", "--until", NOW_NS) == AtTime(NOW_NS - 300_000_000_000)
    assert point("2026-05-04T10:00:00Z", "--until", 0) == AtTime(1_777_888_800_000_000_000)
    assert point("2026-05-04T10:00:00", "--until", 0) == AtTime(1_777_888_800_000_000_000)
    assert point("2026-05-04T12:00:00.000250+02:00", "--until", 0) == AtTime(1_777_888_800_000_250_000)
    with pytest.raises(typer.BadParameter, match="--since: 'x' is no point"):
        point("x", "--since", 0)


def test_before_its_base_a_slice_has_nothing() -> None:
    ran = run("--from", str(RECORDED / "evictions.slice"), "--until", "17")
    assert ran.exit_code == 1
    assert "at message 200" in ran.stderr


def test_a_base_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    log = LogWriter()
    log.claim()
    path = tmp_path / "bad.slice"
    path.write_bytes(slice_of([], at=log.messages[0].position, base=[b"no snapshot"]))
    ran = run("--from", str(path))
    assert ran.exit_code == 1
    assert "the slice's base is passed over" in ran.stderr
    assert "no base could be read" in ran.stderr


def test_the_history_of_a_prefix_needs_no_partition(told: str) -> None:
    question = ("--from", told, "--why", HASH.hex(), "--replica", "r1", *OF_T)
    assert answer(*question, "--until", "6") == answer(*question, "--until", "6", "--partition", "0")
    assert "r1 reports is in partition 0" in run(*question, "--partition", "7").stderr


def test_figures_that_json_does_not_know_are_words(tmp_path: Path) -> None:
    log = LogWriter()
    log.report("r1", Stats(hit_rate=float("nan"), pressure=float("-inf")))
    path = tmp_path / "odd.slice"
    path.write_bytes(slice_of([raw(message) for message in log.messages]))
    (line,) = run("--from", str(path), "--events", "--json").stdout.splitlines()
    assert json.loads(line, parse_constant=pytest.fail)["fields"]["hit_rate"] == "nan"


def test_beyond_the_end_the_end_is_told() -> None:
    ran = run("--from", str(RECORDED / "evictions.slice"), "--until", "9999", "--json")
    assert json.loads(ran.stdout)["partitions"][0]["sequence"] == 400
    assert "ends at message 400" in ran.stderr


def test_the_table_of_a_recorded_log_names_its_replicas() -> None:
    shown = run("--from", str(RECORDED / "live.slice")).stdout
    assert "partition 0 behind message 935 of 2026-11-30T21:13:23.125Z" in shown
    assert all(f"engine-{number}" in shown for number in (1, 2, 3, 4))


@pytest.fixture
def told(tmp_path: Path) -> str:
    """A slice in which everything happens to one hash of replica r1."""
    log = LogWriter()
    log.sweep_interval_s = 1
    log.claim()
    log.tick()
    log.sidecar("r1", "one", 1, Begin("uid-1"), stored([HASH], [16]))
    log.sidecar("r1", "one", 2, stored([HASH], [16]))
    log.sidecar("r1", "one", 3, stored([HASH], [16]))
    log.sidecar("r1", "one", 4, stored([HASH], [16], tier=2))
    log.sidecar("r1", "one", 5, Gap(1))
    log.sidecar("r1", "late", 7, stored([HASH], [16]))
    log.sidecar("r1", "one", 6, evicted(HASH), stored([HASH], [16]))
    log.sidecar("r1", "two", 1, Begin("uid-2"), stored([HASH], [16]), Stats())
    log.report("r2", stored([HASH], [16], adapter="a"))
    log.apply_policy([TenantPolicy(TenantId("t"), 3_000_000)], revision=9)
    log.tick(2)
    log.sidecar("r1", "two", 2, Stats())
    log.tick(2)
    log.sidecar("r1", "two", 3, stored([HASH], [16]))
    log.control("c", Gone(TenantId("t"), ReplicaId("r1"), "uid-2"))
    path = tmp_path / "told.slice"
    path.write_bytes(slice_of([raw(message) for message in log.messages]))
    return str(path)


def test_a_history_is_told_with_every_cause(told: str) -> None:
    ran = run("--from", told, "--why", HASH.hex(), "--replica", "r1", *OF_T)
    assert ran.exit_code == 0
    lines = [line.strip() for line in ran.stdout.splitlines()]
    told_lines = [line.split("Z", 1)[1].strip() for line in lines if "Z  " in line]
    assert told_lines == [
        "stored in tier 1",
        "stored again in tier 1, 2 times in a row",
        "stored again, moved to tier 2",
        "became uncertain: the engine's own sequence has a hole",
        "not counted: a store: fenced",
        "evicted by the engine",
        "stored in tier 1",
        "gone: another incarnation of the replica began",
        "stored in tier 1",
        "swept: older than the time to live",
        "stored in tier 1",
        "gone: the replica's pod was deleted",
    ]
    assert "elsewhere: r2 (vllm/a)" in ran.stdout
    assert "policy set 9 is not kept any more" in ran.stderr


def test_a_history_for_programs_has_the_same_moments(told: str) -> None:
    document = answer("--from", told, "--why", HASH.hex(), "--replica", "r1", *OF_T)
    (block,) = document["blocks"]
    assert [moment["what"] for moment in block["moments"]][-3:] == ["ttl", "stored", "gone"]
    assert (block["standing"]["held"], document["ttlUs"]) == (False, 3_000_000)
    assert document["replica"] is None


def test_a_lookup_is_explained_where_it_is_asked(told: str) -> None:
    question = ("--from", told, "--explain", "--hashes", HASH.hex(), *OF_T, "--block-size", "64")
    early, late = answer(*question, "--until", "6"), answer(*question)
    assert [each["replica"] for each in early["replicas"] if each["rank"]] == ["r1"]
    assert not [each for each in late["replicas"] if each["value"]]
    shown = run(*question, "--until", "6").stdout
    assert "partition 0 behind message 6" in shown


def test_events_are_told_in_short_with_what_did_not_count(told: str) -> None:
    shown = run("--from", told, "--events", *OF_T, "--replica", "r1").stdout
    assert "Stored blocks=1" in shown
    assert "not counted: fenced" in shown
    assert "Tick" not in shown


def test_a_difference_is_counted_by_replica_and_kind(told: str) -> None:
    shown = run("--from", told, "--diff", "2", "6").stdout
    assert "keys: 0 -> 1" in shown
    assert HASH.hex() in shown
    nothing = run("--from", told, "--diff", "3", "3").stdout
    assert "every replica holds the same" in nothing


@pytest.mark.parametrize(
    ("first", "second"),
    [("14", "4s"), ("99", "4s"), ("2s", "6"), ("2s", "0")],
)
def test_a_sequence_and_a_time_that_are_reversed_are_refused(told: str, first: str, second: str) -> None:
    said = f": {first} is behind {second}; write the earlier point first"
    for question in (("--diff", first, second), ("--since", first, "--until", second, "--events")):
        ran = run("--from", told, *question)
        assert ran.exit_code == 2, ran.output
        assert question[0] + said in " ".join(ran.stderr.split())


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [("2", "4s", False), ("12", "4s", True), ("4s", "14", False), ("4s", "12", True), ("99", "0s", True)],
)
def test_a_sequence_and_a_time_in_order_are_compared(
    told: str, first: str, second: str, is_same: bool
) -> None:
    (found,) = answer("--from", told, "--diff", first, second)["partitions"]
    assert (found["before"]["sequence"] == found["after"]["sequence"]) is is_same


def test_a_slice_is_of_the_generation_that_is_asked_for(told: str) -> None:
    assert answer("--from", told, "--generation", "1") == answer("--from", told)
    ran = run("--from", told, "--generation", "2")
    assert ran.exit_code == 1
    assert "is of generation 1, not 2; leave --generation out" in ran.stderr


def test_a_slice_of_a_slice_is_the_same_log(told: str, tmp_path: Path) -> None:
    part = tmp_path / "part.slice"
    assert run("--from", told, "--export", str(part), "--until", "6").exit_code == 0
    assert answer("--from", str(part)) == answer("--from", told, "--until", "6")
    assert not (tmp_path / "part.slice.part").exists()
    assert OTHER not in part.read_bytes()
    assert ModelId("m").encode() in part.read_bytes()
