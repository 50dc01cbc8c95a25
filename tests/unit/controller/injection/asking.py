"""Asks the pod webhook as the API server would, without one."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

from inferencecache.controller.admission.reviews import AdmissionRequest, Allowed, Answer, Denied
from inferencecache.controller.injection import SidecarSettings, pod_webhook
from tests.support.engine_pods import SIDECAR_IMAGE

Document = dict[str, Any]
SIDECAR = SidecarSettings(image=SIDECAR_IMAGE)


def request_about(pod: Document) -> AdmissionRequest:
    """The question about a pod that is being created in team-a."""
    return AdmissionRequest(uid="1", operation="CREATE", namespace="team-a", object=pod)


def ask(pod: Document, *backends: Document, sidecar: SidecarSettings | None = None) -> Answer:
    """The answer, in a namespace with these backends; nothing that was handed over may be changed."""

    async def lookup(plural: str, namespace: str) -> list[Document]:
        assert plural == "cachebackends"
        return [b for b in backends if b["metadata"]["namespace"] == namespace]

    async def answer() -> Answer:
        return await pod_webhook(sidecar or SidecarSettings())(request_about(pod), lookup)

    before = copy.deepcopy((pod, backends))
    given = asyncio.run(answer())
    assert (pod, backends) == before
    return given


def wire(pod: Document, *backends: Document, sidecar: SidecarSettings | None = None) -> Document:
    """The pod as it comes out, which must be another one than came in."""
    answer = ask(pod, *backends, sidecar=sidecar)
    assert isinstance(answer, Allowed)
    assert answer.changed is not None, answer.message
    return answer.changed


def stay(pod: Document, *backends: Document, sidecar: SidecarSettings | None = None) -> str:
    """Why the pod stays as it is."""
    answer = ask(pod, *backends, sidecar=sidecar)
    assert isinstance(answer, Allowed)
    assert answer.changed is None
    return answer.message


def refusal(pod: Document, *backends: Document) -> Denied:
    """Why the pod is refused."""
    answer = ask(pod, *backends)
    assert isinstance(answer, Denied)
    return answer
