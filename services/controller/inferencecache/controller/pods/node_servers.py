"""Servers of nodes: one on each node that has engines of a backend, and none elsewhere [CTL-67..87].

They are bare pods that follow the engines. One that stays behind without an engine is kept for a while,
with what it has cached, in case engines come back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from inferencecache.controller.adapters import find_adapter
from inferencecache.controller.backend.engine_pods import (
    active_pods,
    is_finished,
    is_leaving,
    is_stamped,
    name_of,
    node_of,
)
from inferencecache.controller.backend.paths import Path, choose_path
from inferencecache.controller.backend.server_identity import (
    is_of_generation,
    is_server_of,
    shares_memory,
    target_node_of,
)
from inferencecache.controller.injection.bindings import resolve_binding
from inferencecache.controller.injection.node_server import (
    node_server_name,
    node_server_pod,
)
from inferencecache.controller.injection.pods import metadata_of
from inferencecache.controller.injection.refusals import NotWiredError
from inferencecache.controller.kube.writing import Writer
from inferencecache.controller.reconciling.queue import RetryError
from inferencecache.core.kube.backends import NODE_LOCAL, Backend, section
from inferencecache.core.kube.conditions import read_timestamp
from inferencecache.core.kube.kinds import (
    PODS,
    Document,
    controller_reference,
    is_controlled_by,
)

IDLE_MARK: Final = "inferencecache.io/node-local-idle-since"
_DEFAULT_RETENTION_S: Final = 300
_WITH_ENGINES: Final = (Path.MANAGED, Path.EXTERNAL, Path.HOST_ONLY)


class ServerProblemError(RetryError):
    """Servers of nodes are not what engines need. The message says why."""


class ServerPlan(NamedTuple):
    """Servers to delete, marks of idleness to set or, where None, to take away, and servers to make, in
    order of their nodes; `problem` is why not all could be planned, empty when they are.
    """

    deletions: tuple[Document, ...] = ()
    marks: tuple[tuple[Document, str | None], ...] = ()
    creations: tuple[Document, ...] = ()
    problem: str = ""


class NodeServers:
    """Brings servers to what their backends' engines need."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def keep(self, backend: Backend, pods: Sequence[Document] | None, now: datetime) -> None:
        """`pods` are the namespace's, None when they were not listed. Raises `KubeError` and
        `ServerProblemError`.
        """
        if pods is None:
            raise ServerProblemError(f"the pods of namespace {backend.namespace} could not be listed")
        plan = plan_servers(backend, pods, now)
        for server in plan.deletions:
            await self._writer.delete(PODS, server)
        for server, mark in plan.marks:
            await self._writer.annotate(PODS, server, {IDLE_MARK: mark})
        for server in plan.creations:
            await self._writer.create(PODS, server)
        if plan.problem:
            raise ServerProblemError(plan.problem)


def plan_servers(backend: Backend, pods: Sequence[Document], now: datetime) -> ServerPlan:
    """By all pods of the backend's namespace. A backend whose engines use no server of a node has none."""
    servers = [pod for pod in pods if is_controlled_by(pod, backend.uid) and not is_leaving(pod)]
    uses_servers = backend.is_typed_mp and backend.topology == NODE_LOCAL
    if not uses_servers or choose_path(backend) not in _WITH_ENGINES:
        return ServerPlan(deletions=tuple(servers))
    sources = _sources(backend, pods)
    try:
        current = [server for server in servers if _is_current(backend, server)]
    except NotWiredError as error:
        return ServerPlan(problem=str(error))
    deletions = [server for server in servers if server not in current]
    marks: list[tuple[Document, str | None]] = []
    for server in current:
        since = metadata_of(server, "annotations").get(IDLE_MARK)
        if target_node_of(server) in sources:
            marks += [(server, None)] if since is not None else []
        elif _is_over(since, _retention(backend), now):
            deletions.append(server)
        elif _read_mark(since) is None:
            marks.append((server, _mark_text(now)))
    covered = {target_node_of(server) for server in current}
    missing = {node: source for node, source in sorted(sources.items()) if node not in covered}
    creations, problem = _creations(backend, missing, {name_of(pod): pod for pod in pods})
    return ServerPlan(tuple(deletions), tuple(marks), creations, problem)


def _sources(backend: Backend, pods: Sequence[Document]) -> dict[str, Document]:
    """The engine by node whose scheduling the node's server takes over: the first by name. The generation
    that wired an engine does not count [CTL-67, CTL-69].
    """
    sources: dict[str, Document] = {}
    for pod in active_pods(backend, pods):
        if node_of(pod) and is_stamped(backend, pod):
            sources.setdefault(node_of(pod), pod)
    return sources


def _is_current(backend: Backend, server: Document) -> bool:
    """Whether it is a server as it would be made now. One that has ended never comes back [CTL-81]."""
    return (
        not is_finished(server)
        and is_server_of(backend, server)
        and is_of_generation(backend, server)
        and name_of(server) == node_server_name(backend, target_node_of(server))
        and shares_memory(backend, server)
    )


def _creations(
    backend: Backend, missing: Mapping[str, Document], by_name: Mapping[str, Document]
) -> tuple[tuple[Document, ...], str]:
    """Servers for these nodes, and what is in the way of others. A name that is still ours is waited for:
    the pod's end brings the next pass.
    """
    creations: list[Document] = []
    problem = ""
    try:
        for node, source in missing.items():
            there = by_name.get(node_server_name(backend, node))
            if there is None:
                creations.append(_server(backend, source))
            elif not is_controlled_by(there, backend.uid):
                problem = f"the name {name_of(there)} of the server of node {node} is occupied by another pod"
    except NotWiredError as error:
        return (), str(error)
    return tuple(creations), problem


def _server(backend: Backend, source: Document) -> Document:
    adapter = find_adapter(backend)
    binding = None if adapter is None else resolve_binding(backend, adapter)
    pod = node_server_pod(backend, source, binding)
    pod["metadata"]["ownerReferences"] = [controller_reference(backend.document)]
    return pod


def _retention(backend: Backend) -> timedelta:
    written = (section(backend.lm_cache, "nodeLocal") or {}).get("idleRetentionSeconds")
    return timedelta(seconds=written if type(written) is int and written >= 0 else _DEFAULT_RETENTION_S)


def _is_over(since: str | None, retention: timedelta, now: datetime) -> bool:
    if not retention:
        return True
    marked = _read_mark(since)
    return marked is not None and now - marked >= retention


def _read_mark(text: str | None) -> datetime | None:
    """None for what is no time: such a mark is set anew."""
    try:
        return None if text is None else read_timestamp(text)
    except ValueError:
        return None


def _mark_text(now: datetime) -> str:
    """RFC 3339 with nanoseconds in UTC [CTL-83]."""
    return f"{now.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}000Z"
