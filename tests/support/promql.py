"""What rules and panels ask Prometheus for, taken out of their expressions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import yaml

from tools.alerts import RULES
from tools.dashboard import ROWS

_SELECTOR: Final = re.compile(r"\b((?:inferencecache_|process_|vllm:)\w+)(?:\{([^}]*)\})?")
_MATCHED: Final = re.compile(r"(\w+)=")
_GROUPED: Final = re.compile(r"\b(?:by|on) \(([^)]*)\)")


class Selector(NamedTuple):
    """A series and the labels by which some of it are chosen."""

    name: str
    matchers: str

    @property
    def labels(self) -> set[str]:
        return set(_MATCHED.findall(self.matchers))

    def __str__(self) -> str:
        return f"{self.name}{{{self.matchers}}}"


def expressions() -> Iterator[str]:
    """Of all alerts and of all panels, these about one installation `demo`."""
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["expr"]
    for panels in ROWS.values():
        for panel in panels:
            for expression in panel.queries.values():
                yield expression.replace("$namespace", "demo")


def selectors(expression: str) -> set[Selector]:
    return {Selector(name, matchers) for name, matchers in _SELECTOR.findall(expression)}


def grouped_by(expression: str) -> set[str]:
    """All labels that results are grouped by."""
    return {label.strip() for labels in _GROUPED.findall(expression) for label in labels.split(",")}
