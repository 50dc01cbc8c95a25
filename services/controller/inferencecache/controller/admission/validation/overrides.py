"""Changes to what is injected: well formed, and never of what an adapter relies on [ADM-100..112]."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from inferencecache.controller.adapters import Adapter
from inferencecache.core.kube.backends import Backend, section, text
from inferencecache.schemas.resources import Violation

_OVERRIDES: Final = "spec.integration.engineOverrides"
_VARIABLE: Final = re.compile(r"(?!\.$|\.\.)[-._A-Za-z][-._A-Za-z0-9]*", re.ASCII)


def override_violations(backend: Backend, adapter: Adapter | None) -> Iterator[Violation]:
    """The reserved lists are those of the adapter; without one only the shape is judged."""
    overrides = backend.overrides or {}
    env = overrides.get("env") or []
    for position, variable in enumerate(env):
        if isinstance(variable, dict):
            yield from _of_variable(variable, f"{_OVERRIDES}.env[{position}]")
    if adapter is None:
        return
    names = {
        "args": [flag_of(argument) for argument in overrides.get("args") or []],
        "suppressArgs": overrides.get("suppressArgs") or [],
        "env": [text(variable, "name") for variable in env],
        "suppressEnv": overrides.get("suppressEnv") or [],
    }
    for field, written in names.items():
        reserved = adapter.reserved_args if "rgs" in field else adapter.reserved_env
        for position, name in enumerate(written):
            if name in reserved:
                path = f"{_OVERRIDES}.{field}[{position}]" + (".name" if field == "env" else "")
                problem = f'{name} is set by the adapter of runtime "{adapter.runtime}"; remove it'
                yield Violation("Forbidden", path, problem)


def flag_of(argument: str) -> str:
    """The flag that an argument names, empty for a positional one [ADM-105, ADM-207]."""
    return argument.partition("=")[0] if argument.startswith("-") else ""


def _of_variable(variable: dict[str, Any], path: str) -> Iterator[Violation]:
    name, source = text(variable, "name"), section(variable, "valueFrom")
    if not name:
        yield Violation("Required", f"{path}.name", "name the variable")
    elif not _VARIABLE.fullmatch(name):
        problem = "is no name of a variable: letters, digits, '-', '_' and '.', no digit first"
        yield Violation("Invalid", f"{path}.name", problem)
    if source is None:
        return
    if text(variable, "value"):
        yield Violation("Invalid", path, "value and valueFrom exclude each other; keep one")
    sources = [key for key, value in source.items() if value is not None]
    if not sources:
        yield Violation("Required", f"{path}.valueFrom", "name one source")
    elif len(sources) > 1:
        yield Violation("Invalid", f"{path}.valueFrom", f"has {len(sources)} sources; keep one")
