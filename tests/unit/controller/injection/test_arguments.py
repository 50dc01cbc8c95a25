"""Writing arguments and variables of an engine."""

from __future__ import annotations

import pytest

from inferencecache.controller.injection.arguments import set_flag, set_pair
from inferencecache.controller.injection.environment import from_field, literal, reset_variable, set_variable
from inferencecache.controller.injection.metrics_port import metrics_port

A = literal("A", "1")
B = literal("B", "2")


@pytest.mark.rule("ADM-150")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "--f v"),
        ("--x", "--x --f v"),
        ("--f old --x", "--f v --x"),
        ("--x --f", "--x --f v"),
        ("--f=old --x", "--f v --x"),
        ("--f= --x", "--f v --x"),
        ("--f=old --f other", "--f v --f other"),
        ("--f old --f=other", "--f v --f=other"),
        ("--fx old", "--fx old --f v"),
    ],
)
def test_a_pair_takes_the_place_of_the_first_of_its_flag(before: str, after: str) -> None:
    assert set_pair(before.split(), "--f", "v") == after.split()


@pytest.mark.rule("ADM-151")
@pytest.mark.parametrize(
    ("before", "after"), [("", "--f"), ("--x", "--x --f"), ("--f --x", "--f --x"), ("--f=1", "--f=1 --f")]
)
def test_a_flag_is_appended_unless_it_is_there_bare(before: str, after: str) -> None:
    assert set_flag(before.split(), "--f") == after.split()


@pytest.mark.rule("ADM-152")
def test_a_variable_that_is_set_takes_the_first_place_of_its_name_whole() -> None:
    assert set_variable([B], A) == [B, A]
    assert set_variable([literal("A", "x"), B, literal("A", "y")], A) == [A, B, literal("A", "y")]
    assert set_variable([from_field("A", "status.podIP"), B], A) == [A, B]


@pytest.mark.rule("ADM-153")
def test_a_variable_that_is_reset_comes_last_and_alone() -> None:
    assert reset_variable([], A) == [A]
    assert reset_variable([literal("A", "x"), B, literal("A", "y")], A) == [B, A]
    assert reset_variable([A, B, literal("A", "y")], A) == [B, A]
    assert reset_variable([A, A, B], A) == [B, A]


@pytest.mark.rule("ADM-240")
def test_a_variable_that_is_reset_already_stays_where_it_is() -> None:
    assert reset_variable([A, B], A) == [A, B]


@pytest.mark.rule("ADM-193")
def test_a_field_of_the_pod_is_the_same_with_the_version_that_the_server_adds() -> None:
    stored = from_field("A", "status.hostIP")
    stored["valueFrom"]["fieldRef"]["apiVersion"] = "v1"
    assert set_variable([stored], from_field("A", "status.hostIP")) == [stored]


@pytest.mark.rule("ADM-230", "ADM-W33", "ADM-149")
@pytest.mark.parametrize(
    ("command", "args", "port"),
    [
        ("", "", 8000),
        ("serve --port 1", "", 1),
        ("serve --port 1", "--port=2", 2),
        ("serve --port 1", "--port", 1),
        ("", "--port +31000", 31000),
        ("", "--port=033", 33),
        ("", "--port -1", 8000),
        ("", "--port=0", 8000),
        ("", "--port=65535 --port=65536", 65535),
        ("", "--port=1e3", 8000),
        ("", "--port=1_000", 8000),
        ("", "--port --port 9", 9),
        ("", "--port=", 8000),
        ("", "--port=$(LITERAL)", 42000),
        ("", "--port=9 --port=$(FIELD)", 9),
        ("", "--port=9 --port=$(MISSING)", 9),
        ("", "--port=9 --port=1$(LITERAL)", 9),
        ("", "--port=9 --port=$(TWICE)", 44000),
        ("", "--ports=7", 8000),
    ],
)
def test_the_metrics_are_where_the_last_legal_port_is(command: str, args: str, port: int) -> None:
    env = [literal("LITERAL", "42000"), from_field("FIELD", "metadata.name")]
    env += [literal("TWICE", "43000"), literal("TWICE", "44000")]
    engine = {"name": "vllm", "command": command.split(), "args": args.split(), "env": env}
    assert metrics_port(engine, "vllm") == port


@pytest.mark.rule("ADM-230")
def test_without_an_engine_to_look_at_the_metrics_are_on_the_engines_usual_port() -> None:
    assert (metrics_port(None, "vllm"), metrics_port(None, "sglang")) == (8000, 30000)
