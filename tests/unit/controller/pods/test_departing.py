"""Engine pods that are gone, and what is appended about them [architecture 6]."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

import pytest
from prometheus_client import CollectorRegistry

from inferencecache.controller.kube.observed import Change
from inferencecache.controller.operating import Operating
from inferencecache.controller.pods import departing
from inferencecache.controller.pods.departing import Departing, departed
from inferencecache.controller.pods.work import pods_work
from inferencecache.core.kube.kinds import PODS, SERVICES, key_of
from inferencecache.core.log import Log, NotStoredError, PubAck
from inferencecache.schemas.layout import CurrentLayout, Layout
from inferencecache.schemas.records import AnyRecord, Gone, decode_batch
from tests.support.backend_passes import engine
from tests.support.backends import Document
from tests.support.waiting import eventually

ONE_PARTITION = CurrentLayout(generation=1, partitions=1)
TWO_PARTITIONS = CurrentLayout(generation=1, partitions=2)


def pod(uid: str = "p1", name: str = "e1", phase: str = "Running") -> Document:
    made = engine(name, phase=phase)
    made["metadata"]["uid"] = uid
    return made


def change(before: Document | None, after: Document | None) -> Change:
    return Change(PODS, key_of(before or after or {}), before, after)


def gone(uid: str = "p1", name: str = "e1") -> Gone:
    return Gone("ns-a", name, uid)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (pod(), None, [gone()]),
        (pod("p1"), pod("p2"), [gone("p1")]),
        (pod(), pod(phase="Failed"), [gone()]),
        (pod(), pod(phase="Succeeded"), [gone()]),
        (None, pod(phase="Failed"), [gone()]),
        (pod("p1"), pod("p2", phase="Failed"), [gone("p1"), gone("p2")]),
        (pod(phase="Failed"), None, [gone()]),
        (pod(phase="Failed"), pod(phase="Failed"), []),
        (pod(), pod(), []),
        (None, pod(), []),
    ],
)
def test_a_pod_is_gone_when_it_is_deleted_replaced_or_has_ended(
    before: Document | None, after: Document | None, expected: list[Gone]
) -> None:
    assert departed(change(before, after)) == expected


def test_a_pod_that_is_being_deleted_still_serves() -> None:
    leaving = pod()
    leaving["metadata"]["deletionTimestamp"] = "2026-03-01T11:59:00Z"
    assert departed(change(pod(), leaving)) == []


def test_only_engines_are_told_of_also_those_with_a_sidecar_of_their_own() -> None:
    bystander = pod() | {"spec": {"containers": [{"name": "web"}]}}
    bystander["metadata"] = bystander["metadata"] | {"annotations": {}}
    assert departed(change(bystander, None)) == []
    with_sidecar = bystander | {"spec": {"containers": [{"name": "x"}, {"name": "kvevent-subscriber"}]}}
    assert departed(change(with_sidecar, None)) == [gone()]
    assert departed(Change(SERVICES, key_of(pod()), pod(), None)) == []


# ---------------------------------------------------------------------------------------- appended


class PlayedLog:
    """Stores what it is given, unless its subject is in `refused`."""

    def __init__(self) -> None:
        self.stored: list[tuple[str, tuple[AnyRecord, ...]]] = []
        self.refused: dict[str, NotStoredError] = {}
        self.listeners: list[Callable[[], None]] = []

    def on_connected(self, listener: Callable[[], None]) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def reconnect(self) -> None:
        for listener in self.listeners:
            listener()

    @property
    def publisher(self) -> PlayedLog:
        return self

    async def publish(self, subject: str, payload: bytes, *, timeout_s: float) -> PubAck:
        if subject in self.refused:
            raise self.refused[subject]
        self.stored.append((subject, decode_batch(payload).batch.records))
        return PubAck("IC_EVENTS", len(self.stored))

    def refuse(self, subject: str, *, retryable: bool = True) -> None:
        self.refused[subject] = NotStoredError(subject, "played", retryable=retryable)

    @property
    def subjects(self) -> list[str]:
        return [subject for subject, _ in self.stored]


@asynccontextmanager
async def running(log: PlayedLog) -> AsyncIterator[Departing]:
    departing = Departing(cast("Log", log))
    task = asyncio.create_task(departing.run())
    yield departing
    task.cancel()


async def test_every_partition_of_every_generation_is_told() -> None:
    log = PlayedLog()
    async with running(log) as departing:
        departing.laid_out(CurrentLayout(generation=2, partitions=2, older=(Layout(1, 1),)))
        departing.changed(change(pod(), None))
        await eventually(lambda: len(log.stored) == 3)
    assert sorted(log.subjects) == ["ic.ev.1.0._.c", "ic.ev.2.0._.c", "ic.ev.2.1._.c"]
    assert {records for _, records in log.stored} == {(gone(),)}


async def test_a_generation_that_comes_later_is_told_of_recent_departures() -> None:
    log = PlayedLog()
    async with running(log) as departing:
        departing.changed(change(pod(), None))
        departing.laid_out(ONE_PARTITION)
        await eventually(lambda: log.subjects == ["ic.ev.1.0._.c"])
        departing.laid_out(CurrentLayout(generation=2, partitions=1, older=(Layout(1, 1),)))
        await eventually(lambda: log.subjects == ["ic.ev.1.0._.c", "ic.ev.2.0._.c"])


async def test_what_a_server_lost_with_its_power_is_appended_again_once_it_is_back() -> None:
    """The end of a stream may go although it was acknowledged [architecture 7, storage lost]."""
    log = PlayedLog()
    async with running(log) as departing:
        departing.laid_out(TWO_PARTITIONS)
        departing.changed(change(pod(), None))
        await eventually(lambda: len(log.stored) == 2)
        log.stored.clear()
        log.reconnect()
        await eventually(lambda: len(log.stored) == 2)
    assert sorted(log.stored) == [("ic.ev.1.0._.c", (gone(),)), ("ic.ev.1.1._.c", (gone(),))]
    await eventually(lambda: not log.listeners)


async def test_what_is_not_stored_is_appended_again_and_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(departing, "RETRY_S", 0.01)
    log = PlayedLog()
    log.refuse("ic.ev.1.0._.c")
    async with running(log) as telling:
        telling.laid_out(TWO_PARTITIONS)
        telling.changed(change(pod("p1", "e1"), None))
        await eventually(lambda: log.subjects == ["ic.ev.1.1._.c"])
        telling.changed(change(pod("p2", "e2"), None))
        await eventually(lambda: len(log.stored) == 2)
        log.refused.clear()
        await eventually(lambda: len(log.stored) == 3)
    assert log.stored[-1] == ("ic.ev.1.0._.c", (gone(), gone("p2", "e2")))


async def test_what_nothing_will_store_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(departing, "RETRY_S", 0.01)
    log = PlayedLog()
    log.refuse("ic.ev.1.0._.c")
    log.refuse("ic.ev.1.1._.c", retryable=False)
    async with running(log) as telling:
        telling.laid_out(TWO_PARTITIONS)
        telling.changed(change(pod(), None))
        telling.laid_out(CurrentLayout(generation=2, partitions=1))
        await eventually(lambda: log.subjects == ["ic.ev.2.0._.c"])
        log.refused.clear()
        telling.changed(change(pod("p2", "e2"), None))
        await eventually(lambda: len(log.stored) == 2)
    assert log.stored[-1] == ("ic.ev.2.0._.c", (gone("p2", "e2"),))


async def test_many_departures_at_once_share_messages() -> None:
    log = PlayedLog()
    async with running(log) as departing:
        departing.laid_out(ONE_PARTITION)
        for number in range(2500):
            departing.changed(change(pod(f"p{number}", f"e{number}"), None))
        await eventually(lambda: sum(len(records) for _, records in log.stored) == 2500)
    assert [len(records) for _, records in log.stored] == [1000, 1000, 500]


async def test_departures_that_cannot_be_stored_are_bounded_by_partition_and_the_oldest_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(departing, "RETRY_S", 0.01)
    monkeypatch.setattr(departing, "MOST_WAITING", 3)
    log = PlayedLog()
    log.refuse("ic.ev.1.0._.c")
    async with running(log) as telling:
        telling.laid_out(TWO_PARTITIONS)
        for number in range(5):
            telling.changed(change(pod(f"p{number}", f"e{number}"), None))
            telling.changed(change(pod(f"p{number}", f"e{number}"), None))
        assert telling.waiting == 3
        log.refused.clear()
        await eventually(lambda: telling.waiting == 0)
    kept = tuple(gone(f"p{number}", f"e{number}") for number in (2, 3, 4))
    assert [records for subject, records in log.stored if subject == "ic.ev.1.0._.c"] == [kept]


def test_how_many_departures_wait_is_on_the_controllers_page() -> None:
    registry = CollectorRegistry()
    means = SimpleNamespace(
        log=PlayedLog(),
        registry=registry,
        observed=SimpleNamespace(on_change=lambda _: None),
        on_layout=lambda laid_out: laid_out(ONE_PARTITION),
        recorder=lambda _: None,
    )
    pods_work(cast("Operating", means))
    size, limit = (
        registry.get_sample_value(f"inferencecache_controller_queue_{name}", {"queue": "departed_pods"})
        for name in ("size", "limit")
    )
    assert (size, limit) == (0, departing.MOST_WAITING)
