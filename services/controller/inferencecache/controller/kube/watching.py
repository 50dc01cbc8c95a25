"""Keeping `observed` in line with the cluster: watches that tell of changes, listings that miss nothing.

Kopf watches; it lists and watches every kind, comes back after any failure, and calls a handler for each
event. It runs in a thread with an event loop of its own, because when it ends it cancels every task of
its loop. Its handlers are of the one sort that writes nothing to anybody's object.

Kopf does not say when it has listed everything, nor what vanished while it could not watch. So each kind
is listed here too: at the start, from time to time, and whenever kopf had to list again. Nor does it
notice soon that its connections lead nowhere, or look again for a kind that it did not find when it
started. So it is started again when the API answers that did not for a while, and when it leaves out a
kind that can be listed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, repeat
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import aiohttp
import kopf

from inferencecache.controller.kube.observed import Observed
from inferencecache.controller.kube.returning import returned
from inferencecache.controller.kube.slimming import slimmed
from inferencecache.controller.kube.sockets import Sockets
from inferencecache.core.kube.access import ClusterAccess
from inferencecache.core.kube.api import KubeApi, KubeError, Listing, RefusedCallError
from inferencecache.core.kube.kinds import Document, ObjectKind
from inferencecache.core.service import get_logger

RESYNC_S: Final = 300.0
_RETRY_S: Final = 5.0
_RESTART_S: Final = 1.0
_START_LIMIT_S: Final = 30.0
"""Within this, kopf has listed every kind that can be listed."""
_END_LIMIT_S: Final = 5.0
_PAGE: Final = 200

_T = TypeVar("_T")

logger = get_logger("watching")


class Watching:
    """Watches the kinds of `observed` for as long as `run` runs."""

    def __init__(
        self, access: ClusterAccess, api: KubeApi, observed: Observed, *, resync_s: float = RESYNC_S
    ) -> None:
        self._access = access
        self._api = api
        self._observed = observed
        self._resync_s = resync_s
        self._relist = {kind: asyncio.Event() for kind in observed.kinds}
        self._failing: dict[ObjectKind, bool] = {}
        """Kinds that could not be listed last time, and whether the API has no such kind."""
        self._watched: set[ObjectKind] = set()
        """Kinds that kopf has listed since it was started."""
        self._restart = asyncio.Event()

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_kopf_running())
            group.create_task(self._notice_returns())
            for kind in self._observed.kinds:
                group.create_task(self._keep_listed(kind))

    async def _keep_listed(self, kind: ObjectKind) -> None:
        relist = self._relist[kind]
        while True:
            wait_s = self._resync_s if await self._list(kind) else _RETRY_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await relist.wait()
            relist.clear()

    async def _list(self, kind: ObjectKind) -> bool:
        """List a kind; false when that has to be tried again soon."""
        try:
            listing = await self._api.list_kept(kind, slimmed)
        except KubeError as error:
            is_missing = isinstance(error, RefusedCallError) and error.is_missing
            if kind not in self._failing:
                logger.warning("list_failed", kind=kind.name, error=str(error), retry_s=_RETRY_S)
            self._failing[kind] = is_missing
            if is_missing:
                self._observed.all_seen(kind, Listing([], "0"))
            return False
        if self._failing.pop(kind, False):  # kopf looks for kinds only when it starts
            self._restart.set()
        self._observed.all_seen(kind, listing)
        return True

    # -- kopf --------------------------------------------------------------------------------------

    async def _keep_kopf_running(self) -> None:
        while True:
            self._restart.clear()
            self._watched.clear()
            ended = asyncio.Event()
            stop = threading.Event()
            loop = asyncio.get_running_loop()
            thread = threading.Thread(
                target=self._run_kopf, args=(loop, stop, ended), name="kopf", daemon=True
            )
            thread.start()
            check = asyncio.ensure_future(self._notice_kinds_left_out())
            try:
                await _first_of(ended, self._restart)
            finally:
                check.cancel()
                stop.set()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_END_LIMIT_S):
                        await asyncio.shield(ended.wait())
            for relist in self._relist.values():
                relist.set()
            await asyncio.sleep(_RESTART_S)

    async def _notice_returns(self) -> None:
        while True:
            await returned(self._api)
            logger.info("api_returned")
            self._restart.set()

    async def _notice_kinds_left_out(self) -> None:
        while True:
            await asyncio.sleep(_START_LIMIT_S)
            left_out = set(self._observed.kinds) - self._watched - self._failing.keys()
            if left_out:
                logger.warning("watch_left_out", kinds=sorted(kind.name for kind in left_out))
                self._restart.set()

    def _run_kopf(self, loop: asyncio.AbstractEventLoop, stop: threading.Event, ended: asyncio.Event) -> None:
        """In the thread: watch until `stop`, or until kopf gives up."""
        # It tells of each attempt to reach the server; the listings tell of what cannot be reached once.
        logging.getLogger("kopf").setLevel(logging.CRITICAL)
        sockets = Sockets()
        registry = self._registry(loop, stop, sockets)
        try:
            with asyncio.Runner() as runner:
                runner.get_loop().set_task_factory(partial(_task, stop))
                try:
                    runner.run(
                        kopf.operator(
                            registry=registry,
                            settings=_settings(),
                            clusterwide=True,
                            standalone=True,
                            stop_flag=stop,
                        )
                    )
                finally:
                    stop.set()  # a thread of the runner's waits for it, and the runner for the thread
                    runner.run(sockets.end())
        except Exception as error:  # noqa: BLE001 - whatever it gave up for, it is started again
            logger.warning("watch_ended", msg=str(error) or type(error).__name__)
        finally:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(ended.set)

    def _registry(
        self, loop: asyncio.AbstractEventLoop, stop: threading.Event, sockets: Sockets
    ) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        access = self._access
        trace = aiohttp.TraceConfig()
        root = urlsplit(access.server).path
        by_path = {root + kind.path(): kind for kind in self._observed.kinds}

        async def answered(_session: object, _context: object, call: aiohttp.TraceRequestEndParams) -> None:
            kind = by_path.get(call.url.path)
            if kind is None or call.url.query.keys() & {"watch", "continue"}:
                return
            if call.response.ok and not stop.is_set():
                loop.call_soon_threadsafe(self._kopf_lists, kind)

        trace.on_request_end.append(answered)

        @kopf.on.login(registry=registry, id="access")
        async def login(**_: Any) -> kopf.AiohttpSession:
            session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=access.tls or False, limit=0, socket_factory=sockets.make),
                headers=access.headers,
                trace_configs=[trace],
            )
            return kopf.AiohttpSession(server=access.server, aiohttp_session=session)

        for kind in self._observed.kinds:
            self._watch(registry, kind, loop, stop)
        return registry

    def _watch(
        self,
        registry: kopf.OperatorRegistry,
        kind: ObjectKind,
        loop: asyncio.AbstractEventLoop,
        stop: threading.Event,
    ) -> None:
        @kopf.on.event(kind.group, kind.version, kind.plural, registry=registry, id=kind.plural)
        async def seen(event: Mapping[str, Any], **_: Any) -> None:
            if not stop.is_set():
                loop.call_soon_threadsafe(self._take, kind, event["type"], event["object"])

    def _take(self, kind: ObjectKind, type_: str | None, document: Document) -> None:
        if type_ == "DELETED":
            self._observed.gone(kind, document)
            return
        self._observed.seen(kind, document)

    def _kopf_lists(self, kind: ObjectKind) -> None:
        """It will watch from this moment on; the next listing shows what was gone before."""
        self._watched.add(kind)
        self._relist[kind].set()


class _NoMemory(kopf.DiffBaseStorage):
    """Kopf compares an object with what it noted on it before; nothing is noted and nothing compared."""

    def build(self, *, body: Any, extra_fields: Iterable[Any] | None = None) -> Any:
        return {}

    def fetch(self, *, body: Any) -> Any:
        return None

    def store(self, *, body: Any, patch: Any, essence: Any) -> None:
        """Never asked for: no handler here keeps state."""


class _Backoffs:
    """Seconds between attempts, without end: a server that starts refuses for a while what it will allow."""

    def __iter__(self) -> Iterator[float]:
        return chain((0.2, 0.5, 1.0), repeat(2.0))


def _task(
    stop: threading.Event,
    loop: asyncio.AbstractEventLoop,
    coroutine: Coroutine[Any, Any, _T],
    **settings: Any,
) -> asyncio.Task[_T]:
    """A task of kopf's. It would go on without one of its watches that failed, so a failure ends it all;
    those of tasks without a name, which open connections, are seen to by whoever asked for one.
    """
    task = asyncio.Task(coroutine, loop=loop, **settings)

    def ended(task: asyncio.Task[_T]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not task.get_name().startswith("Task-"):
            logger.warning("watch_failed", error=type(error).__name__, msg=str(error))
            stop.set()

    task.add_done_callback(ended)
    return task


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.persistence.diffbase_storage = _NoMemory()
    settings.process.ultimate_exiting_timeout = None
    settings.networking.request_timeout = 30.0
    settings.networking.connect_timeout = 5.0
    settings.networking.error_backoffs = _Backoffs()
    settings.queueing.exit_timeout = 0.5
    settings.watching.chunk_size = _PAGE
    return settings


async def _first_of(*events: asyncio.Event) -> None:
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()
