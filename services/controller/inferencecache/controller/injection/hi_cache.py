"""SGLang's own host cache: a few flags and nothing else [ADM-216..222].

What the pod's author wrote is kept when it says the same, and stops the wiring when it does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from inferencecache.controller.adapters import Adapter
from inferencecache.controller.admission.reviews import Document
from inferencecache.controller.admission.validation.hi_cache import hi_cache_violations
from inferencecache.controller.admission.validation.overrides import override_violations
from inferencecache.controller.injection.arguments import occurrences, only_value, set_flag, whole_number
from inferencecache.controller.injection.pods import parts
from inferencecache.controller.injection.refusals import NotWiredError
from inferencecache.core.kube.backends import Backend

_ENABLE: Final = "--enable-hierarchical-cache"
_SIZE: Final = "--hicache-size"
_RATIO: Final = "--hicache-ratio"
_CHOICES: Final = {
    "writePolicy": "--hicache-write-policy",
    "ioBackend": "--hicache-io-backend",
    "memoryLayout": "--hicache-mem-layout",
}
_OTHER_CONNECTORS: Final = ("--enable-lmcache", "--lmcache-config-file")


def enable_hi_cache(engine: Document, backend: Backend, adapter: Adapter) -> None:
    """Append the flags that are not there. Raises `NotWiredError`."""
    for violation in (*hi_cache_violations(backend), *override_violations(backend, adapter)):
        raise NotWiredError(f"the backend's {violation.path}: {violation.problem}")
    engine["args"] = _enabled(parts(engine, "args"), backend.hi_cache or {})


def _enabled(arguments: Sequence[str], block: Document) -> list[str]:
    if others := occurrences(arguments, *_OTHER_CONNECTORS):
        raise NotWiredError(f"{others[0].flag} excludes SGLang's own host cache; remove it")
    switches = occurrences(arguments, _ENABLE)
    if len(switches) > 1 or any(switch.joined for switch in switches):
        raise NotWiredError(f"{_ENABLE} takes no value and may be there once")
    unwanted = _RATIO if block.get("sizeGB") is not None else _SIZE
    if occurrences(arguments, unwanted):
        raise NotWiredError(f"{unwanted} contradicts the backend's spec.hiCache; remove it")
    result = set_flag(arguments, _ENABLE)
    for flag, value in _wanted(block).items():
        there = only_value(arguments, flag)
        if there is None and value:
            result += [flag, value]
        elif there is not None and value and not _equal(flag, there, value):
            raise NotWiredError(f"{flag} is {there} and {value} in the backend's spec.hiCache; remove it")
    return set_flag(result, "--enable-metrics")


def _wanted(block: Document) -> dict[str, str]:
    """Flags by their values, in order; an empty one leaves the choice to the engine or to its flag."""
    size = block.get("sizeGB")
    capacity = {_SIZE: str(size)} if size is not None else {_RATIO: block["ratio"]}
    return capacity | {flag: block.get(field) or "" for field, flag in _CHOICES.items()}


def _equal(flag: str, there: str, value: str) -> bool:
    if flag == _SIZE:
        return whole_number(there) == int(value)
    if flag == _RATIO:
        return _number(there) == float(value)
    return there == value


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
