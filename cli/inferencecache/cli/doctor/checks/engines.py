"""Settings of engines that nothing refuses and without which no lookup matches, or no event comes.

What an engine's page says outranks its arguments: a default is not written there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from inferencecache.cli.doctor.facts import EngineFacts, EnginePage, SidecarPage, Unreachable
from inferencecache.cli.doctor.findings import Finding, found

NAMES_ADAPTERS: Final = {"vllm": (0, 16), "sglang": (0, 5, 23)}
"""Releases from which on events name the adapter of a block."""
_SEED_MATTERS: Final = "vllm"


def check_engines(engines: Sequence[EngineFacts], router_block_sizes: Mapping[str, int]) -> Iterator[Finding]:
    """One finding for each precondition that an engine lacks; EN007 for one whose pages say that it lacks
    none.
    """
    apart = _apart(engines)
    for engine in sorted(engines, key=lambda engine: engine.resource):
        findings = [*_check(engine, router_block_sizes, apart.get(engine.resource, ""))]
        unread = [page.reason for page in (engine.page, engine.sidecar) if isinstance(page, Unreachable)]
        if not findings and unread:
            findings = [found("EN008", engine.resource, "; ".join(unread))]
        elif not findings and _page_of(engine) is not None:
            findings = [found("EN007", engine.resource, "block size, events and caching are as they must be")]
        yield from findings


def _check(engine: EngineFacts, router_block_sizes: Mapping[str, int], apart: str) -> Iterator[Finding]:
    size = block_size_of(engine)
    others = {router: theirs for router, theirs in router_block_sizes.items() if theirs != size}
    if size and others:
        theirs = ", ".join(f"{router} {theirs}" for router, theirs in sorted(others.items()))
        yield found("EN001", engine.resource, f"its blocks have {size} tokens, those of router {theirs}")
    if apart:
        yield found("EN002", engine.resource, apart)
    if problem := _why_silent(engine):
        yield found("EN003", engine.resource, problem)
    if _is_caching(engine) is False:
        yield found("EN004", engine.resource, "prefix caching is switched off")
    sidecar = _sidecar_of(engine)
    if sidecar is not None and sidecar.ignored_groups and not sidecar.stored:
        ignored = f"all {sidecar.ignored_groups} stores were of cache groups that cannot be used"
        yield found("EN005", engine.resource, ignored)
    if problem := _why_nameless(engine):
        yield found("EN006", engine.resource, problem)


def block_size_of(engine: EngineFacts) -> int:
    """As events showed it, else as the page or the arguments say; 0 when nobody does."""
    page, sidecar = _page_of(engine), _sidecar_of(engine)
    seen = sidecar.block_size if sidecar is not None else 0
    told = page.block_size if page is not None else None
    return seen or told or engine.spec.block_size or 0


def _why_silent(engine: EngineFacts) -> str:
    """Why no event comes from an engine at work; empty when they come, or nobody knows."""
    page, sidecar = _page_of(engine), _sidecar_of(engine)
    serves = page is not None and page.served > 0
    if sidecar is not None:
        if serves and sidecar.messages == 0:
            return "it has served requests, and its sidecar has received no event"
        return ""
    return "its arguments do not switch KV events on" if engine.spec.events is False else ""


def _is_caching(engine: EngineFacts) -> bool | None:
    page = _page_of(engine)
    told = page.prefix_caching if page is not None else None
    return engine.spec.prefix_caching if told is None else told


def _why_nameless(engine: EngineFacts) -> str:
    page, sidecar = _page_of(engine), _sidecar_of(engine)
    if sidecar is not None and sidecar.nameless_adapters:
        return f"{sidecar.nameless_adapters} stores of adapters without a name were left out"
    serves = engine.spec.adapters or (page is not None and page.adapters)
    least = NAMES_ADAPTERS.get(engine.spec.runtime, ())
    if serves and engine.spec.version and engine.spec.version < least:
        have, need = (".".join(map(str, version)) for version in (engine.spec.version, least))
        return f"it is {engine.spec.runtime} {have}; adapters are named from {need} on"
    return ""


def _apart(engines: Iterable[EngineFacts]) -> dict[str, str]:
    """What differs among engines of one store, for each of them but those that are as the first known."""
    first: dict[tuple[str, str], tuple[str, str]] = {}
    apart: dict[str, str] = {}
    for engine in sorted(engines, key=lambda engine: engine.resource):
        store = engine.spec.store
        if not store:
            continue
        differing = []
        for name, mine in zip(_SHARED, _shared(engine), strict=True):
            theirs, other = first.setdefault((store, name), (mine, engine.resource)) if mine else ("", "")
            if mine != theirs:
                differing.append(f"{name} {mine} against {theirs} of {other}")
        if engine.spec.runtime == _SEED_MATTERS and _shared(engine)[1] in ("", "random"):
            differing.append("hash seed not set, so that each process has its own")
        if differing:
            apart[engine.resource] = f"store {store}: {', '.join(differing)}"
    return apart


_SHARED: Final = ("block size", "hash seed", "hash algorithm")


def _shared(engine: EngineFacts) -> tuple[str, str, str]:
    """What engines of one store must have in common; empty where nobody says."""
    page, size = _page_of(engine), block_size_of(engine)
    told = page.hash_algorithm if page is not None else None
    algorithm = told or engine.spec.hash_algorithm or ""
    return (str(size) if size else "", engine.spec.hash_seed or "", algorithm)


def _page_of(engine: EngineFacts) -> EnginePage | None:
    return engine.page if isinstance(engine.page, EnginePage) else None


def _sidecar_of(engine: EngineFacts) -> SidecarPage | None:
    return engine.sidecar if isinstance(engine.sidecar, SidecarPage) else None
