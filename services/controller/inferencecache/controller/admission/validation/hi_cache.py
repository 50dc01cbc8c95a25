"""SGLang's own host cache, and what goes with it [ADM-83..94]."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

from inferencecache.controller.admission.validation.selector import required_selector
from inferencecache.controller.admission.validation.wording import supported
from inferencecache.core.kube.backends import HICACHE, OFFLOAD, READ_WRITE, Backend, text
from inferencecache.schemas.resources import Violation
from inferencecache.schemas.resources.cache_backend import IOBackend, MemoryLayout, WritePolicy

_HI_CACHE: Final = "spec.hiCache"
_NUMBER: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "writePolicy": get_args(WritePolicy),
    "ioBackend": get_args(IOBackend),
    "memoryLayout": get_args(MemoryLayout),
}


def hi_cache_violations(backend: Backend) -> Iterator[Violation]:
    """The block, and the rest of the spec as far as HiCache limits it."""
    if backend.type != HICACHE:
        if backend.hi_cache is not None:
            yield Violation("Forbidden", _HI_CACHE, f"is for type {HICACHE}; this backend is {backend.type}")
        return
    if backend.hi_cache is None:
        yield Violation("Required", _HI_CACHE, f"type {HICACHE} needs it")
    else:
        yield from _of_block(backend.hi_cache)
    if backend.runtime_id != "sglang":
        yield Violation("Invalid", "spec.runtime", f"type {HICACHE} is a part of SGLang; write SGLang")
    yield from required_selector(backend, f"type {HICACHE} needs its engines named")
    if backend.mode != OFFLOAD:
        yield Violation("NotSupported", "spec.integration.mode", supported(OFFLOAD))
    if backend.role != READ_WRITE:
        yield Violation("NotSupported", "spec.integration.role", supported(READ_WRITE))
    if not backend.fail_open:
        yield Violation("NotSupported", "spec.integration.failOpen", supported("true"))


def _of_block(block: dict[str, Any]) -> Iterator[Violation]:
    size, ratio = block.get("sizeGB"), block.get("ratio")
    if size is None and ratio is None:
        yield Violation("Required", _HI_CACHE, "set sizeGB or ratio")
    if size is not None and ratio is not None:
        yield Violation("Invalid", _HI_CACHE, "sizeGB and ratio exclude each other; keep one")
    if size is not None and size < 1:
        yield Violation("Invalid", f"{_HI_CACHE}.sizeGB", "must be 1 or more")
    if ratio is not None and not _is_positive(ratio):
        yield Violation("Invalid", f"{_HI_CACHE}.ratio", "must be a finite number above 0, such as 2 or 0.5")
    for field, choices in _CHOICES.items():
        if (chosen := text(block, field)) and chosen not in choices:
            yield Violation("NotSupported", f"{_HI_CACHE}.{field}", supported(*choices))


def _is_positive(ratio: str) -> bool:
    return _NUMBER.fullmatch(ratio) is not None and 0 < float(ratio) < math.inf
