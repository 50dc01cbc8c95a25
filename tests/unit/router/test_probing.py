"""The functional self-test, over a log that is folded as soon as it is written."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any, cast

import msgspec
import pytest

from inferencecache.cli.running import in_background
from inferencecache.core.index import probe as probe_module
from inferencecache.core.index.probe import Probe
from inferencecache.core.index.ranking import Score
from inferencecache.core.index.reason import Reason
from inferencecache.core.index.routing import NO_MATCH, Outcome
from inferencecache.core.log import PubAck
from inferencecache.core.log.connection import Callback
from inferencecache.core.log.subjects import parse_subject
from inferencecache.router.answering import MOST_AT_ONCE
from inferencecache.router.probing import MOST_BYTES, Probing
from inferencecache.schemas.ids import PROBE_TENANT, HashScheme, ModelId, ReplicaId
from inferencecache.schemas.layout import Layout
from inferencecache.schemas.policy import ResolvedPolicy
from inferencecache.schemas.records import Batch, Cleared, Stats, Stored, encode_batch
from inferencecache.schemas.requests import ProbeFailure, ProbeRequest, ProbeResult
from tests.support.played import Arrived
from tests.support.router import FoldedLog
from tests.support.waiting import a_turn, eventually

REQUEST = ProbeRequest("ns/cache", ModelId("functional-self-test"), HashScheme("vllm"), "vLLM")
OK = ProbeResult("id", "ns/cache", "ok", "ok", "skipped")


async def ask(log: FoldedLog, payload: bytes = msgspec.json.encode(REQUEST), **more: Any) -> ProbeResult:
    async with Probing("id", log, **more).probed(payload) as result:
        return result


def holds(log: FoldedLog) -> bool:
    return any(fold.view.has_tenant(PROBE_TENANT) for fold in log.folds)


@pytest.mark.rule("CTL-W14", "CTL-133")
def test_the_hash_of_a_probe_is_that_of_the_contract() -> None:
    def hash_of(scheme: str) -> str:
        return Probe("ns-a/cache", ModelId("functional-self-test"), HashScheme(scheme)).hash.hex()

    assert hash_of("vllm") == "347a642bd4964ba1560958f8690c4793524b35cae1b0b159fa519d502646a1f0"
    assert hash_of("sglang") == "01cd69cdf859f03735a5e1476fcc241f2dc285d6e02d878a77bedefbbc9fe0f6"


@pytest.mark.rule(
    "WIRE-041", "WIRE-049", "IDX-187", "IDX-190", "IDX-191", "CTL-133", "CTL-134", "CTL-136", "CTL-137"
)
async def test_a_probe_goes_through_the_log_is_found_and_leaves_nothing() -> None:
    log = FoldedLog()
    async with Probing("id", log).probed(msgspec.json.encode(REQUEST)) as result:
        assert result == OK
        assert holds(log)
        assert all(fold.view.is_empty() for fold in log.folds), "probe keys do not count"
    assert not holds(log)
    about = [(subject, record) for subject, batch in log.messages for record in batch.records][-3:]
    (subject,) = {subject for subject, _ in about}
    assert subject.endswith(".__probe-ns/cache.g")
    stored, stats, cleared = [record for _, record in about]
    assert isinstance(stored, Stored)
    assert (stored.width, stored.token_counts) == (hashlib.sha256().digest_size, b"\x10\0\0\0")
    assert stats == Stats(hit_rate=1.0)
    assert cleared == Cleared()


@pytest.mark.rule("IDX-143")
async def test_floors_and_gates_never_fail_a_probe() -> None:
    log = FoldedLog()
    log.apply(ResolvedPolicy(PROBE_TENANT, minimum_matched_tokens=1000, require_chain=True))
    assert await ask(log) == OK


async def test_an_empty_request_asks_who_answers() -> None:
    log = FoldedLog()
    before = len(log.messages)
    assert await ask(log, b"") == ProbeResult("id")
    assert len(log.messages) == before


@pytest.mark.parametrize(
    "payload",
    [
        b"{",
        b"[]",
        b"{}",
        b'{"backend": "b", "model": "m", "hashScheme": ""}',
        b'{"backend": "b", "model": "m", "hashScheme": "s", "more": 1}',
        b'{"backend": "b", "model": "m", "hashScheme": "s"} 1',
        b'{"backend": "b", "model": "m", "hashScheme": "' + b"s" * MOST_BYTES + b'"}',
        b'{"backend": "\xff"}',
        b"[" * 4000,
    ],
)
async def test_a_request_that_cannot_be_read_says_why_and_stores_nothing(payload: bytes) -> None:
    log = FoldedLog()
    before = len(log.messages)
    result = await ask(log, payload)
    (failure,) = result.errors
    assert failure.stage == "request"
    assert msgspec.structs.replace(result, errors=()) == ProbeResult("id")
    assert len(log.messages) == before


async def test_a_log_that_does_not_store_fails_the_stage_ingest() -> None:
    log = FoldedLog()
    log.is_storing = False
    result = await ask(log)
    assert (result.ingest, result.routing, result.t2) == ("failed", "skipped", "skipped")
    assert result.errors[0].stage == "ingest"
    assert "did not take the record" in result.errors[0].message
    long = msgspec.structs.replace(REQUEST, backend="b" * 300)
    result = await ask(FoldedLog(), msgspec.json.encode(long))
    assert (result.backend, result.ingest) == (long.backend, "failed")
    unreached: Any = FoldedLog()
    unreached.layout = None
    assert (await ask(unreached)).ingest == "failed"


class Stuck(FoldedLog):
    """A log that can be made to store what is never folded."""

    is_folding = True

    def append(self, subject: str, payload: bytes) -> PubAck:
        return super().append(subject, payload) if self.is_folding else PubAck("IC_EVENTS", 99)


async def test_a_record_that_does_not_come_back_fails_the_stage_ingest() -> None:
    log = Stuck()
    log.is_folding = False
    result = await ask(log, wait_s=0.02)
    assert (result.ingest, result.routing, result.t2) == ("failed", "skipped", "skipped")
    assert "did not come back within 0.02 s: it was number 99" in result.errors[0].message


async def test_what_another_probe_has_stored_proves_nothing() -> None:
    log = Stuck()
    async with Probing("other", log).probed(msgspec.json.encode(REQUEST)) as other:
        assert other.ingest == "ok"
        log.is_folding = False
        assert holds(log)
        assert (await ask(log, wait_s=0.02)).ingest == "failed"


class Cleared1st(FoldedLog):
    """A log in which somebody clears the first block at once."""

    blocks = 0

    def append(self, subject: str, payload: bytes) -> PubAck:
        ack = super().append(subject, payload)
        if self.blocks == 0 and holds(self):
            self.blocks += 1
            return super().append(subject, encode_batch(Batch(records=(Cleared(),))))
        return ack


async def test_a_block_that_another_probe_clears_is_appended_again() -> None:
    log = Cleared1st()
    assert await ask(log) == OK
    assert log.blocks == 1


@pytest.mark.rule("CTL-135")
@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        (NO_MATCH, "got NO_HINT"),
        (
            Outcome(Reason.PREFIX_MATCH, (Score(ReplicaId("r9")),)),
            "got PREFIX_MATCH without __probe-ns/cache",
        ),
    ],
)
async def test_a_lookup_that_misses_the_probe_fails_the_stage_routing(
    monkeypatch: pytest.MonkeyPatch, outcome: Outcome, message: str
) -> None:
    monkeypatch.setattr(probe_module, "look_up", lambda *_: outcome)
    log = FoldedLog()
    result = await ask(log)
    assert (result.ingest, result.routing, result.t2) == ("ok", "failed", "skipped")
    assert result.errors == (ProbeFailure("routing", message),)
    assert not holds(log)


@pytest.mark.rule("CTL-137")
async def test_equal_probes_wait_for_one_another_and_others_do_not() -> None:
    log = FoldedLog()
    probing = Probing("id", log)
    other = msgspec.json.encode(msgspec.structs.replace(REQUEST, backend="ns/other"))
    async with probing.probed(msgspec.json.encode(REQUEST)) as first:
        assert first == OK

        async def again() -> ProbeResult:
            async with probing.probed(msgspec.json.encode(REQUEST)) as result:
                return result

        waiting = asyncio.create_task(again())
        async with probing.probed(other) as beside:
            assert beside.routing == "ok"
        assert not waiting.done()
    assert await waiting == OK


class Requests:
    """The NATS side of a router, on which the test asks; `answered` are the replies, in order."""

    def __init__(self) -> None:
        self.is_served = asyncio.Event()
        self.answered: list[str] = []
        self._asked: Callback = lambda _: None

    async def subscribe(self, _: str, asked: Callback, **__: str) -> Requests:
        self._asked = asked
        self.is_served.set()
        return self

    async def cancel(self) -> None:
        pass

    async def send(self, subject: str, _: bytes) -> bool:
        self.answered.append(subject)
        return True

    def ask(self, reply: str) -> None:
        request = msgspec.structs.replace(REQUEST, backend=f"ns/{reply}")
        self._asked(Arrived(reply=reply, data=msgspec.json.encode(request)))


async def test_a_probe_that_nobody_waits_for_stores_nothing() -> None:
    log, requests = FoldedLog(), Requests()
    before = len(log.messages)
    async with in_background(Probing("id", log).serve(cast("Any", requests))):
        await requests.is_served.wait()
        requests.ask("")
        requests.ask("first")
        await eventually(lambda: requests.answered == ["first"])
    assert {subject.rsplit(".", 2)[1] for subject, _ in log.messages[before:]} == {"__probe-ns/first"}


async def test_more_probes_at_once_than_are_bearable_are_not_begun() -> None:
    log, requests = Stuck(), Requests()
    log.is_folding = False
    async with in_background(Probing("id", log, wait_s=0.02).serve(cast("Any", requests))):
        await requests.is_served.wait()
        for number in range(MOST_AT_ONCE + 1):
            requests.ask(str(number))
        await eventually(lambda: len(requests.answered) == MOST_AT_ONCE)
        await a_turn()
        requests.ask("later")
        await eventually(lambda: len(requests.answered) > MOST_AT_ONCE)
    assert sorted(requests.answered) == sorted([*map(str, range(MOST_AT_ONCE)), "later"])


async def test_a_probe_that_a_change_of_the_layout_overtakes_goes_through_the_new_generation() -> None:
    class Moving(FoldedLog):
        async def publish(self, subject: str, payload: bytes, **more: Any) -> PubAck:
            ack = await super().publish(subject, payload, **more)
            if self.layout.generation == 1:
                self.move(Layout(2, 1))
            return ack

    log = Moving(Layout(1, 5))
    assert await ask(log) == OK
    generations = [parse_subject(subject)[0] for subject, batch in log.messages if batch.records[1:]]
    assert generations == [1, 2]
