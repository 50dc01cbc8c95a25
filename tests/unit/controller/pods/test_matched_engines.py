"""Counting the pods that a backend's selector matches [CTL-152..158]."""

from __future__ import annotations

from typing import Any

import pytest

from inferencecache.controller.backend.drafts import StatusDraft
from inferencecache.controller.backend.events import transitions
from inferencecache.controller.pods.matched_engines import count_engines
from inferencecache.core.kube.backends import Backend
from tests.support.backend_passes import NOON, engine, of_case
from tests.support.backends import DOMAIN, Document, change, pod_local

rule = pytest.mark.rule
UNMATCHED = "spec.engineSelector.matchLabels={inferencecache.io/cache-domain:d}; no Pods in namespace match"


def deployment(replicas: int | None, labels: Document | None = None) -> Document:
    spec: Document = {"template": {"metadata": {"labels": {DOMAIN: "d"} if labels is None else labels}}}
    return {
        "metadata": {"name": "engines"},
        "spec": spec | ({} if replicas is None else {"replicas": replicas}),
    }


def counted(
    pods: list[Document] | None,
    deployments: list[Document] | None,
    *,
    status: Document | None = None,
    backend: Document | None = None,
) -> tuple[Any, Any, bool]:
    """Count, message and churn."""
    draft = drafted(pods, deployments, status or {}, backend)
    return draft[0].get("matchedEnginePods"), draft[0].get("engineSelectorMessage"), draft[1]


def drafted(
    pods: list[Document] | None,
    deployments: list[Document] | None,
    status: Document,
    backend: Document | None = None,
) -> tuple[StatusDraft, bool]:
    read = Backend((backend or of_case(pod_local())) | {"status": status})
    draft = StatusDraft(read, NOON)
    return draft, count_engines(read, pods, deployments, draft)


@rule("CTL-W19", "CTL-154", "CTL-155", "CTL-156")
@pytest.mark.parametrize(
    ("deployments", "message", "churns"),
    [([deployment(2)], UNMATCHED, True), ([deployment(0)], None, False), ([], UNMATCHED, False)],
)
def test_without_pods_what_is_said_depends_on_the_replicas_that_are_wanted(
    deployments: list[Document], message: str | None, churns: bool
) -> None:
    assert counted([], deployments) == (0, message, churns)


@rule("CTL-152")
def test_all_phases_and_terminating_pods_count() -> None:
    leaving = engine("e3")
    leaving["metadata"]["deletionTimestamp"] = "2026-03-01T11:59:00Z"
    pods = [engine("e1"), engine("e2", phase="Failed"), leaving, engine("other", labels={DOMAIN: "x"})]
    assert counted(pods, [])[:2] == (3, None)


@rule("CTL-152", "CTL-155")
def test_every_pair_of_the_selector_has_to_match_and_pairs_are_told_in_order() -> None:
    backend = change(of_case(pod_local()), "spec.engineSelector.matchLabels", {"b": "2", "a": "1"})
    pods = [engine(labels={"a": "1"}), engine(labels={"b": "2"})]
    message = "spec.engineSelector.matchLabels={a:1,b:2}; no Pods in namespace match"
    assert counted(pods, [], backend=backend) == (0, message, False)
    assert counted([engine(labels={"a": "1", "b": "2", "c": "3"})], [], backend=backend)[0] == 1


@rule("CTL-153")
def test_a_backend_without_selector_has_neither_count_nor_message() -> None:
    backend = of_case(pod_local(domain=""))
    status = {"matchedEnginePods": 3, "engineSelectorMessage": "old"}
    assert counted([engine()], [], status=status, backend=backend) == (None, None, False)


@rule("CTL-154")
def test_replicas_of_all_deployments_that_match_are_wanted_one_where_none_is_written() -> None:
    deployments = [deployment(2), deployment(None), deployment(7, {DOMAIN: "x"}), deployment(7, {})]
    three = [engine(f"e{number}") for number in range(3)]
    assert counted(three, deployments) == (3, None, False)
    assert counted(three[:2], deployments) == (2, None, True)


@rule("CTL-156")
def test_engines_churn_while_those_that_run_are_not_those_that_are_wanted() -> None:
    pods = [engine("e1"), engine("e2", phase="Failed"), engine("e3", phase="Succeeded")]
    assert counted(pods, [deployment(1)]) == (3, None, False)
    assert counted(pods, [deployment(3)]) == (3, None, True)


@rule("CTL-155", "CTL-16")
def test_lists_that_failed_leave_what_was_known() -> None:
    status = {"matchedEnginePods": 1, "engineSelectorMessage": "old"}
    assert counted(None, [deployment(2)], status=status) == (1, "old", False)
    assert counted([], None, status=status) == (0, "old", False)
    assert counted([engine()], None, status=status) == (1, None, False)


@rule("CTL-157")
@pytest.mark.parametrize(
    ("before", "is_told"),
    [
        ({}, True),
        ({"matchedEnginePods": 2}, True),
        ({"matchedEnginePods": 0}, True),
        ({"matchedEnginePods": 0, "engineSelectorMessage": UNMATCHED}, False),
    ],
)
def test_the_last_pod_that_goes_is_told_of_once(before: Document, is_told: bool) -> None:
    draft, _ = drafted([], [], before)
    reasons = [note.reason for note in transitions(before, draft.status)]
    assert reasons == (["EngineSelectorUnmatched"] if is_told else [])


@rule("CTL-157")
def test_an_unreliable_list_of_deployments_tells_of_nothing() -> None:
    draft, _ = drafted([], None, {"matchedEnginePods": 2})
    assert transitions({"matchedEnginePods": 2}, draft.status) == []
