"""How overrides are merged: worked cases 41 to 49, and their limits."""

from __future__ import annotations

import pytest

from inferencecache.controller.injection.environment import literal
from inferencecache.controller.injection.overrides import merge_arguments, merge_environment
from tests.support.backends import change, hi_cache, node_local, pod_local
from tests.support.engine_pods import engine_of, engine_pod, pod_v
from tests.unit.controller.injection.asking import Document, stay, wire


@pytest.mark.rule(
    "ADM-W41", "ADM-W42", "ADM-W43", "ADM-W44", "ADM-W45", "ADM-W46", "ADM-W49", "ADM-207", "ADM-208",
    "ADM-209", "ADM-210", "ADM-211", "ADM-214",
)  # fmt: skip
@pytest.mark.parametrize(
    ("before", "after", "suppress", "add", "result"),
    [
        ("--m Q", "--m Q --k {}", "", "--max-model-len 8192", "--m Q --k {} --max-model-len 8192"),
        ("--eager", "--eager --k {}", "", "--eager=false", "--eager --k {}"),
        ("--eager", "--eager --k {}", "--eager", "", "--eager --k {}"),
        ("--model Q", "--model Q --t 1", "--t", "", "--model Q"),
        ("--model Q", "--model Q --t 1", "", "--t=9", "--model Q --t=9"),
        ("", "--t 1 --z", "--t", "--t 2", "--z --t 2"),
        ("--t 1", "--t 2", "", "--t 3", "--t 3"),
        ("--model Q", "--model Q --k {}", "", "--n -1", "--model Q --k {} --n -1"),
        # in place, and in the form of the override
        ("", "--t 1 --z", "", "--t=2", "--t=2 --z"),
        ("", "--t=1 --z", "", "--t 2", "--t 2 --z"),
        ("", "--t --z", "", "--t 2", "--t 2 --z"),
        # the last value of a repeated flag decides whose it is; all of them go
        ("--t 1 --t 2", "--t 1 --t 3", "--t", "", ""),
        ("--t 1 --t 2", "--t 9 --t 2", "--t", "", "--t 9 --t 2"),
        ("", "--t 1 --t 2", "", "--t 3", "--t 3 --t 2"),
        # a value is no flag, and a suppressed name must be the flag alone
        ("", "--t 1", "1", "", "--t 1"),
        ("", "--t=1", "--t=1", "", "--t=1"),
        # positional entries are nobody's
        ("word", "word --z", "word", "word", "word --z word"),
        # a user's flag with a value keeps it, and the override's value is gone with its flag
        ("--m 1", "--m 1 --z", "", "--m 2 --y", "--m 1 --z --y"),
        # every unknown flag is added
        ("", "--z", "", "--l a --l b", "--z --l a --l b"),
    ],
)  # fmt: skip
def test_arguments_of_the_adapter_give_way_and_those_of_the_user_do_not(
    before: str, after: str, suppress: str, add: str, result: str
) -> None:
    merged = merge_arguments(before.split(), after.split(), suppress=suppress.split(), add=add.split())
    assert merged == result.split()


def variables(text: str) -> list[Document]:
    return [literal(*entry.split("=")) for entry in text.split()]


@pytest.mark.rule("ADM-W47", "ADM-W48", "ADM-209", "ADM-212", "ADM-213")
@pytest.mark.parametrize(
    ("before", "after", "suppress", "add", "result"),
    [
        ("A=u", "A=u B=1", "", "A=x B=2 C=3", "A=u B=2 C=3"),
        ("", "B=1", "B", "B=2", "B=2"),
        ("A=u", "A=u B=1", "A B", "", "A=u"),
        ("A=u", "A=1 B=1", "", "A=2", "A=2 B=1"),
        ("", "B=1", "b", "b=2", "B=1 b=2"),
    ],
)
def test_variables_likewise_by_name(before: str, after: str, suppress: str, add: str, result: str) -> None:
    merged = merge_environment(
        variables(before), variables(after), suppress=suppress.split(), add=variables(add)
    )
    assert merged == variables(result)


@pytest.mark.rule("ADM-209")
def test_a_variable_with_another_source_is_another_one() -> None:
    sourced = {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    replaced = merge_environment([sourced], variables("A=1"), suppress=[], add=variables("A=2"))
    assert replaced == variables("A=2")


def with_overrides(backend: Document, **overrides: object) -> Document:
    return change(backend, "spec.integration.engineOverrides", overrides)


@pytest.mark.rule("ADM-215")
@pytest.mark.parametrize("backend", [pod_local(), node_local(), hi_cache()], ids=["pod", "node", "hicache"])
def test_empty_overrides_change_nothing(backend: Document) -> None:
    pod = engine_pod("--page-size", "64", name=backend["spec"]["runtime"].lower())
    assert wire(pod, with_overrides(backend)) == wire(pod, backend)


@pytest.mark.rule("ADM-215")
def test_overrides_reach_arguments_and_variables_of_the_engine_alone() -> None:
    plain = wire(pod_v(), pod_local())
    add = [{"name": "LATER", "value": "$(USER_FLAG)"}]
    changed = wire(pod_v(), with_overrides(pod_local(), args=["--more", "1"], env=add))
    engine = engine_of(plain)
    engine["args"] = [*engine["args"], "--more", "1"]
    engine["env"] = [*engine["env"], *add]
    assert changed == plain


@pytest.mark.rule("ADM-234", "ADM-235")
def test_the_publisher_of_events_is_configured_by_the_author_or_by_overrides_only() -> None:
    flag = "--kv-events-config"
    assert not [a for a in engine_of(wire(pod_v(), pod_local()))["args"] if a.startswith(flag)]
    backend = with_overrides(pod_local(), args=[f"{flag}=theirs"])
    assert f"{flag}=theirs" in engine_of(wire(pod_v(), backend))["args"]
    own = engine_of(wire(pod_v(flag, "mine"), backend))["args"]
    assert own[own.index(flag) + 1] == "mine"
    assert f"{flag}=theirs" not in own


@pytest.mark.rule("ADM-111")
def test_the_nodes_address_may_be_overridden() -> None:
    entry = {"name": "INFERENCECACHE_NODE_IP", "value": "192.0.2.1"}
    assert entry in engine_of(wire(pod_v(), with_overrides(node_local(), env=[entry])))["env"]


@pytest.mark.rule("ADM-216")
def test_overrides_of_what_the_host_cache_needs_leave_the_pod_alone() -> None:
    backend = with_overrides(hi_cache(), args=["--hicache-ratio=9"])
    assert "engineOverrides.args[0]" in stay(engine_pod(name="sglang"), backend)
