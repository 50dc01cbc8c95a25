"""Engines: what their pods' arguments say, and what their own and their sidecars' metrics pages say."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from http import HTTPStatus
from typing import Final, NamedTuple, TypeVar

import aiohttp

from inferencecache.cli.doctor.arguments import ports_of, spec_of
from inferencecache.cli.doctor.checks.backends import endpoint_of, has_store
from inferencecache.cli.doctor.checks.reading import labels_of, pods_of, resource_of
from inferencecache.cli.doctor.facts import EngineFacts, EngineSpec, KubeFacts, ReadFailed, Unreachable
from inferencecache.cli.doctor.pages import NoPageError, engine_page, sidecar_page
from inferencecache.core.kube.backends import Backend, section, text
from inferencecache.core.kube.cluster import Cluster, UnreachableError
from inferencecache.core.kube.kinds import PODS, Document, key_of
from inferencecache.core.kube.selection import matching_backends

PAGE_LIMIT_S: Final = 5.0
MOST_BYTES: Final = 8 * 1024 * 1024
_AT_ONCE: Final = 16

_Read = TypeVar("_Read")
_Fetch = Callable[[str], Awaitable[str]]


class EnginePages(NamedTuple):
    """Pages of an engine as a person named them; `sidecar` is empty without one."""

    name: str
    engine: str
    sidecar: str = ""


async def collect_named(engines: Iterable[EnginePages]) -> tuple[EngineFacts, ...]:
    """Pages by their URLs."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PAGE_LIMIT_S)) as http:

        async def fetch(url: str) -> str:
            try:
                async with http.get(url) as response:
                    content = await response.content.read(MOST_BYTES)
                    return _content(response.status, content)
            except TimeoutError:
                raise UnreachableError(f"no answer within {PAGE_LIMIT_S:g} s") from None
            except (aiohttp.ClientError, OSError, ValueError) as error:
                raise UnreachableError(str(error) or type(error).__name__) from error

        async def engine(pages: EnginePages) -> EngineFacts:
            page = await _page(fetch, pages.engine, engine_page)
            sidecar = await _page(fetch, pages.sidecar, sidecar_page) if pages.sidecar else None
            return EngineFacts(pages.name, EngineSpec(), page, sidecar)

        return tuple(await asyncio.gather(*map(engine, engines)))


async def collect_of_cluster(
    facts: KubeFacts, cluster: Cluster, *, with_pages: bool
) -> tuple[EngineFacts, ...]:
    """Every running pod of one backend; pages come through the API server's proxy."""
    limit = asyncio.Semaphore(_AT_ONCE)

    async def fetch(path: str) -> str:
        async with limit:
            return _content(*await cluster.request("GET", path, limit_s=PAGE_LIMIT_S))

    async def engine(pod: Document, backend: Backend) -> EngineFacts:
        store = endpoint_of(backend) if has_store(backend) else ""
        spec = spec_of(pod, backend.runtime_id, store)
        resource = resource_of("Pod", key_of(pod))
        ports = ports_of(pod)
        if not with_pages or ports is None:
            return EngineFacts(resource, spec)
        path = PODS.path(*key_of(pod))
        page = await _page(fetch, f"{path}:{ports.engine}/proxy/metrics", engine_page)
        sidecar = await _page(fetch, f"{path}:{ports.sidecar}/proxy/metrics", sidecar_page)
        return EngineFacts(resource, spec, page, sidecar)

    return tuple(await asyncio.gather(*(engine(pod, backend) for pod, backend in _engines(facts))))


def _engines(facts: KubeFacts) -> Iterator[tuple[Document, Backend]]:
    """Running pods that exactly one backend selects."""
    if isinstance(facts.backends, ReadFailed):
        return
    for namespace in facts.pods:
        pods = pods_of(facts, namespace)
        documents = [each for each in facts.backends if Backend(each).namespace == namespace]
        for pod in () if isinstance(pods, ReadFailed) else pods:
            matching = matching_backends(documents, labels_of(pod))
            if len(matching) == 1 and text(section(pod, "status"), "phase") == "Running":
                yield pod, matching[0]


async def _page(fetch: _Fetch, where: str, read: Callable[[str], _Read]) -> _Read | Unreachable:
    try:
        return read(await fetch(where))
    except (UnreachableError, NoPageError) as error:
        return Unreachable(f"{where}: {error}")


def _content(status: int, content: bytes) -> str:
    if status != HTTPStatus.OK:
        raise UnreachableError(f"the answer is {status}")
    return content.decode("utf-8", "replace")
