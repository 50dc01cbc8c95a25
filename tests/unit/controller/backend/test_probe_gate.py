"""What an answer to a functional probe means, and which window it opens."""

from __future__ import annotations

from datetime import timedelta

import pytest

from inferencecache.controller.backend.probe_gate import (
    ProbeWindows,
    answered,
    counted_results,
    probe_request,
)
from inferencecache.core.kube.backends import Backend
from inferencecache.core.kube.conditions import Verdict
from inferencecache.schemas.requests import ProbeFailure, ProbeRequest, ProbeResult
from tests.support.backend_passes import NO_ANSWER, NOON, at, managed
from tests.support.backends import change

rule = pytest.mark.rule
READY = Verdict("True", "KVEventsObserved", "")


def result(ingest: str, routing: str, t2: str, *failures: tuple[str, str]) -> ProbeResult:
    return ProbeResult(
        "r", "ns-a/cache", ingest, routing, t2, tuple(ProbeFailure(*each) for each in failures)
    )


@rule("CTL-121")
def test_a_probe_is_asked_for_by_backend_and_scheme() -> None:
    asked = ProbeRequest("ns-a/cache", "functional-self-test", "vllm", "LMCache")  # type: ignore[arg-type]
    assert probe_request(Backend(managed())) == asked
    sglang = change(change(managed(), "spec.runtime", "SGLang"), "spec.type", None)
    assert probe_request(Backend(sglang)) == ProbeRequest(
        "ns-a/cache",
        "functional-self-test",  # type: ignore[arg-type]
        "sglang",  # type: ignore[arg-type]
        "",
    )
    assert probe_request(Backend(change(managed(), "spec.runtime", None))).hash_scheme == "vllm"


@rule("CTL-122", "CTL-123", "CTL-124", "CTL-125", "CTL-126", "CTL-150")
@pytest.mark.parametrize(
    ("answer", "status", "reason", "message"),
    [
        (result("ok", "ok", "ok"), "True", "ProbeOK", None),
        (result("ok", "skipped", "skipped"), "True", "ProbeOK", None),
        (
            result("failed", "failed", "failed", ("routing", "r"), ("ingest", "i")),
            "False",
            "ProbeIngestFailed",
            "i",
        ),
        (result("ok", "failed", "failed", ("t2", "t")), "False", "ProbeRoutingFailed", None),
        (result("ok", "ok", "failed", ("t2", "put failed: x")), "False", "ProbeT2Failed", "put failed: x"),
        (result("ok", "", "ok"), "False", "ProbeError", 'ingest="ok" routing="" t2="ok"'),
        (result("OK", "ok", "ok"), "False", "ProbeError", 'ingest="OK" routing="ok" t2="ok"'),
    ],
)
def test_an_answer_is_judged_by_its_stages(
    answer: ProbeResult, status: str, reason: str, message: str | None
) -> None:
    probed = answered(READY, None, answer)
    assert probed.condition is not None
    assert probed.condition[:2] == (status, reason)
    assert probed.condition.message
    if message is not None:
        assert message in probed.condition.message
    assert probed.wake_up_s == 30
    if status == "True":
        assert probed.ready == READY
    else:
        assert probed.ready[:2] == ("False", reason)
        assert probed.ready.message == f"functional probe failed: {probed.condition.message}"


@rule("CTL-124")
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (result("failed", "skipped", "skipped"), "index"),
        (result("ok", "failed", "skipped"), "lookup"),
        (result("ok", "ok", "failed"), "put/get"),
    ],
)
def test_a_stage_that_says_nothing_is_named(answer: ProbeResult, words: str) -> None:
    condition = answered(READY, None, answer).condition
    assert condition is not None
    assert words in condition.message


@rule("CTL-127")
@pytest.mark.parametrize(
    "before", [None, Verdict("True", "ProbeOK", ""), Verdict("Unknown", "ProbeError", "")]
)
def test_no_answer_is_unknown_where_nothing_failed_before(before: Verdict | None) -> None:
    probed = answered(READY, before, NO_ANSWER)
    assert probed == (READY, ("Unknown", "ProbeError", "probe call failed: no answer within 5 s"), 30)


@rule("CTL-131")
def test_a_long_report_is_cut() -> None:
    for length, shown in ((512, "x" * 512), (513, "x" * 509 + "...")):
        condition = answered(READY, None, result("failed", "", "", ("ingest", "x" * length))).condition
        assert condition is not None
        assert condition.message == shown


@rule("CTL-132")
def test_what_is_no_result_counts_as_failed() -> None:
    assert counted_results(result("", "skipped", "odd")) == (
        ("ingest", "failed"),
        ("routing", "skipped"),
        ("t2", "failed"),
    )


@rule("CTL-120", "CTL-128", "CTL-129", "CTL-130")
def test_a_window_ends_after_half_a_minute_or_when_it_is_forgotten() -> None:
    windows = ProbeWindows()
    assert windows.left_s("a", NOON) == 0
    windows.consume("a", NOON)
    assert windows.left_s("a", at(0, 12)) == 18
    assert windows.left_s("b", at(0, 12)) == 0
    assert windows.left_s("a", at(0, 30)) == 0
    windows.forget("a")
    assert windows.left_s("a", at(0, 12)) == 0


def test_a_clock_that_was_set_back_does_not_keep_a_window_open() -> None:
    windows = ProbeWindows()
    windows.consume("a", NOON)
    assert windows.left_s("a", NOON - timedelta(hours=1)) == 0
