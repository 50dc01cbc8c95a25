"""The annotation by which a pod's author keeps the webhook away from it [ADM-135]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SKIP_INJECT: Final = "inferencecache.io/skip-inject"

_YES: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_NO: Final = frozenset({"", "0", "f", "F", "FALSE", "false", "False"})
_NO_IN_ANY_CASE: Final = frozenset({"no", "off", "disable", "disabled"})


def opts_out(annotations: Mapping[str, str]) -> bool:
    """Does the author want none of it? Any text that does not say no means so, a blank too [ADM-136]."""
    value = annotations.get(SKIP_INJECT, "")
    return value in _YES or not (value in _NO or value.lower() in _NO_IN_ANY_CASE)
