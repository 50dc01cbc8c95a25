"""The cluster's objects, and connections to the stores that they name."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from inferencecache.cli.doctor.checks.backends import endpoint_of, has_store
from inferencecache.cli.doctor.facts import KubeFacts, Listed, ReadFailed
from inferencecache.core.kube.api import KubeApi, KubeError
from inferencecache.core.kube.backends import Backend
from inferencecache.core.kube.kinds import (
    CACHE_BACKENDS,
    CACHE_POLICIES,
    CACHE_TENANTS,
    EVENTS,
    PODS,
    SERVICES,
    ObjectKind,
    key_of,
)
from inferencecache.core.policy import PolicySetTooLargeError, encode_policy_set, resolve
from inferencecache.schemas.resources import AnyResource, InvalidResourceError, read_resource

INSTALLED_IN: Final = "inference-cache-system"
SERVER: Final = "inference-cache-server"
OLDER_EVENTS: Final = ObjectKind("", "v1", "events", "Event")
_DIAL_LIMIT_S: Final = 5.0


async def collect_kube(api: KubeApi, namespace: str, *, dial: bool) -> KubeFacts:
    """Of one namespace, or of all when it is empty."""
    backends, tenants, policies, events, older = await asyncio.gather(
        *(
            _listed(api, kind, namespace)
            for kind in (CACHE_BACKENDS, CACHE_TENANTS, CACHE_POLICIES, EVENTS, OLDER_EVENTS)
        )
    )
    if not isinstance(events, ReadFailed):
        events = older if isinstance(older, ReadFailed) else (*events, *older)
    known = () if isinstance(backends, ReadFailed) else tuple(map(Backend, backends))
    selecting = sorted({backend.namespace for backend in known if backend.match_labels})
    pods = await asyncio.gather(*(_listed(api, PODS, each) for each in selecting))
    dials = await _dial(known) if dial else None
    return KubeFacts(
        datetime.now(UTC),
        backends,
        dict(zip(selecting, pods, strict=True)),
        events,
        tenants,
        policies,
        dials,
    )


async def find_server(api: KubeApi) -> str:
    """The namespace of the install's Service: its own, else the first one that has such a Service [OPS-75].

    Raises KubeError, and LookupError when there is none.
    """
    if await api.get(SERVICES, INSTALLED_IN, SERVER) is not None:
        return INSTALLED_IN
    named = (key_of(each) for each in (await api.list_all(SERVICES)).items)
    found = min((key.namespace for key in named if key.name == SERVER), default="")
    if not found:
        raise LookupError(f"no namespace has a Service {SERVER}")
    return found


def wanted_policy(facts: KubeFacts, namespace: str) -> bytes | None:
    """The policy set that the cluster's objects make; None when it cannot be told from these facts."""
    listed = (facts.policies, facts.tenants)
    if namespace or any(isinstance(each, ReadFailed) for each in listed):
        return None
    resources: list[AnyResource] = []
    for documents in listed:
        for document in () if isinstance(documents, ReadFailed) else documents:
            with contextlib.suppress(InvalidResourceError):  # it has no effect either
                resources.append(read_resource(document, strict=False))
    try:
        return encode_policy_set(resolve(resources).policy_set)
    except PolicySetTooLargeError:
        return None


async def _listed(api: KubeApi, kind: ObjectKind, namespace: str) -> Listed:
    try:
        return tuple((await api.list_all(kind, namespace)).items)
    except KubeError as error:
        return ReadFailed(str(error))


async def _dial(backends: Iterable[Backend]) -> Mapping[str, str]:
    """What keeps each store from taking a connection, empty when nothing does."""
    endpoints = sorted(
        {endpoint for backend in backends if has_store(backend) and (endpoint := endpoint_of(backend))}
    )
    problems = await asyncio.gather(*map(problem_of_dial, endpoints))
    return dict(zip(endpoints, problems, strict=True))


async def problem_of_dial(endpoint: str) -> str:
    """A plain connection and nothing more [OPS-87]."""
    host, _, port = endpoint.removeprefix("http://").removeprefix("https://").rstrip("/").rpartition(":")
    if not host or not port.isdecimal():
        return "it is no host:port"
    try:
        async with asyncio.timeout(_DIAL_LIMIT_S):
            _, writer = await asyncio.open_connection(host.removeprefix("[").removesuffix("]"), int(port))
    except TimeoutError:
        return f"no answer within {_DIAL_LIMIT_S:g} s"
    except (OSError, OverflowError, UnicodeError) as error:
        return str(error)
    writer.close()
    return ""
