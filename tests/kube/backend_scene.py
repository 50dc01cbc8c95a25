"""A controller that reconciles backends at a real API server, where the test plays everybody else: the
Deployment's controller, scheduler, kubelet, and the projection that tells of events.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from inferencecache.controller.backend.reconciler import BackendReconciler
from inferencecache.controller.backend.work import backend_work
from inferencecache.controller.operating import Operating, Work
from inferencecache.controller.reconciling.controllers import Reconciler
from inferencecache.controller.work import work_of
from inferencecache.core.kube.kinds import ObjectKey
from tests.kube.engines import engine_pod
from tests.support.backends import change
from tests.support.kube import ApiServer, Document, KubeClient
from tests.support.operating import operating
from tests.support.waiting import eventually

WITHIN_S = 30.0
_SERVER = "lmcache-mp-server"


class CountedPasses:
    """A reconciler whose passes are counted when they have ended, well or not."""

    def __init__(self, reconciler: Reconciler) -> None:
        self._reconciler = reconciler
        self.name = reconciler.name
        self.concerns = reconciler.concerns
        self.ended = 0

    def are(self, count: int) -> bool:
        """Were there so many?"""
        return self.ended >= count

    async def reconcile(self, key: ObjectKey) -> float | None:
        try:
            return await self._reconciler.reconcile(key)
        finally:
            self.ended += 1


class BackendScene:
    """One backend `cache` in a namespace of its own."""

    def __init__(self, kube: KubeClient, namespace: str, operation: Operating, passes: CountedPasses) -> None:
        self.kube = kube
        self.namespace = namespace
        self.operation = operation
        self.passes = passes

    # -- the backend's author ------------------------------------------------------------------------

    async def create(self, document: Document) -> Document:
        placed = change(document, "metadata", {"name": "cache", "namespace": self.namespace})
        answer = await self.kube.create(placed)
        assert answer.status == 201, answer.body
        return answer.body

    async def patch(self, **patch: Any) -> Document:
        answer = await self.kube.patch("CacheBackend", "cache", self.namespace, patch)
        assert answer.status == 200, answer.body
        return answer.body

    # -- others --------------------------------------------------------------------------------------

    async def roll_out(self, *, updated: int = 1, available: int = 1) -> None:
        """The Deployment's own controller reports about what it sees."""
        deployment = await self.wait_for("Deployment")
        status = {
            "observedGeneration": deployment["metadata"]["generation"],
            "replicas": updated,
            "updatedReplicas": updated,
            "readyReplicas": available,
            "availableReplicas": available,
        }
        answer = await self.kube.set_status("Deployment", "cache", self.namespace, status)
        assert answer.status == 200, answer.body

    async def run_engine(self, name: str = "engine", node: str = "") -> Document:
        """An engine's pod that was wired by the backend as it is now, and runs with its server."""
        pod = engine_pod(self.namespace, name, await self.backend(), node=node)
        pod["spec"]["initContainers"] = [{"name": _SERVER, "image": "server", "restartPolicy": "Always"}]
        answer = await self.kube.create(pod)
        assert answer.status == 201, answer.body
        await self.report(name, ready=True)
        return answer.body

    async def report(self, pod: str, *, ready: bool, **status: Any) -> None:
        """The kubelet reports about a pod and the server in it."""
        now = "2026-03-01T12:00:00Z"
        running = {"state": {"running": {"startedAt": now}}, "ready": ready, "restartCount": 0}
        containers = [{"name": name, "image": "i", "imageID": "i"} | running for name in (_SERVER, "vllm")]
        reported = {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "initContainerStatuses": containers[:1],
            "containerStatuses": containers[1:],
        }
        answer = await self.kube.set_status("Pod", pod, self.namespace, reported | status)
        assert answer.status == 200, answer.body

    async def observe_event(self, at: str = "2026-03-01T12:00:00Z") -> None:
        """The projection tells of the first event."""
        participation = {"indexParticipation": {"prefixCount": 1, "lastEventAt": at}}
        answer = await self.kube.set_status("CacheBackend", "cache", self.namespace, participation)
        assert answer.status == 200, answer.body

    # -- what is there -------------------------------------------------------------------------------

    async def find(self, kind: str, name: str = "cache") -> Document | None:
        answer = await self.kube.get(kind, name, self.namespace)
        return answer.body if answer.status == 200 else None

    async def backend(self) -> Document:
        found = await self.find("CacheBackend")
        assert found is not None
        return found

    async def wait_for(
        self, kind: str, holds: Callable[[Document], object] = lambda _: True, name: str = "cache"
    ) -> Document:
        """The object once that holds of it."""
        last: Document | None = None

        async def found() -> bool:
            nonlocal last
            last = await self.find(kind, name)
            return last is not None and bool(holds(last))

        try:
            await eventually(found, within_s=WITHIN_S)
        except AssertionError:
            raise AssertionError(f"{kind} {name} did not come to that: {last}") from None
        assert last is not None
        return last

    async def wait_gone(self, kind: str, name: str = "cache") -> None:
        async def is_gone() -> bool:
            return await self.find(kind, name) is None

        await eventually(is_gone, within_s=WITHIN_S, what=f"the end of {kind} {name}")

    async def wait_verdicts(self, **expected: str) -> Document:
        """The backend once it has these conditions in its present generation, `Ready="True/…"`; empty for
        none.
        """

        def holds(backend: Document) -> bool:
            if backend.get("status", {}).get("observedGeneration") != backend["metadata"]["generation"]:
                return False
            found = verdicts_of(backend)
            return all(found.get(type_, "") == verdict for type_, verdict in expected.items())

        return await self.wait_for("CacheBackend", holds)

    async def wait_events(self, *expected: tuple[str, str]) -> None:
        """Return once there are Events of these types and reasons about the backend."""

        async def are_there() -> bool:
            events = (await self.kube.list_all("Event", self.namespace)).body["items"]
            about = [(event.get("regarding") or event["involvedObject"])["kind"] for event in events]
            assert set(about) <= {"CacheBackend"}
            return {(event["type"], event["reason"]) for event in events} >= set(expected)

        await eventually(are_there, within_s=WITHIN_S, what=f"events {expected}")

    def writes(self) -> dict[str, float]:
        """Everything that the controller wrote so far."""
        samples = (sample for metric in self.operation.registry.collect() for sample in metric.samples)
        return {
            "/".join(sample.labels.values()): sample.value
            for sample in samples
            if sample.name == "inferencecache_controller_writes_total"
        }

    async def look_again(self) -> None:
        """Return after a pass that began now has ended."""
        for _ in range(2):  # one may have been under way
            awaited = self.passes.ended + 1
            self.operation.mark(self.passes.name, ObjectKey(self.namespace, "cache"))
            await eventually(partial(self.passes.are, awaited), within_s=WITHIN_S)


def verdicts_of(backend: Document) -> dict[str, str]:
    """All conditions as `Status/Reason`."""
    conditions = backend.get("status", {}).get("conditions", ())
    return {each["type"]: f"{each['status']}/{each['reason']}" for each in conditions}


def condition_of(backend: Document, type_: str) -> Document:
    """Empty without it."""
    conditions = backend.get("status", {}).get("conditions", ())
    found: Document = next((each for each in conditions if each["type"] == type_), {})
    return copy.deepcopy(found)


@asynccontextmanager
async def scene_of(
    kube: KubeClient,
    server: ApiServer,
    token: str,
    nats_url: str,
    namespace: str,
    *,
    probing: bool = False,
    whole: bool = False,
) -> AsyncIterator[BackendScene]:
    """A running controller that does nothing but reconcile backends, or is `whole`."""
    counted: dict[str, CountedPasses] = {}

    def work(operation: Operating) -> Work:
        done = work_of(operation) if whole else backend_work(operation)
        counted.update({each.name: CountedPasses(each) for each in done.reconcilers})
        return done._replace(reconcilers=tuple(counted.values()))

    async with operating(server, token, nats_url, work=work, functional_probe=probing) as operation:
        await eventually(lambda: counted, within_s=WITHIN_S)
        yield BackendScene(kube, namespace, operation, counted[BackendReconciler.name])
