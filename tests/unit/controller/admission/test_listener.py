"""The listener: AdmissionReview over HTTPS. `tests/data/tls` holds two self-signed pairs for localhost."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import shutil
import ssl
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from inferencecache.controller.admission import AdmissionListener, AdmissionMetrics, listener
from inferencecache.controller.admission.reviews import (
    AdmissionRequest,
    Allowed,
    Answer,
    Cause,
    Denied,
    Document,
    Lookup,
    Webhook,
)
from inferencecache.controller.admission.webhooks import POD_WEBHOOK, RESOURCE_WEBHOOKS
from inferencecache.core.service import ListenError
from tests.support.waiting import eventually
from tests.support.webhooks import TLS_DATA, a_certificate

BACKENDS = next(entry for entry in RESOURCE_WEBHOOKS if entry.name == "vcachebackend.inferencecache.io")
CERTIFICATES = {name: (TLS_DATA / f"{name}.crt").read_text() for name in ("first", "second")}


class Served:
    """A listener whose webhooks give `answer`, which may be an error to raise."""

    def __init__(self, folder: Path) -> None:
        self.answer: Answer | Exception = Allowed()
        self.seen: list[AdmissionRequest] = []
        self.registry = CollectorRegistry()
        self.gate = asyncio.Event()
        self.gate.set()
        webhooks: dict[Any, Webhook] = {POD_WEBHOOK: self._webhook, BACKENDS: self._webhook}
        self.listener = AdmissionListener(
            ("127.0.0.1", 0),
            a_certificate(folder, "tls"),
            webhooks,
            self._lookup,
            AdmissionMetrics(self.registry),
            setting="--webhook-bind-address",
        )

    async def _webhook(self, request: AdmissionRequest, lookup: Lookup) -> Answer:
        self.seen.append(request)
        await self.gate.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def _lookup(self, plural: str, namespace: str) -> list[Document]:
        raise AssertionError("nothing is looked up here")

    async def ask(
        self,
        body: object,
        path: str = BACKENDS.path,
        *,
        media_type: str = "application/json",
        method: str = "POST",
    ) -> tuple[int, Any]:
        """Status and body of one answer, over a connection of its own."""
        trust = ssl.create_default_context(cadata="".join(CERTIFICATES.values()))
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session,
            session.request(
                method,
                f"https://127.0.0.1:{self.listener.port}{path}",
                data=io.BytesIO(data),
                headers={"Content-Type": media_type},
            ) as response,
        ):
            if response.status != 200:
                return response.status, await response.text()
            return response.status, await response.json()

    async def response(self, path: str = BACKENDS.path, **request: Any) -> Any:
        """The `response` part for a review of a CREATE."""
        status, review = await self.ask(a_review(**request), path)
        assert status == 200
        assert (review["apiVersion"], review["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
        assert review["response"].pop("uid") == "u-7"
        return review["response"]


def a_review(**request: Any) -> dict[str, Any]:
    made = {"uid": "u-7", "operation": "CREATE", "namespace": "n", "object": {"metadata": {"name": "x"}}}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": made | request}


def install(folder: Path, certificate: str, key: str, seconds_later: int = 0) -> None:
    """Put a pair in place with a file time of its own."""
    for name, source in (("tls.crt", f"{certificate}.crt"), ("tls.key", f"{key}.key")):
        shutil.copyfile(TLS_DATA / source, folder / name)
        os.utime(folder / name, (1_700_000_000 + seconds_later,) * 2)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    install(tmp_path, "first", "first")
    served = Served(tmp_path)
    await served.listener.start()
    yield served
    await served.listener.stop()


async def test_what_stays_as_it_is_is_allowed_without_a_patch(served: Served) -> None:
    assert await served.response() == {"allowed": True}
    served.answer = Allowed({"metadata": {"name": "x"}}, "nothing to do")
    assert await served.response() == {"allowed": True, "status": {"message": "nothing to do"}}


async def test_a_change_is_answered_as_a_patch(served: Served) -> None:
    served.answer = Allowed({"metadata": {"name": "x", "labels": {"a": "b"}}})
    answer = await served.response()
    assert answer.pop("patchType") == "JSONPatch"
    patch = json.loads(base64.b64decode(answer.pop("patch")))
    assert patch == [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]
    assert answer == {"allowed": True}


@pytest.mark.rule("ADM-08")
async def test_a_refusal_carries_code_reason_and_causes(served: Served) -> None:
    cause = Cause("FieldValueInvalid", "Invalid value: 0: low", "spec.x")
    served.answer = Denied(422, "Invalid", "all of it", (cause,))
    assert await served.response() == {
        "allowed": False,
        "status": {
            "status": "Failure",
            "code": 422,
            "reason": "Invalid",
            "message": "all of it",
            "details": {
                "name": "x",
                "group": "inferencecache.io",
                "kind": "CacheBackend",
                "causes": [
                    {
                        "reason": "FieldValueInvalid",
                        "message": "Invalid value: 0: low",
                        "field": "spec.x",
                    }
                ],
            },
        },
    }
    served.answer = Denied(403, "Forbidden", "no list")
    assert (await served.response())["status"] == {
        "status": "Failure",
        "code": 403,
        "reason": "Forbidden",
        "message": "no list",
    }


async def test_the_request_comes_through_with_both_objects(served: Served) -> None:
    await served.response(operation="UPDATE", oldObject={"spec": {}}, dryRun=True, userInfo={"username": "u"})
    (request,) = served.seen
    assert (request.operation, request.namespace, request.object_name) == ("UPDATE", "n", "x")
    assert request.old_object == {"spec": {}}


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        (b"", 400, "AdmissionReview"),
        (b"{", 400, "AdmissionReview"),
        (b"\xff\xfe", 400, "AdmissionReview"),
        (b"[" * 100_000, 400, "AdmissionReview"),
        ([], 400, "AdmissionReview"),
        ({}, 400, "apiVersion"),
        (a_review() | {"request": None}, 400, "request"),
        (a_review(uid=7), 400, "uid"),
        (a_review(object="text"), 400, "object"),
        (a_review() | {"kind": "Pod"}, 400, "Pod"),
        (a_review() | {"apiVersion": "admission.k8s.io/v1beta1"}, 400, "v1beta1"),
        (b" " * (8 * 2**20 + 1), 413, "bytes"),
    ],
)
async def test_a_body_that_holds_no_question_is_told_so(
    served: Served, body: object, status: int, told: str
) -> None:
    answered, text = await served.ask(body)
    assert answered == status
    assert told in text
    assert "Traceback" not in text
    assert await served.response() == {"allowed": True}, "and the next one is answered"


async def test_other_types_paths_and_methods_are_told_apart(served: Served) -> None:
    assert (await served.ask(a_review(), media_type="text/plain"))[0] == 415
    assert (await served.ask(a_review(), "/other"))[0] == 404
    assert (await served.ask(a_review(), method="PUT"))[0] == 405


async def test_a_body_that_does_not_come_is_not_waited_for(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "BODY_LIMIT_S", 0.05)
    trust = ssl.create_default_context(cadata=CERTIFICATES["first"])
    reader, writer = await asyncio.open_connection("127.0.0.1", served.listener.port, ssl=trust)
    headers = "Host: x\r\nContent-Type: application/json\r\nContent-Length: 9"
    writer.write(f"POST {BACKENDS.path} HTTP/1.1\r\n{headers}\r\n\r\n".encode())
    assert b" 408 " in await asyncio.wait_for(reader.readline(), 10)
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("sent", [b"", b"POST / HTTP/1.1\r\nHos"])
async def test_a_connection_without_a_request_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(listener, "IDLE_LIMIT_S", 0.05)
    install(tmp_path, "first", "first")
    served = Served(tmp_path)
    await served.listener.start()
    trust = ssl.create_default_context(cadata=CERTIFICATES["first"])
    reader, writer = await asyncio.open_connection("127.0.0.1", served.listener.port, ssl=trust)
    writer.write(sent)
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    await served.listener.stop()


@pytest.mark.rule("ADM-254")
@pytest.mark.parametrize("answer", [RuntimeError("secret"), Allowed({"metadata": object()})])
async def test_a_webhook_that_fails_refuses_or_lets_through_as_it_is_registered(
    served: Served, answer: Answer | Exception
) -> None:
    served.answer = answer
    with capture_logs() as logs:
        refused = await served.response()
        passed = await served.response(POD_WEBHOOK.path)
    assert (refused["allowed"], passed["allowed"]) == (False, True)
    assert (refused["status"]["code"], refused["status"]["reason"]) == (500, "InternalError")
    for one in (refused, passed):
        assert "failed" in one["status"]["message"]
        assert "secret" not in json.dumps(one)
        assert "patch" not in one
    assert [line["event"] for line in logs] == ["admission_failed"] * 2


async def test_answers_are_counted(served: Served) -> None:
    await served.response()
    served.answer = Denied(403, "Forbidden", "no")
    await served.response()
    await served.ask(b"{")
    for outcome in ("allowed", "denied", "malformed"):
        labels = {"webhook": BACKENDS.name, "outcome": outcome}
        assert served.registry.get_sample_value("inferencecache_admission_reviews_total", labels) == 1
    seconds = "inferencecache_admission_review_seconds_count"
    assert served.registry.get_sample_value(seconds, {"webhook": BACKENDS.name}) == 3


async def test_a_running_request_is_answered_before_the_stop(served: Served) -> None:
    served.gate.clear()
    running = asyncio.ensure_future(served.response())
    await eventually(lambda: served.seen)
    stopping = asyncio.ensure_future(served.listener.stop())
    await eventually(lambda: served.listener.port == 0)
    served.gate.set()
    assert await running == {"allowed": True}
    await stopping


async def test_a_taken_address_names_the_flag(served: Served, tmp_path: Path) -> None:
    second = Served(tmp_path)
    second.listener._address = ("127.0.0.1", served.listener.port)
    with pytest.raises(ListenError, match="--webhook-bind-address"):
        await second.listener.start()
    await second.listener.stop()


async def shown(port: int) -> str:
    """The certificate that a new handshake shows."""
    return await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))


async def test_the_next_handshake_shows_a_newer_certificate(served: Served, tmp_path: Path) -> None:
    port = served.listener.port
    assert await shown(port) == CERTIFICATES["first"]
    install(tmp_path, "second", "first", seconds_later=10)
    assert await shown(port) == CERTIFICATES["first"], "a pair that is half written"
    install(tmp_path, "second", "second", seconds_later=10)
    assert await shown(port) == CERTIFICATES["second"]
    assert await served.response() == {"allowed": True}
    install(tmp_path, "first", "first", seconds_later=20)
    assert await shown(port) == CERTIFICATES["first"]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
async def test_old_versions_of_tls_are_not_spoken(served: Served, version: ssl.TLSVersion) -> None:
    context = ssl.create_default_context(cadata=CERTIFICATES["first"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = version
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.open_connection("127.0.0.1", served.listener.port, ssl=context)


async def test_plaintext_is_not_answered(served: Served) -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            await session.post(f"http://127.0.0.1:{served.listener.port}{BACKENDS.path}", json=a_review())
