"""The webhook for pods: wires engines at their creation, which is the only chance to do so [ADM-126].

Whatever it does not understand or cannot do, the pod is admitted as it is, without marks that others
would believe, and the answer says why. It refuses one thing only: a pod that several backends claim.
"""

from __future__ import annotations

from typing import Final

from inferencecache.controller.admission.reviews import (
    AdmissionRequest,
    Allowed,
    Answer,
    Document,
    Lookup,
    LookupFailedError,
    Webhook,
    forbidden,
)
from inferencecache.controller.injection.marks import stamp_skipped, strip_marks
from inferencecache.controller.injection.opt_out import SKIP_INJECT, opts_out
from inferencecache.controller.injection.pods import metadata_of, problem_of
from inferencecache.controller.injection.refusals import NotWiredError
from inferencecache.controller.injection.subscriber import SidecarSettings
from inferencecache.controller.injection.wiring import wire
from inferencecache.core.kube.selection import matching_backends
from inferencecache.core.service import get_logger

_log: Final = get_logger("injection")


def pod_webhook(sidecar: SidecarSettings) -> Webhook:
    """The webhook of a controller that attaches this sidecar."""

    async def answer(request: AdmissionRequest, lookup: Lookup) -> Answer:
        pod = request.object or {}
        if problem := problem_of(pod):
            return _unwired(request, Allowed(message=f"the pod cannot be read: {problem}"))
        if opts_out(metadata_of(pod, "annotations")):
            message = f"the pod opts out by its annotation {SKIP_INJECT}"
            return _unwired(request, _allowed(pod, stamp_skipped(pod), message))
        namespace = (pod.get("metadata") or {}).get("namespace") or request.namespace
        try:
            backends = await lookup("cachebackends", namespace)
        except LookupFailedError as error:
            return _unwired(request, _allowed(pod, strip_marks(pod), str(error)))
        return _decide(request, pod, namespace, backends, sidecar)

    return answer


def _decide(
    request: AdmissionRequest,
    pod: Document,
    namespace: str,
    backends: list[Document],
    sidecar: SidecarSettings,
) -> Answer:
    matching = matching_backends(backends, metadata_of(pod, "labels"))
    if not matching:
        # Nearly every pod of a cluster comes by here, so this is not worth a line of the log.
        return _allowed(pod, strip_marks(pod), f"no CacheBackend of namespace {namespace} selects the pod")
    if len(matching) > 1:
        names = ", ".join(backend.name for backend in matching)
        message = (
            f"CacheBackends {names} of namespace {namespace} select the pod; exactly one owner is required"
        )
        _log.info("several backends select a pod", pod=_name_of(request), namespace=namespace, backends=names)
        return forbidden(message)
    backend = matching[0]
    try:
        wired = wire(pod, backend, sidecar)
    except NotWiredError as error:
        message = f"not wired to CacheBackend {namespace}/{backend.name}: {error}"
        return _unwired(request, _allowed(pod, strip_marks(pod), message))
    return _allowed(pod, wired.pod, wired.note)


def _allowed(pod: Document, changed: Document, message: str) -> Allowed:
    return Allowed(None if changed == pod else changed, message)


def _unwired(request: AdmissionRequest, answer: Allowed) -> Allowed:
    _log.debug("a pod stays unwired", pod=_name_of(request), namespace=request.namespace, why=answer.message)
    return answer


def _name_of(request: AdmissionRequest) -> str:
    metadata = (request.object or {}).get("metadata")
    generated = metadata.get("generateName") if isinstance(metadata, dict) else ""
    return request.name or str(generated or "")
