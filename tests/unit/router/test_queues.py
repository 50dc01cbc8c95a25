"""What waits in a router is bounded, and how much waits is on its metrics page."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from inferencecache.core.log import PubAck
from inferencecache.router import ingest
from inferencecache.router.calls import CallError
from inferencecache.router.ingest import Ingest
from inferencecache.router.metrics import ServerMetrics
from inferencecache.router.servicer import Servicer
from inferencecache.router.tokenizing import Tokenizing
from inferencecache.v1alpha1.inferencecache_pb2 import Ack, CacheEvent
from tests.support.router import FoldedLog
from tests.support.waiting import eventually


class StalledLog(FoldedLog):
    """Stores nothing before it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = asyncio.Event()

    async def publish(
        self, subject: str, payload: bytes, *, msg_id: str = "", timeout_s: float = 5.0
    ) -> PubAck:
        await self.goes_on.wait()
        return await super().publish(subject, payload, msg_id=msg_id, timeout_s=timeout_s)


def event() -> CacheEvent:
    return CacheEvent(type=CacheEvent.ALL_CLEARED, tenant_id="t", model_id="m", replica_id="r" * 100)


async def test_reports_are_refused_while_too_much_waits_for_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    size = event().ByteSize()
    monkeypatch.setattr(ingest, "MOST_WAITING_BYTES", 3 * size)
    log = StalledLog()
    taking = Ingest(log, log)
    waiting = [asyncio.create_task(taking.publish(event())) for _ in range(3)]
    await eventually(lambda: taking.waiting_bytes == 3 * size)
    with pytest.raises(CallError, match="report later"):
        await taking.publish(event())
    log.goes_on.set()
    assert await asyncio.gather(*waiting) == [Ack(accepted=True)] * 3
    assert taking.waiting_bytes == 0
    assert await taking.publish(event()) == Ack(accepted=True)


async def test_a_report_is_taken_when_nothing_else_waits_whatever_its_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ingest, "MOST_WAITING_BYTES", 1)
    log = FoldedLog()
    assert await Ingest(log, log).publish(event()) == Ack(accepted=True)


async def test_every_queue_of_a_router_is_on_its_page() -> None:
    registry, log = CollectorRegistry(), FoldedLog()
    Servicer(log, registry, ServerMetrics(registry), Tokenizing({}), 16)
    families = {family.name: family for family in registry.collect()}
    for name in ("size", "limit"):
        samples = families[f"inferencecache_router_queue_{name}"].samples
        assert {sample.labels["queue"] for sample in samples} == {
            "reports_bytes",
            "listener_bytes",
            "credits_accesses",
            "tokenizing_texts",
            "nats_questions",
        }
    assert all(sample.value > 0 for sample in families["inferencecache_router_queue_limit"].samples)
