"""One pass over one backend: read, apply, judge, store, tell [CTL-12].

A part that fails does not keep the others from being done: what can be judged is, and the failure is raised
at the end, so that the pass is repeated [CTL-15].
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from inferencecache.controller.backend.concerns import backends_of
from inferencecache.controller.backend.drafts import StatusDraft
from inferencecache.controller.backend.engine_pods import pods_about
from inferencecache.controller.backend.events import transitions
from inferencecache.controller.backend.judging import Found, Judged, ProbeState, judge, judge_connector
from inferencecache.controller.backend.paths import Path, choose_path
from inferencecache.controller.backend.probe_gate import ProbeAnswer, ProbeWindows, probe_request
from inferencecache.controller.backend.storage import unavailable
from inferencecache.controller.backend.workload_objects import Workload, apply_workload, delete_workload
from inferencecache.controller.kube.observed import Change
from inferencecache.controller.kube.recording import WARNING, Note, utc_now
from inferencecache.controller.reconciling.controllers import Means
from inferencecache.controller.reconciling.queue import RetryError
from inferencecache.core.kube.api import KubeError
from inferencecache.core.kube.backends import NODE_LOCAL, Backend
from inferencecache.core.kube.kinds import (
    CACHE_BACKENDS,
    DEPLOYMENTS,
    PODS,
    SERVICES,
    Document,
    ObjectKey,
)
from inferencecache.core.service import get_logger
from inferencecache.schemas.requests import ProbeRequest, ProbeResult

COMPONENT: Final = "cachebackend-controller"
SNAPSHOT_S: Final = 30.0
CHURN_S: Final = 5.0

logger = get_logger("backend")

Ask = Callable[[ProbeRequest], Awaitable[ProbeAnswer]]
"""`await ask(request)`: the answer to a functional probe, or why there is none."""
KeepServers = Callable[[Backend, Sequence[Document] | None, datetime], Awaitable[None]]
"""`await keep(backend, pods, now)`: bring the server pods of a NodeLocal backend to what its engines need,
and delete all that any other backend controls; `pods` are the namespace's, None when they were not listed.
Raises `KubeError` and `RetryError`.
"""
CountEngines = Callable[[Backend, Sequence[Document] | None, Sequence[Document] | None, StatusDraft], bool]
"""`count(backend, pods, deployments, draft)`: bring `matchedEnginePods` and `engineSelectorMessage` of the
draft up to date; whether engine replicas churn. Both lists are the namespace's, None when they are not known.
"""


_Failure = KubeError | RetryError


class _Dispatched(NamedTuple):
    """What the path did. `failure` is raised once all else is done, and `is_untold` if no condition tells of
    it; `answer` is that of the probe, if one was made.
    """

    path: Path
    draft: StatusDraft
    judged: Judged = Judged()
    failure: _Failure | None = None
    answer: ProbeAnswer | None = None
    is_untold: bool = False


class BackendReconciler:
    """Passes over backends. `ask` None switches functional probes off."""

    name = "cachebackends"

    def __init__(
        self,
        means: Means,
        *,
        ask: Ask | None,
        keep_servers: KeepServers,
        count_engines: CountEngines,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._means = means
        self._ask = ask
        self._keep_servers = keep_servers
        self._count_engines = count_engines
        self._clock = clock
        self._windows = ProbeWindows()
        self._told_failures: dict[ObjectKey, str] = {}
        self._recorder = means.recorder(COMPONENT)

    def concerns(self, change: Change) -> tuple[ObjectKey, ...]:
        """[CTL-10]. What has a backend's name without being its own is in its way until it goes."""
        in_the_way = change.kind in (DEPLOYMENTS, SERVICES) and self._means.observed.get(
            CACHE_BACKENDS, change.key
        )
        return tuple({*backends_of(change), *((change.key,) if in_the_way else ())})

    async def reconcile(self, key: ObjectKey) -> float | None:
        """One pass; seconds until the next is wanted. Raises `KubeError` and `RetryError`."""
        document = await self._means.api.get(CACHE_BACKENDS, *key)
        if document is None or document["metadata"].get("deletionTimestamp"):
            # What is being deleted takes its objects along; they must not be made again meanwhile.
            self._windows.forget(str(key))
            self._told_failures.pop(key, None)
            return None
        backend = Backend(document)
        listed = await self._pods_of(backend)
        pods = None if listed is None else pods_about(backend, listed)
        # Servers of nodes need names, which any pod may have taken.
        failure = await self._server_failure(backend, listed if backend.topology == NODE_LOCAL else pods)
        done = await self._dispatch(backend, pods, failure)
        is_changed = done.draft.is_changed
        is_churning = self._count_engines(backend, pods, self._deployments_of(backend), done.draft)
        judge_connector(backend, pods, done.draft)
        await self._store(backend, done, must=is_changed)
        await self._tell_failure(key, backend, done)
        if done.failure is not None:
            raise done.failure
        return _wake_up(backend, done, is_churning=is_churning)

    async def _pods_of(self, backend: Backend) -> list[Document] | None:
        """Read from the API, not from what was watched [CTL-18]; None when that failed."""
        try:
            return (await self._means.api.list_all(PODS, backend.namespace)).items
        except KubeError as error:
            logger.warning("pods_not_listed", namespace=backend.namespace, error=str(error))
            return None

    def _deployments_of(self, backend: Backend) -> list[Document] | None:
        observed = self._means.observed
        if not observed.is_listed(DEPLOYMENTS):
            return None
        return observed.in_namespace(DEPLOYMENTS, backend.namespace)

    async def _dispatch(
        self, backend: Backend, pods: Sequence[Document] | None, failure: _Failure | None
    ) -> _Dispatched:
        """Bring the objects to what the path wants, and judge them. Raises nothing [CTL-15]."""
        path, now = choose_path(backend), self._clock()
        key = str(ObjectKey(backend.namespace, backend.name))
        if path is not Path.MANAGED:
            self._windows.forget(key)
        workload = Workload()
        try:
            if path is Path.MANAGED:
                workload = await apply_workload(backend, self._means)
            else:
                await delete_workload(backend, self._means)
        except (KubeError, RetryError) as error:
            draft = StatusDraft(backend, now, settled=False)
            return _Dispatched(path, draft, failure=error, is_untold=path is Path.MANAGED)
        problem = "" if workload.failure is None else str(workload.failure)
        found = Found(pods, workload.deployment, workload.service, problem)
        if self._ask is not None:
            found = found._replace(probe=ProbeState(self._windows.left_s(key, now)))
        draft = StatusDraft(backend, now, settled=workload.failure is None)
        judged = judge(backend, path, found, draft)
        answer = None
        if judged.wants_probe and self._ask is not None:
            answer = await self._ask(probe_request(backend))
            draft = StatusDraft(backend, now, settled=workload.failure is None)
            judged = judge(backend, path, found._replace(probe=ProbeState(answer=answer)), draft)
        return _Dispatched(path, draft, judged, workload.failure or failure, answer)

    async def _server_failure(self, backend: Backend, pods: Sequence[Document] | None) -> _Failure | None:
        """Why the server pods of nodes are not what they should be; their lack shows on the connector."""
        try:
            await self._keep_servers(backend, pods, self._clock())
        except (KubeError, RetryError) as error:
            return error
        return None

    async def _store(self, backend: Backend, done: _Dispatched, *, must: bool) -> None:
        """Store the status, and tell of what became different by it [CTL-19, CTL-20].

        Without `must` only what is refreshed with each pass may be different, and can wait for the next
        [CTL-16].
        """
        try:
            await self._means.writer.set_status(CACHE_BACKENDS, backend.document, done.draft.fields)
        except KubeError as error:
            if must:
                raise
            logger.warning("status_not_refreshed", backend=backend.name, error=str(error))
            return
        if isinstance(done.answer, ProbeResult):
            self._windows.consume(str(ObjectKey(backend.namespace, backend.name)), done.draft.now)
        for note in transitions(backend.status, done.draft.status):
            await self._recorder.record(backend.document, note)

    async def _tell_failure(self, key: ObjectKey, backend: Backend, done: _Dispatched) -> None:
        """Tell why there is no store where the status must not [CTL-48]: once, not with each attempt."""
        if done.failure is None or not done.is_untold:
            self._told_failures.pop(key, None)
            return
        verdict = unavailable(str(done.failure))
        if self._told_failures.get(key) == verdict.message:
            return
        if await self._recorder.record(backend.document, Note(WARNING, verdict.reason, verdict.message)):
            self._told_failures[key] = verdict.message


def _wake_up(backend: Backend, done: _Dispatched, *, is_churning: bool) -> float | None:
    """The earliest wish; None when nobody has one [CTL-17]."""
    wishes = [done.judged.wake_up_s]
    if done.path is Path.MANAGED:
        wishes.append(SNAPSHOT_S)
    if backend.match_labels or done.draft.get("matchedEnginePods") is not None:
        wishes.append(CHURN_S if is_churning else SNAPSHOT_S)
    return min((wish for wish in wishes if wish > 0), default=None)
