"""What the arguments and environment of an engine's container say; pure, and never wrong for want of text.

Values that come from elsewhere (a configuration file, a Secret) are not known here and read as not said.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from inferencecache.cli.doctor.facts import EngineSpec
from inferencecache.core.kube.kinds import Document
from inferencecache.schemas.unreadable import UNREADABLE

_SIDECAR: Final = "kvevent-subscriber"
_SIDECAR_PORT: Final = 8082
_VERSION: Final = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?(?![\d.])")
_LOCAL_PAGE: Final = re.compile(r"http://127\.0\.0\.1:(\d{1,5})/metrics")

_CACHING: Final = {
    "--enable-prefix-caching": True,
    "--no-enable-prefix-caching": False,
    "--disable-radix-cache": False,
}


class Ports(NamedTuple):
    """Where a pod serves the engine's page and the sidecar's."""

    engine: int
    sidecar: int


def spec_of(pod: Document, runtime: str, store: str = "") -> EngineSpec:
    """The engine's container is the one named like the runtime, else the first: injected ones follow."""
    containers = _containers(pod)
    named = [each for each in containers if each.get("name") == runtime]
    engine = next(iter([*named, *containers]), {})
    words = [*_words(engine)]
    environment = {
        each.get("name"): each.get("value") for each in engine.get("env") or () if isinstance(each, dict)
    }
    size = _value(words, "--page-size" if runtime == "sglang" else "--block-size")
    return EngineSpec(
        runtime=runtime,
        version=_version(str(engine.get("image") or "")),
        block_size=int(size) if size.isdecimal() else None,
        hash_algorithm=_value(words, "--prefix-caching-hash-algo") or None,
        hash_seed=environment.get("PYTHONHASHSEED"),
        prefix_caching=_caching(words),
        events=_events(words, runtime),
        adapters="--enable-lora" in words or "--lora-paths" in words,
        store=store,
    )


def ports_of(pod: Document) -> Ports | None:
    """As the sidecar's own arguments have them; None for a pod without our sidecar."""
    sidecar = next((each for each in _containers(pod) if each.get("name") == _SIDECAR), None)
    match = _LOCAL_PAGE.fullmatch(_value([*_words(sidecar or {})], "--engine-metrics-url"))
    return Ports(int(match[1]), _SIDECAR_PORT) if match is not None else None


def _containers(pod: Document) -> list[Document]:
    spec = pod.get("spec")
    listed = spec.get("containers") if isinstance(spec, dict) else None
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def _words(container: Document) -> Iterator[str]:
    """A shell's command line is taken apart; JSON and flags with values stay whole."""
    for word in (*(container.get("command") or ()), *(container.get("args") or ())):
        text = str(word)
        if " " in text.strip() and not text.lstrip().startswith(("-", "{")):
            try:
                yield from shlex.split(text)
            except ValueError:
                yield from text.split()
        else:
            yield text.strip()


def _value(words: Sequence[str], flag: str) -> str:
    """The last one counts; empty when there is none."""
    found = ""
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if word == flag:
            found = following
        elif word.startswith(f"{flag}="):
            found = word.removeprefix(f"{flag}=")
    return found


def _caching(words: Sequence[str]) -> bool | None:
    said = {
        "--enable-prefix-caching": True,
        "--no-enable-prefix-caching": False,
        "--disable-radix-cache": False,
    }
    return next((said[word] for word in reversed(words) if word in said), None)


def _events(words: Sequence[str], runtime: str) -> bool | None:
    """Not said by an engine that takes its arguments from a file."""
    written = _value(words, "--kv-events-config")
    if not written:
        is_told = any(word.startswith("-") for word in words) and not _value(words, "--config")
        return False if is_told else None
    try:
        config: dict[str, Any] = msgspec.json.decode(written.encode(), type=dict[str, Any])
    except UNREADABLE:
        return None
    if runtime == "sglang":
        return bool(config.get("publisher", "null") == "zmq")
    return bool(config.get("enable_kv_cache_events") is True and config.get("publisher", "zmq") == "zmq")


def _version(image: str) -> tuple[int, ...]:
    """Of the image's tag; empty when it names none."""
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    match = _VERSION.match(tag)
    return tuple(int(each) for each in match.groups() if each is not None) if match is not None else ()
