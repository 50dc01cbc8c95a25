"""Events on engine pods [CTL-202..210]."""

from __future__ import annotations

import pytest

from inferencecache.controller.kube.observed import Change, Observed
from inferencecache.controller.pods.engine_events import EnginePodEvents
from inferencecache.core.kube.api import KubeError
from inferencecache.core.kube.kinds import CACHE_BACKENDS, EVENTS, PODS, ObjectKey, key_of
from tests.support.backend_passes import MARK, engine, of_case, stamps
from tests.support.backends import DOMAIN, Document, pod_local
from tests.support.played_kube import PlayedKube

rule = pytest.mark.rule
BACKEND = of_case(pod_local())
SKIPPED = f"{MARK}inject-skipped"


class Watched:
    """The reconciler over a played cluster whose pods are seen as they are put."""

    def __init__(self, *backends: Document) -> None:
        self.kube = PlayedKube()
        self.kube.observed = Observed((PODS,))
        self.events = EnginePodEvents(self.kube)
        self.wanted: list[ObjectKey] = []
        self.kube.observed.on_change(lambda change: self.wanted.extend(self.events.concerns(change)))
        for backend in backends:
            self.kube.put(CACHE_BACKENDS, backend)

    async def see(self, pod: Document) -> list[Document]:
        """The Events of all pods, once this one has been looked at."""
        pod["metadata"].setdefault("uid", f"uid-{pod['metadata']['name']}")
        self.kube.observed.seen(PODS, self.kube.put(PODS, pod))
        await self.work()
        return self.recorded

    async def work(self) -> None:
        while self.wanted:
            await self.events.reconcile(self.wanted.pop())

    @property
    def recorded(self) -> list[Document]:
        return [document for (kind, _), document in self.kube.objects.items() if kind == EVENTS]


def marked(by: str = "ns-a/cache", uid: str = "u1") -> Document:
    """A pod that was wired for a backend."""
    return engine(marks=stamps(uid) | {f"{MARK}injected-by": by})


def opted_out(value: str, mark: str = "skip-inject-annotation") -> Document:
    return engine(marks={f"{MARK}skip-inject": value, SKIPPED: mark})


@rule("CTL-W28", "ADM-W40", "CTL-203", "ADM-258", "CTL-213", "CTL-206")
async def test_a_wired_pod_is_told_of_with_its_backend() -> None:
    watched = Watched(BACKEND)
    (event,) = await watched.see(marked())
    assert (event["type"], event["reason"], event["action"]) == (
        "Normal",
        "InjectedByCacheBackend",
        "InjectedByCacheBackend",
    )
    assert event["note"] == 'Injected engine config from CacheBackend "ns-a/cache"'
    assert event["reportingController"] == "engine-pod-events"
    assert (event["regarding"]["kind"], event["regarding"]["name"]) == ("Pod", "e1")
    assert (event["related"]["kind"], event["related"]["uid"]) == ("CacheBackend", "u1")
    assert event["apiVersion"] == "events.k8s.io/v1"


@rule("CTL-W28", "ADM-W40", "CTL-204", "CTL-209", "ADM-259", "ADM-260")
@pytest.mark.parametrize(
    "pod",
    [
        marked(uid="u0"),
        marked(uid=""),
        marked("ns-a/UPPER"),
        marked("ns-a"),
        marked("ns-a/cache/more"),
        marked("ns.a/cache"),
        marked("/cache"),
        marked("ns-a/absent"),
    ],
)
async def test_a_mark_that_names_no_backend_that_is_there_is_silent(pod: Document) -> None:
    assert await Watched(BACKEND).see(pod) == []


@rule("CTL-205", "ADM-260")
async def test_a_lookup_that_fails_is_an_error_and_decides_later() -> None:
    watched = Watched(BACKEND)
    watched.kube.fail.add(("get", "CacheBackend"))
    with pytest.raises(KubeError):
        await watched.see(marked())
    watched.kube.fail.clear()
    await watched.events.reconcile(ObjectKey("ns-a", "e1"))
    assert len(watched.recorded) == 1


@rule("CTL-W29", "ADM-W40", "CTL-207", "CTL-208", "ADM-261")
@pytest.mark.parametrize(
    ("value", "is_told"), [("true", True), ("yes", True), ("off", False), ("0", False), ("", False)]
)
async def test_who_opts_out_is_told_that_it_worked(value: str, is_told: bool) -> None:
    events = await Watched(BACKEND).see(opted_out(value))
    told = ("Normal", "SkippedByOperator", "Skipped cache injection: skip-inject-annotation")
    assert [(event["type"], event["reason"], event["note"]) for event in events] == [told] * is_told


@rule("CTL-207", "ADM-261")
async def test_an_annotation_that_admission_did_not_act_on_is_not_told() -> None:
    watched = Watched(BACKEND)
    assert await watched.see(opted_out("true", mark="")) == []
    assert await watched.see(engine("e2", marks={SKIPPED: "skip-inject-annotation"})) == []


@rule("CTL-202", "ADM-262")
async def test_only_the_making_of_a_pod_is_told() -> None:
    watched = Watched(BACKEND)
    await watched.see(marked())
    await watched.see(marked() | {"status": {"phase": "Failed"}})
    pod = watched.kube.stored(PODS, "e1", "ns-a")
    assert pod is not None
    watched.kube.observed.gone(PODS, pod)
    await watched.work()
    assert watched.events.concerns(Change(PODS, key_of(pod), pod, pod)) == ()
    assert [event.get("series") for event in watched.recorded] == [None]


@rule("CTL-202", "ADM-262", "CTL-213")
async def test_a_controller_that_starts_again_counts_in_the_event_that_is_there() -> None:
    watched = Watched(BACKEND)
    await watched.see(marked())
    again = EnginePodEvents(watched.kube)
    await again.reconcile(ObjectKey("ns-a", "e1"))
    (event,) = watched.recorded
    assert event["series"]["count"] == 2


@rule("CTL-210")
async def test_a_pod_that_names_a_domain_of_no_backend_is_warned_of_once() -> None:
    watched = Watched(BACKEND)
    lost = engine(marks={}, labels={DOMAIN: "elsewhere"})
    (event,) = await watched.see(lost)
    assert (event["type"], event["reason"]) == ("Warning", "NoMatchingCacheBackend")
    assert "inferencecache.io/cache-domain=elsewhere" in event["note"]
    (event,) = await watched.see(lost | {"status": {"phase": "Running", "podIP": "10.0.0.9"}})
    assert "series" not in event


@rule("CTL-210")
async def test_pods_that_a_backend_selects_or_that_want_no_cache_are_not_warned_of() -> None:
    watched = Watched(BACKEND)
    assert await watched.see(engine("selected", marks={})) == []
    assert await watched.see(engine("plain", marks={}, labels={"app": "web"})) == []
    assert await watched.see(engine("out", marks={f"{MARK}skip-inject": "true"}, labels={DOMAIN: "x"})) == []
