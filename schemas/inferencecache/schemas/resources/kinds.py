"""The kinds of resources by every name that people write [CRD-03]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from inferencecache.schemas.resources.cache_policy import CachePolicy
from inferencecache.schemas.resources.cache_tenant import CacheTenant
from inferencecache.schemas.resources.pd_topology import PDTopology
from inferencecache.schemas.resources.prompt_template import PromptTemplate

AnyResource = CachePolicy | CacheTenant | PromptTemplate | PDTopology


class Kind(NamedTuple):
    """A kind with its struct; the singular name is the kind in lower case."""

    struct: type[AnyResource]
    plural: str
    short: str

    @property
    def name(self) -> str:
        """The kind as documents spell it."""
        return self.struct.__name__


KINDS: Final[Mapping[str, Kind]] = {
    kind.name: kind
    for kind in (
        Kind(CachePolicy, "cachepolicies", "cpol"),
        Kind(CacheTenant, "cachetenants", "ct"),
        Kind(PromptTemplate, "prompttemplates", "pt"),
        Kind(PDTopology, "pdtopologies", "pdt"),
    )
}


def find_kind(text: str) -> Kind | None:
    """The kind by its name, plural or short name, in any case."""
    word = text.lower()
    return next(
        (kind for kind in KINDS.values() if word in (kind.name.lower(), kind.plural, kind.short)), None
    )
