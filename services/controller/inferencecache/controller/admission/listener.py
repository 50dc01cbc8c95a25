"""The HTTPS side of the webhooks: AdmissionReview v1 in, AdmissionReview v1 out.

Whatever happens, a peer gets an answer that the API server understands and never a stack trace. What a
webhook that is registered to fail open cannot decide is allowed; every other one refuses then.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec
from aiohttp import web

from inferencecache.controller.admission.metrics import AdmissionMetrics, Outcome
from inferencecache.controller.admission.patches import patch_between
from inferencecache.controller.admission.reviews import (
    AdmissionRequest,
    Allowed,
    Answer,
    Cause,
    Denied,
    Lookup,
    Webhook,
)
from inferencecache.controller.admission.tls import tls_context
from inferencecache.controller.admission.webhooks import WebhookEntry
from inferencecache.core.service import CertificateFiles, ListenError, get_logger
from inferencecache.schemas.unreadable import UNREADABLE

MAX_BODY_BYTES: Final = 8 * 2**20
"""An object has at most 3 MiB, and an update carries two of them."""
BODY_LIMIT_S: Final = 5.0
HANDSHAKE_LIMIT_S: Final = 5.0
IDLE_LIMIT_S: Final = 120.0
"""For the head of a request too. The API server leaves idle connections first, after 90 s, so that no
request of its meets a connection that is being closed.
"""
STOP_LIMIT_S: Final = 5.0
_API_VERSION: Final = "admission.k8s.io/v1"
_KIND: Final = "AdmissionReview"

log = get_logger("admission")


class AdmissionReview(msgspec.Struct, frozen=True, rename="camel"):
    """The envelope as it comes in."""

    api_version: str
    kind: str
    request: AdmissionRequest


_decoder: Final = msgspec.json.Decoder(AdmissionReview)


class AdmissionListener:
    """Serves each webhook at its entry's path. `setting` is the flag that a failure to listen names."""

    def __init__(
        self,
        address: tuple[str, int],
        certificate: CertificateFiles,
        webhooks: Mapping[WebhookEntry, Webhook],
        lookup: Lookup,
        metrics: AdmissionMetrics,
        *,
        setting: str,
    ) -> None:
        self._address = address
        self._tls = tls_context(certificate)
        self._lookup = lookup
        self._metrics = metrics
        self._setting = setting
        application = web.Application(client_max_size=MAX_BODY_BYTES)
        for entry, webhook in webhooks.items():
            application.router.add_post(entry.path, self._serve(entry, webhook))
        self._runner = web.AppRunner(
            application, access_log=None, keepalive_timeout=IDLE_LIMIT_S, shutdown_timeout=STOP_LIMIT_S
        )
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The port that is served, also when the system chose it; 0 before the start."""
        if self._server is None:
            return 0
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        """Listen. Raises ListenError when the address cannot be had."""
        await self._runner.setup()
        host, port = self._address
        try:
            self._server = await asyncio.get_running_loop().create_server(
                self._runner.server,  # type: ignore[arg-type] # set by setup()
                host,
                port,
                ssl=self._tls,
                ssl_handshake_timeout=HANDSHAKE_LIMIT_S,
            )
        except OSError as error:
            raise ListenError(self._setting, host, port, error.strerror or str(error)) from error

    async def stop(self) -> None:
        """Accept no more, give running requests 5 s."""
        if self._server is not None:
            self._server.close()
            self._server = None
        await self._runner.cleanup()

    def _serve(
        self, entry: WebhookEntry, webhook: Webhook
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def serve(request: web.Request) -> web.StreamResponse:
            began = time.perf_counter()
            try:
                review = await _read(request)
            except _NoReviewError as error:
                self._metrics.told(entry.name, "malformed", time.perf_counter() - began)
                return web.Response(status=error.status, text=f"{error}\n")
            outcome, body = await self._answer(entry, webhook, review.request)
            self._metrics.told(entry.name, outcome, time.perf_counter() - began)
            return web.Response(body=body, content_type="application/json")

        return serve

    async def _answer(
        self, entry: WebhookEntry, webhook: Webhook, request: AdmissionRequest
    ) -> tuple[Outcome, bytes]:
        answer: Answer
        try:
            answer = await webhook(request, self._lookup)
            body = encoded(entry, request, answer)
        except Exception as error:
            namespace, name = request.namespace, request.object_name
            log.exception("admission_failed", webhook=entry.name, namespace=namespace, name=name)
            message = f"the webhook failed ({type(error).__name__}); its log says more"
            answer = Allowed(message=message) if entry.fails_open else Denied(500, "InternalError", message)
            body = encoded(entry, request, answer)
        return "allowed" if isinstance(answer, Allowed) else "denied", body


class _NoReviewError(Exception):
    """A body that holds no question. The API server treats the status as if nobody had answered."""

    def __init__(self, status: HTTPStatus, problem: str) -> None:
        super().__init__(problem)
        self.status = status


async def _read(request: web.Request) -> AdmissionReview:
    if request.content_type != "application/json":
        raise _NoReviewError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send application/json")
    try:
        async with asyncio.timeout(BODY_LIMIT_S):
            body = await request.read()
        review = _decoder.decode(body)
    except web.HTTPRequestEntityTooLarge:
        problem = f"the body has more than {MAX_BODY_BYTES} bytes"
        raise _NoReviewError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, problem) from None
    except TimeoutError:
        raise _NoReviewError(HTTPStatus.REQUEST_TIMEOUT, "the body did not come in time") from None
    except UNREADABLE as error:
        problem = f"the body is no {_KIND} of {_API_VERSION}: {error}"
        raise _NoReviewError(HTTPStatus.BAD_REQUEST, problem) from None
    if (review.api_version, review.kind) != (_API_VERSION, _KIND):
        problem = f"the body is {review.kind} of {review.api_version}; send {_KIND} of {_API_VERSION}"
        raise _NoReviewError(HTTPStatus.BAD_REQUEST, problem)
    return review


def encoded(entry: WebhookEntry, request: AdmissionRequest, answer: Answer) -> bytes:
    """The answer as the API server reads it. Raises TypeError or ValueError for a change that is no JSON."""
    response: dict[str, Any] = {"uid": request.uid, "allowed": isinstance(answer, Allowed)}
    match answer:
        case Allowed(changed, message):
            if message:
                response["status"] = {"message": message}
            if changed is not None and (patch := patch_between(request.object or {}, changed)):
                response["patchType"] = "JSONPatch"
                response["patch"] = base64.b64encode(msgspec.json.encode(patch)).decode()
        case Denied(code, reason, message, causes):
            status = {"status": "Failure", "code": code, "reason": reason, "message": message}
            response["status"] = status | _details(entry, request, causes)
    return msgspec.json.encode({"apiVersion": _API_VERSION, "kind": _KIND, "response": response})


def _details(entry: WebhookEntry, request: AdmissionRequest, causes: Sequence[Cause]) -> dict[str, Any]:
    if not causes:
        return {}
    told = [cause._asdict() for cause in causes]
    return {
        "details": {"name": request.object_name, "group": entry.group, "kind": entry.kind, "causes": told}
    }
