"""When kopf is started again, with a thread in its place that does as told."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import cast

import pytest

from inferencecache.controller.kube import watching as module
from inferencecache.controller.kube.observed import Observed
from inferencecache.controller.kube.watching import Watching
from inferencecache.core.kube.access import ClusterAccess
from inferencecache.core.kube.api import KubeApi, Listing
from inferencecache.core.kube.kinds import PODS, SERVICES, ObjectKind
from tests.support.waiting import set_within

KINDS = (PODS, SERVICES)


class Empty:
    """A server that has nothing, of every kind."""

    async def list_kept(self, kind: ObjectKind, keep: object) -> Listing:
        return Listing([], "1")

    async def is_ready(self, limit_s: float) -> bool:
        return True


class Played(Watching):
    """Each time that kopf is started, it finds the next of the given kinds."""

    def __init__(self, *found: tuple[ObjectKind, ...]) -> None:
        access = ClusterAccess("https://127.0.0.1:1", None)
        super().__init__(access, cast("KubeApi", Empty()), Observed(KINDS))
        self._found = list(found)
        self.all_but_one, self.all = asyncio.Event(), asyncio.Event()

    def _run_kopf(self, loop: asyncio.AbstractEventLoop, stop: threading.Event, ended: asyncio.Event) -> None:
        for kind in self._found.pop(0):
            loop.call_soon_threadsafe(self._kopf_lists, kind)
        if len(self._found) < 2:
            loop.call_soon_threadsafe((self.all_but_one if self._found else self.all).set)
        stop.wait()
        loop.call_soon_threadsafe(ended.set)


async def test_kopf_starts_again_while_it_leaves_out_a_kind_and_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_START_LIMIT_S", 0.2)
    monkeypatch.setattr(module, "_RESTART_S", 0.0)
    played = Played((PODS,), (SERVICES,), KINDS, KINDS)
    running = asyncio.ensure_future(played.run())
    await asyncio.wait_for(played.all_but_one.wait(), 10.0)
    assert not await set_within(played.all, 1.0)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
