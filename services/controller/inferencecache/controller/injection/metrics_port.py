"""Where an engine serves its metrics page: on the port that it serves requests on [ADM-230]."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from inferencecache.controller.admission.reviews import Document
from inferencecache.controller.injection.arguments import occurrences, whole_number
from inferencecache.controller.injection.environment import by_name
from inferencecache.controller.injection.pods import parts

DEFAULT_PORTS: Final = {"vllm": 8000, "sglang": 30000}
_REFERENCE: Final = re.compile(r"\$\(([^()]+)\)")


def metrics_port(engine: Document | None, runtime: str) -> int:
    """The last legal `--port` of command and arguments, where a value may be one variable, `$(NAME)`."""
    if engine is None:
        return DEFAULT_PORTS[runtime]
    words = [*parts(engine, "command"), *parts(engine, "args")]
    variables = by_name(parts(engine, "env"))
    ports = [_port(found.value, variables) for found in occurrences(words, "--port") if found.value]
    return next((port for port in reversed(ports) if port is not None), DEFAULT_PORTS[runtime])


def _port(text: str, variables: Mapping[str, Document]) -> int | None:
    if reference := _REFERENCE.fullmatch(text):
        text = variables.get(reference[1], {}).get("value") or ""
    number = whole_number(text)
    return number if number is not None and 0 < number < 65536 else None
