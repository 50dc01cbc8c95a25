"""Marks on pods, and the annotation by which their authors opt out."""

from __future__ import annotations

import asyncio

import pytest

from inferencecache.controller.admission.reviews import Allowed, LookupFailedError
from inferencecache.controller.injection import SidecarSettings, pod_webhook
from inferencecache.controller.injection.opt_out import opts_out
from tests.support.backends import change, events_only, node_local, pod_local
from tests.support.engine_pods import MARKS, PREFIX, SKIPPED, engine_pod, pod_v
from tests.unit.controller.injection.asking import SIDECAR, Document, request_about, stay, wire

SKIP = f"{PREFIX}skip-inject"
METRICS = f"{PREFIX}lmcache-mp-metrics"
YES = (
    " ", " false", "no ", "1", "t", "T", "TRUE", "true", "True", "yes", "y", "on", "please", "2",
    "fAlSe", "tRuE", "nope",
)  # fmt: skip
NO = (
    "", "0", "f", "F", "FALSE", "false", "False", "no", "No", "NO", "off", "OFF", "oFf", "disable",
    "disabled", "Disabled",
)  # fmt: skip
FORGED = dict.fromkeys((*MARKS, *SKIPPED), "forged")


def annotated(annotations: Document) -> Document:
    return change(pod_v(), "metadata.annotations", annotations)


@pytest.mark.rule("ADM-135", "ADM-136", "ADM-W34")
@pytest.mark.parametrize("value", YES)
def test_any_text_that_does_not_say_no_opts_out(value: str) -> None:
    assert opts_out({SKIP: value})


@pytest.mark.rule("ADM-135", "ADM-136", "ADM-W34")
@pytest.mark.parametrize("value", NO)
def test_a_no_in_any_of_its_spellings_does_not(value: str) -> None:
    assert not opts_out({SKIP: value})
    assert not opts_out({})


@pytest.mark.rule("ADM-138", "ADM-243")
def test_a_pod_that_opts_out_gets_one_mark_and_loses_the_others() -> None:
    skipped = wire(annotated({SKIP: "true", "own": "kept"} | FORGED), pod_local())
    assert skipped == annotated({SKIP: "true", "own": "kept"} | SKIPPED)
    assert "opts out" in stay(skipped, pod_local())


@pytest.mark.rule("ADM-139", "ADM-140", "ADM-141", "ADM-143")
def test_a_wired_pod_carries_its_backend_and_no_skip_mark() -> None:
    wired = wire(annotated({"own": "kept"} | FORGED), pod_local())
    assert wired["metadata"]["annotations"] == {"own": "kept"} | MARKS


@pytest.mark.rule("ADM-142", "ADM-222", "OPS-42")
def test_only_a_pod_with_a_server_of_its_own_says_that_it_has_metrics() -> None:
    assert wire(pod_v(), pod_local())["metadata"]["labels"][METRICS] == "true"
    for backend in (node_local(), events_only()):
        assert METRICS not in wire(pod_v(), backend, sidecar=SIDECAR)["metadata"]["labels"]


@pytest.mark.rule("ADM-144", "ADM-145", "ADM-253")
@pytest.mark.parametrize("without", ["image", "model", "room"])
def test_an_observed_pod_without_a_sidecar_of_ours_stays_as_it_was(without: str) -> None:
    pod = change(pod_v(), "spec.initContainers", [{"name": "lmcache-kernel-check", "image": "own:1"}])
    if without == "room":
        pod["spec"]["containers"].append({"name": "kvevent-subscriber", "image": "own:1"})
    backend = events_only(model="" if without == "model" else "m")
    assert "no sidecar" in stay(pod, backend, sidecar=None if without == "image" else SIDECAR)
    marked = change(pod, "metadata.annotations", dict(MARKS))
    assert wire(marked, backend, sidecar=None if without == "image" else SIDECAR) == pod


@pytest.mark.rule("ADM-146", "ADM-W36", "ADM-245")
def test_marks_of_a_pod_that_is_not_wired_are_removed_all_together() -> None:
    for mark in (*MARKS, *SKIPPED):
        assert wire(annotated({mark: "x", "own": "kept"})) == annotated({"own": "kept"})
        assert wire(annotated({mark: "x"})) == pod_v()
    assert wire(annotated(dict(FORGED))) == pod_v()


@pytest.mark.rule("ADM-146")
def test_marks_that_say_nothing_are_left() -> None:
    stay(annotated(dict.fromkeys(FORGED, "")))


@pytest.mark.rule("ADM-146")
def test_the_metrics_label_is_not_taken_away() -> None:
    pod = change(annotated(dict(MARKS)), "metadata.labels", {METRICS: "true"})
    assert wire(pod)["metadata"]["labels"] == {METRICS: "true"}


def ask_without_api(pod: Document) -> Allowed:
    async def lookup(plural: str, namespace: str) -> list[Document]:
        raise LookupFailedError(plural, namespace, "no answer within 5 s")

    async def answer() -> Allowed:
        given = await pod_webhook(SidecarSettings())(request_about(pod), lookup)
        assert isinstance(given, Allowed)
        return given

    return asyncio.run(answer())


@pytest.mark.rule("ADM-244")
def test_without_backends_to_look_at_a_pod_comes_in_without_marks() -> None:
    message = "cannot list cachebackends in namespace team-a: no answer within 5 s"
    assert ask_without_api(pod_v()) == Allowed(None, message)
    assert ask_without_api(annotated(dict(FORGED))) == Allowed(pod_v(), message)


@pytest.mark.rule("ADM-242")
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec", None),
        ("spec.containers", "many"),
        ("spec.containers", [{"image": "nameless"}]),
        ("spec.containers", [{"name": "vllm", "args": "--model x"}]),
        ("spec.containers", [{"name": "vllm", "resources": {"limits": {"nvidia.com/gpu": "many"}}}]),
        ("spec.volumes", [{"emptyDir": {}}]),
        ("spec.volumes", [{"name": "x", "emptyDir": {"sizeLimit": "big"}}]),
        ("metadata.annotations", {"a": 1}),
        ("metadata.labels", ["a"]),
    ],
    ids=str,
)
def test_what_is_no_pod_is_admitted_untouched(path: str, value: object) -> None:
    pod = change(engine_pod(annotations=dict(MARKS)), path, value)
    assert "cannot be read" in stay(pod, pod_local())
