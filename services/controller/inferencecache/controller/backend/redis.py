"""The objects of a Redis that the controller runs for a backend: one Deployment, one Service [CTL-31..42].

Values that the API server would fill in stand here too, so that a stored object can be compared field by
field.
"""

from __future__ import annotations

from typing import Final

from inferencecache.controller.admission.validation.resources import resource_violations
from inferencecache.controller.injection.environment import from_secret
from inferencecache.controller.reconciling.queue import RetryError
from inferencecache.core.kube.backends import Backend, section, text
from inferencecache.core.kube.kinds import Document, controller_reference

CONTAINER: Final = "redis-l2"
PORT: Final = 6379
_PORT_NAME: Final = "redis"
_MANAGER: Final = "inference-cache-controller"
_SERVER_VARIABLE: Final = "REDIS_PASSWORD"
_CLIENT_VARIABLE: Final = "REDISCLI_AUTH"
"""Where `redis-cli` looks for the password."""

WORKLOAD_FIELDS: Final = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
    "imagePullSecrets",
    "serviceAccountName",
    "securityContext",
    "priorityClassName",
    "runtimeClassName",
    "schedulerName",
    "terminationGracePeriodSeconds",
)
"""Fields of the pod that `spec.remoteStorage.workload` has under the same names [CTL-36]."""
_WORKLOAD_DEFAULTS: Final = {"schedulerName": "default-scheduler", "terminationGracePeriodSeconds": 30}


class RenderingError(RetryError):
    """There is no Redis with these settings. The text names the one to change."""


def redis_deployment(backend: Backend) -> Document:
    """Raises `RenderingError`."""
    pod = {
        **_WORKLOAD_DEFAULTS,
        "dnsPolicy": "ClusterFirst",
        "containers": [_container(backend)],
        **{
            key: value
            for key, value in (section(backend.remote_storage, "workload") or {}).items()
            if key in WORKLOAD_FIELDS and value not in (None, "")
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(backend),
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": _selector(backend)},
            "strategy": {"type": "RollingUpdate"},
            "template": {"metadata": {"labels": _labels(backend)}, "spec": pod},
        },
    }


def redis_service(backend: Backend) -> Document:
    """[CTL-41]."""
    port = {"name": _PORT_NAME, "port": PORT, "targetPort": _PORT_NAME, "protocol": "TCP"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(backend),
        "spec": {"type": "ClusterIP", "selector": _selector(backend), "ports": [port]},
    }


def service_endpoint(service: Document) -> str:
    """Where engines reach a Service; empty when it has no port [CTL-42]."""
    ports = (service.get("spec") or {}).get("ports")
    if not ports:
        return ""
    metadata = service["metadata"]
    return f"{metadata['name']}.{metadata['namespace']}.svc.cluster.local:{ports[0]['port']}"


def _metadata(backend: Backend) -> Document:
    return {
        "name": backend.name,
        "namespace": backend.namespace,
        "labels": _labels(backend),
        "ownerReferences": [controller_reference(backend.document)],
    }


def _selector(backend: Backend) -> Document:
    return {
        "app.kubernetes.io/name": "cachebackend",
        "app.kubernetes.io/instance": backend.name,
        "app.kubernetes.io/managed-by": _MANAGER,
    }


def _labels(backend: Backend) -> Document:
    written = text(backend.spec, "type")
    return _selector(backend) | ({"inferencecache.io/backend-type": written} if written else {})


def _container(backend: Backend) -> Document:
    password = _password(backend)
    arguments = [
        "redis-server",
        *("--save", ""),
        *("--appendonly", "no"),
        *("--protected-mode", "no"),
        *("--maxmemory", str(backend.redis_keyspace_bytes)),
        *("--maxmemory-policy", "allkeys-lru"),
    ]
    # There is no command: the image's entrypoint has to run, it drops privileges.
    container: Document = {
        "name": CONTAINER,
        "image": backend.redis_image,
        "imagePullPolicy": "IfNotPresent",
        "args": arguments,
        "ports": [{"name": _PORT_NAME, "containerPort": PORT, "protocol": "TCP"}],
        "readinessProbe": _probe({"tcpSocket": {"port": _PORT_NAME}}, timeout_s=1),
        "resources": _resources(backend),
    }
    if password is None:
        return container
    return container | {
        "args": [*arguments, "--requirepass", f"$({_SERVER_VARIABLE})"],
        "env": [from_secret(name, *password) for name in (_SERVER_VARIABLE, _CLIENT_VARIABLE)],
        "readinessProbe": _probe({"exec": {"command": ["redis-cli", "ping"]}}, timeout_s=2),
    }


def _resources(backend: Backend) -> Document:
    """An amount with a great exponent keeps the API server busy for minutes, so it is never sent there."""
    path = "spec.remoteStorage.redis.resources"
    try:
        for violation in resource_violations(backend.redis_resources, path):
            raise RenderingError(f"{violation.path}: {violation.problem}")
    except ValueError as error:
        raise RenderingError(f"{path}: {error}") from None
    return backend.redis_resources


def _probe(check: Document, *, timeout_s: int) -> Document:
    return check | {
        "initialDelaySeconds": 3,
        "periodSeconds": 10,
        "failureThreshold": 6,
        "timeoutSeconds": timeout_s,
        "successThreshold": 1,
    }


def _password(backend: Backend) -> tuple[str, str] | None:
    """Name and key of the Secret, None without authentication [CTL-39, CTL-40]."""
    authentication = section(backend.redis, "authentication")
    if authentication is None:
        return None
    path = "spec.remoteStorage.redis.authentication"
    if authentication.get("username") is not None:
        raise RenderingError(f"{path}.username: a managed Redis has the default user only; leave it out")
    selector = section(authentication, "password")
    name, key = text(selector, "name"), text(selector, "key")
    if not name or not key:
        raise RenderingError(f"{path}.password needs name and key of a Secret")
    return name, key
