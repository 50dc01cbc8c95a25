"""Which pods are wired, by which backend, and in what namespace."""

from __future__ import annotations

import copy

import pytest
from structlog.testing import capture_logs

from tests.support.backends import DOMAIN, backend, change, events_only, pod_local
from tests.support.engine_pods import PREFIX, engine_of, pod_v
from tests.unit.controller.injection.asking import SIDECAR, Document, ask, refusal, stay, wire

INJECTED_BY = f"{PREFIX}injected-by"


@pytest.mark.rule("ADM-127")
def test_the_namespace_is_the_pods_or_else_that_of_the_request() -> None:
    elsewhere = pod_local(namespace="team-b")
    pod = change(pod_v(), "metadata.namespace", "team-b")
    assert wire(pod, elsewhere)["metadata"]["annotations"][INJECTED_BY] == "team-b/cache"
    assert "namespace team-a" in stay(pod_v(), elsewhere)


@pytest.mark.rule("ADM-128", "ADM-129")
@pytest.mark.parametrize(
    "selector",
    [None, {}, {"app": None}, {DOMAIN: "other"}, {DOMAIN: "engine", "app": "x"}, {"app": "x"}],
    ids=str,
)
def test_a_selector_that_is_empty_or_not_wholly_on_the_pod_selects_it_not(
    selector: dict[str, str] | None,
) -> None:
    assert "no CacheBackend" in stay(
        pod_v(), change(pod_local(), "spec.engineSelector", {"matchLabels": selector})
    )


@pytest.mark.rule("ADM-128")
def test_a_selector_may_name_any_labels_at_all() -> None:
    selecting = change(pod_local(), "spec.engineSelector.matchLabels", {"app": "x", "tier": "y"})
    pod = change(pod_v(), "metadata.labels", {"app": "x", "tier": "y", "more": "z"})
    assert INJECTED_BY in wire(pod, selecting)["metadata"]["annotations"]


@pytest.mark.rule("ADM-128")
def test_a_backend_that_is_being_deleted_selects_like_others() -> None:
    going = change(pod_local(), "metadata.deletionTimestamp", "2026-01-01T00:00:00Z")
    assert INJECTED_BY in wire(pod_v(), going)["metadata"]["annotations"]


@pytest.mark.rule("ADM-130", "ADM-246")
def test_a_pod_that_several_backends_select_is_refused_and_they_are_named() -> None:
    denied = refusal(pod_v(), pod_local(name="zebra"), pod_local(name="alpha"), pod_local(name="mid"))
    assert (denied.code, denied.reason, denied.causes) == (403, "Forbidden", ())
    assert "alpha, mid, zebra" in denied.message
    assert "namespace team-a" in denied.message
    assert "exactly one owner" in denied.message


@pytest.mark.rule("ADM-13", "ADM-244")
def test_a_backend_that_cannot_be_read_harms_only_its_own_pods() -> None:
    capacity = "spec.lmCache.podLocal.server.l1Capacity"
    broken = change(pod_local(name="broken", domain="other"), capacity, "4 gigs")
    assert INJECTED_BY in wire(pod_v(), broken, pod_local())["metadata"]["annotations"]
    pod = change(pod_v(), "metadata.labels", {DOMAIN: "other"})
    assert "l1Capacity" in stay(pod, broken, pod_local())


@pytest.mark.rule("ADM-130")
def test_a_backend_that_cannot_be_read_is_an_owner_still() -> None:
    broken = change(pod_local(name="broken"), "spec.observation.firstEventTimeout", "soon")
    assert "broken, cache" in refusal(pod_v(), broken, pod_local()).message


@pytest.mark.rule("ADM-134")
@pytest.mark.parametrize("runtime", ["vllm", "sglang"])
def test_what_is_the_authors_own_stays_as_it_is(runtime: str) -> None:
    pod = pod_v("--page-size", "64", name=runtime, command=["serve"], livenessProbe={"periodSeconds": 7})
    engine_of(pod)["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    pod["spec"] |= {
        "nodeSelector": {"pool": "x"},
        "affinity": {"nodeAffinity": {}},
        "tolerations": [{"operator": "Exists"}],
        "hostNetwork": True,
        "hostIPC": True,
        "dnsPolicy": "Default",
        "serviceAccountName": "robot",
        "somethingNewer": {"kept": [1, 2]},
    }
    pod["spec"]["containers"].append({"name": "side", "image": "own:1", "args": ["--port", "1"]})
    spelled = {"vllm": "VLLM", "sglang": "SGLang"}[runtime]
    backend = change(pod_local(spelled), "spec.observation", {"modelID": "m"})
    spec = wire(pod, backend, sidecar=SIDECAR)["spec"]
    for part in (spec, pod_spec := copy.deepcopy(pod["spec"])):
        for key in ("initContainers", "volumes"):
            part.pop(key, None)
        part["containers"] = [
            {key: value for key, value in container.items() if key not in ("args", "env", "volumeMounts")}
            for container in part["containers"]
            if container["name"] != "kvevent-subscriber"
        ]
    assert spec == pod_spec


@pytest.mark.rule("ADM-132", "ADM-137", "ADM-243")
def test_a_pod_that_opts_out_is_not_even_looked_up() -> None:
    asked = change(pod_v(), "metadata.annotations", {f"{PREFIX}skip-inject": "yes"})
    for backends in ((), (pod_local(),), (pod_local(name="a"), pod_local(name="b"))):
        annotations = wire(asked, *backends)["metadata"]["annotations"]
        assert annotations[f"{PREFIX}inject-skipped"] == "skip-inject-annotation"


@pytest.mark.rule("ADM-133", "ADM-250")
def test_a_pod_that_fails_late_keeps_nothing_of_the_steps_before() -> None:
    pod = pod_v()
    pod["spec"]["volumes"] = [{"name": "lmcache-mp-shm", "emptyDir": {}}]
    assert "lmcache-mp-shm" in stay(pod, pod_local())
    assert "kvevent-subscriber" in stay(pod_v(), events_only(), sidecar=None)


@pytest.mark.rule("ADM-247")
@pytest.mark.parametrize(
    ("runtime", "cache"), [("VLLM", "SGLangHiCache"), ("TRTLLM", "LMCache"), ("", "LMCache")]
)
def test_a_pair_without_adapter_leaves_its_pods_alone(runtime: str, cache: str) -> None:
    message = stay(pod_v(), backend({"runtime": runtime, "type": cache}))
    assert "no adapter" in message


@pytest.mark.rule("ADM-256")
def test_the_answer_says_which_backend_did_not_wire_the_pod() -> None:
    assert ask(pod_v("-dp", "2"), pod_local()).message.startswith(
        "not wired to CacheBackend team-a/cache: --data-parallel-size 2"
    )


@pytest.mark.rule("ADM-256")
def test_reasons_are_logged_for_whoever_asks_but_not_for_every_pod_of_the_cluster() -> None:
    def logged(pod: Document, *backends: Document) -> list[tuple[str, str]]:
        with capture_logs() as lines:
            ask(pod, *backends)
        return [(line["log_level"], str(line.get("why") or line.get("backends"))) for line in lines]

    ((level, why),) = logged(pod_v("-dp", "2"), pod_local())
    assert level == "debug"
    assert "--data-parallel-size" in why
    assert logged(pod_v(), pod_local(name="b"), pod_local(name="a")) == [("info", "a, b")]
    assert logged(pod_v()) == []
    assert logged(pod_v(), pod_local()) == []
