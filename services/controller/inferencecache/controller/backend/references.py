"""The name of a backend as marks on pods carry it, `<namespace>/<name>` [CTL-209]."""

from __future__ import annotations

import re
from typing import Final

from inferencecache.core.kube.kinds import ObjectKey

_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_NAMESPACE: Final = re.compile(rf"(?=.{{1,63}}$){_LABEL}")
_NAME: Final = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*")


def read_reference(text: str) -> ObjectKey | None:
    """None for what no backend can be called."""
    namespace, slash, name = text.partition("/")
    if not slash or not _NAMESPACE.fullmatch(namespace) or not _NAME.fullmatch(name):
        return None
    return ObjectKey(namespace, name)
