"""The sidecar that appends an engine's cache events to the log [ADM-223..233].

It gets the flags that it cannot do without; everything else is its own default.
"""

from __future__ import annotations

from typing import Final

import msgspec

from inferencecache.controller.admission.reviews import Document
from inferencecache.controller.injection.environment import from_field, from_secret
from inferencecache.controller.injection.metrics_port import metrics_port
from inferencecache.controller.injection.pods import covers, find, find_engine, parts
from inferencecache.core.kube.backends import EVENTS_ONLY, Backend
from inferencecache.core.log.subjects import InvalidIdError, escape

SUBSCRIBER_NAME: Final = "kvevent-subscriber"
DEFAULT_NATS_URL: Final = "nats://inference-cache-nats.inference-cache-system.svc.cluster.local:4222"
EVENTS_ENDPOINT: Final = "tcp://127.0.0.1:5557"
"""Where an engine's publisher is bound; one on another port is not found [ADM-236]."""
METRICS_PORT_NAME: Final = "kvevents-http"
METRICS_PORT: Final = 8082
_CREDENTIALS_KEY: Final = "nats.creds"


class SidecarSettings(msgspec.Struct, frozen=True):
    """Of the controller: no `image` means no sidecar; `nats_url` is that of the install when empty;
    `credentials_secret` is a Secret in the namespace of each engine [ADM-227, ADM-228].
    """

    image: str = ""
    nats_url: str = ""
    credentials_secret: str = ""


def is_attached(backend: Backend, settings: SidecarSettings) -> bool:
    """Do engines of this backend get the sidecar [ADM-172]?"""
    return bool(settings.image and backend.model_id)


def add_subscriber(pod: Document, backend: Backend, settings: SidecarSettings) -> str:
    """Append the sidecar where one is wanted and none is there. Empty, or why the pod has none of ours.

    One that is there counts only when it is what would be appended, as on a pod that was wired before
    [ADM-144, ADM-240]. A sidecar that would refuse its flags is none: it would never become ready, and
    with it the pod.
    """
    containers = parts(pod["spec"], "containers")
    if not settings.image:
        return "the controller has no --kvevent-subscriber-image"
    if not backend.model_id:
        return "the backend has no spec.observation.modelID"
    try:
        escape(backend.model_id)
    except InvalidIdError as error:
        return f"the backend's spec.observation.modelID: {error}"
    rendered = _render(pod, backend, settings)
    there = find([*containers, *parts(pod["spec"], "initContainers")], SUBSCRIBER_NAME)
    if there is None:
        pod["spec"]["containers"] = [*containers, rendered]
    elif not covers(there, rendered):
        return f"the pod has a container {SUBSCRIBER_NAME} of its own already"
    return ""


def _render(pod: Document, backend: Backend, settings: SidecarSettings) -> Document:
    env = [
        from_field("POD_NAME", "metadata.name"),
        from_field("POD_NAMESPACE", "metadata.namespace"),
        from_field("POD_UID", "metadata.uid"),
    ]
    if settings.credentials_secret:
        env.append(_credentials(settings.credentials_secret))
    sidecar: Document = {
        "name": SUBSCRIBER_NAME,
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "args": _arguments(pod, backend, settings),
        "env": env,
        "resources": {
            "requests": {"cpu": "10m", "memory": "64Mi"},
            "limits": {"cpu": "200m", "memory": "128Mi"},
        },
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    # On the host's network a declared port is the node's, and no two engines would fit on one.
    if not pod["spec"].get("hostNetwork"):
        port = {"name": METRICS_PORT_NAME, "containerPort": METRICS_PORT, "protocol": "TCP"}
        sidecar["ports"] = [port]
    return sidecar


def _arguments(pod: Document, backend: Backend, settings: SidecarSettings) -> list[str]:
    runtime = backend.runtime_id
    port = metrics_port(find_engine(pod, runtime), runtime)
    arguments = [
        f"--engine-endpoint={EVENTS_ENDPOINT}",
        f"--nats-url={_unexpanded(settings.nats_url or DEFAULT_NATS_URL)}",
        "--replica-id=$(POD_NAME)",
        "--tenant-id=$(POD_NAMESPACE)",
        f"--model-id={_unexpanded(backend.model_id)}",
        f"--hash-scheme={runtime}",
        f"--engine-metrics-url=http://127.0.0.1:{port}/metrics",
    ]
    if backend.mode == EVENTS_ONLY:
        return arguments
    return [*arguments, "--ignore-block-removed=true"]


def _unexpanded(text: str) -> str:
    """Text that the kubelet, which expands `$(NAME)` in arguments, leaves as it is."""
    return text.replace("$", "$$")


def _credentials(secret: str) -> Document:
    """Optional, so that a missing Secret never keeps an engine from starting."""
    entry = from_secret("NATS_CREDS", secret, _CREDENTIALS_KEY)
    entry["valueFrom"]["secretKeyRef"]["optional"] = True
    return entry
