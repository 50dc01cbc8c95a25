"""Events on a backend: each transition is told once, and nothing else is."""

from __future__ import annotations

from typing import Any

import pytest

from inferencecache.controller.backend.events import transitions
from inferencecache.core.kube.kinds import CACHE_BACKENDS, Document
from tests.support.backend_passes import Passes, at, engine, managed, of_case, stamps
from tests.support.backends import pod_local

rule = pytest.mark.rule


def status(**conditions: Any) -> Document:
    """A status by its conditions, `Ready="True/BackendReady"`; other names are fields."""
    made: list[Document] = []
    fields: Document = {}
    for name, value in conditions.items():
        if not name[0].isupper():
            fields[name] = value
            continue
        held, reason = value.split("/")
        made.append({"type": name, "status": held, "reason": reason, "message": f"why {reason}"})
    return fields | {"conditions": made}


@rule("CTL-211", "CTL-212")
@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        pytest.param(
            status(),
            status(ConnectorReady="False/NoEnginePods"),
            [("Warning", "NoEnginePods")],
            id="connector came",
        ),
        pytest.param(
            status(ConnectorReady="False/NoEnginePods"),
            status(ConnectorReady="True/ConnectorReady"),
            [("Normal", "ConnectorReady")],
            id="connector became ready",
        ),
        pytest.param(
            status(ConnectorReady="False/NoEnginePods"),
            status(ConnectorReady="False/MPServersNotReady"),
            [("Warning", "MPServersNotReady")],
            id="another reason",
        ),
        pytest.param(status(ConnectorReady="True/ConnectorReady"), status(), [], id="connector went"),
        pytest.param(
            status(),
            status(RemoteStorageReady="Unknown/RemoteStoragePending"),
            [("Warning", "RemoteStoragePending")],
            id="store came",
        ),
        pytest.param(
            status(RemoteStorageReady="Unknown/RemoteStoragePending"),
            status(RemoteStorageReady="True/RemoteStorageReady"),
            [("Normal", "RemoteStorageReady")],
            id="store became ready",
        ),
        pytest.param(
            status(Ready="True/BackendReady", Degraded="False/NotDegraded"),
            status(Ready="False/ReplicasUnavailable", Degraded="True/ReplicasUnavailable"),
            [("Warning", "BackendDegraded")],
            id="degraded",
        ),
        pytest.param(
            status(Ready="False/ReplicasUnavailable", Degraded="True/ReplicasUnavailable"),
            status(Ready="True/BackendReady", Degraded="False/NotDegraded"),
            [("Normal", "BackendRecovered")],
            id="recovered",
        ),
        pytest.param(
            status(Ready="False/AwaitingFirstKVEvent", Degraded="False/NotDegraded"),
            status(Ready="False/NoKVEventsObserved", Degraded="True/NoKVEventsObserved"),
            [("Warning", "NoKVEventsObserved")],
            id="silent, which is no degradation to tell of",
        ),
        pytest.param(
            status(Ready="False/NoKVEventsObserved", Degraded="True/NoKVEventsObserved"),
            status(Ready="True/KVEventsObserved", Degraded="False/NotDegraded", firstKVEventObservedAt="t"),
            [("Normal", "KVEventsObserved")],
            id="heard of, which is no recovery",
        ),
        pytest.param(
            status(Ready="Unknown/ConnectorInjectionUnverified"),
            status(Ready="False/AwaitingFirstKVEvent"),
            [("Normal", "AwaitingFirstKVEvent")],
            id="waits for an event",
        ),
        pytest.param(
            status(Ready="False/EngineKernelDegraded", Degraded="False/NotDegraded"),
            status(Ready="False/EngineKernelDegraded", Degraded="True/NoKVEventsObserved"),
            [("Warning", "BackendDegraded")],
            id="silent behind another reason",
        ),
        pytest.param(status(), status(failOpen=False), [("Warning", "FailClosedEnabled")], id="fails closed"),
        pytest.param(
            status(failOpen=False), status(failOpen=True), [("Normal", "FailOpenRestored")], id="fails open"
        ),
        pytest.param(status(), status(failOpen=True), [], id="open from the start"),
        pytest.param(
            status(),
            status(EngineCompatibility="False/InjectedEngineCrashLooping"),
            [("Warning", "InjectedEngineCrashLooping")],
            id="crashes",
        ),
    ],
)
def test_each_transition_is_told(before: Document, after: Document, told: list[tuple[str, str]]) -> None:
    assert [note[:2] for note in transitions(before, after)] == told
    assert all(note.message for note in transitions(before, after))
    assert transitions(after, after) == []


@rule("CTL-157")
@pytest.mark.parametrize(
    ("before", "is_told"),
    [
        ({}, True),
        ({"matchedEnginePods": 2}, True),
        ({"matchedEnginePods": 0}, True),
        ({"matchedEnginePods": 0, "engineSelectorMessage": "no"}, False),
    ],
)
def test_a_selector_that_matches_nothing_is_told_of_when_that_begins(
    before: Document, *, is_told: bool
) -> None:
    after = {"matchedEnginePods": 0, "engineSelectorMessage": "no"}
    told = [note[:2] for note in transitions(before, after)]
    assert told == ([("Normal", "EngineSelectorUnmatched")] if is_told else [])
    assert transitions(before, {"matchedEnginePods": 0}) == []
    assert transitions(before, {"matchedEnginePods": 1}) == []


@rule("CTL-93", "CTL-211")
async def test_a_condition_of_another_generation_is_told_again() -> None:
    passes = Passes(of_case(pod_local()))
    await passes.settle()
    assert passes.events == ["NoEnginePods"]
    (event,) = (document for (kind, _), document in passes.kube.objects.items() if kind.name == "Event")
    assert "series" not in event
    passes.change("spec.observation.modelID", "m")
    await passes.settle()
    (event,) = (document for (kind, _), document in passes.kube.objects.items() if kind.name == "Event")
    assert event["series"]["count"] == 2


@rule("CTL-213")
async def test_an_event_is_about_the_backend_and_names_its_reporter() -> None:
    passes = Passes(of_case(pod_local()))
    await passes.run()
    (event,) = (document for (kind, _), document in passes.kube.objects.items() if kind.name == "Event")
    assert event["apiVersion"] == "events.k8s.io/v1"
    assert event["reportingController"] == "cachebackend-controller"
    assert event["action"] == event["reason"] == "NoEnginePods"
    assert event["note"] == passes.condition("ConnectorReady")["message"]
    assert event["regarding"]["uid"] == "u1"
    assert event["regarding"]["kind"] == CACHE_BACKENDS.name


@rule("CTL-211")
async def test_a_life_of_a_backend_as_events_tell_it() -> None:
    passes = Passes(managed())
    await passes.settle()
    assert passes.events == ["NoEnginePods", "RemoteStoragePending"]
    passes.put_pods(engine(marks={}))
    passes.roll_out()
    await passes.settle()
    passes.put_pods(engine(marks=stamps()))
    await passes.settle()
    passes.observe_event("2026-03-01T12:01:00Z")
    await passes.run(at(2))
    await passes.run(at(3))
    assert passes.events == [
        "NoEnginePods",
        "RemoteStoragePending",
        "ConnectorInjectionUnverified",
        "RemoteStorageReady",
        "ConnectorReady",
        "AwaitingFirstKVEvent",
        "KVEventsObserved",
    ]
