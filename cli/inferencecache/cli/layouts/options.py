"""What may be asked of a layout on the command line."""

from __future__ import annotations

import re
from typing import Final

from inferencecache.core.log.subjects import InvalidIdError, escape
from inferencecache.schemas.ids import ModelId, TenantId
from inferencecache.schemas.layout import Lanes

MOST_PARTITIONS: Final = 256
"""Each is two streams, and a table of its own in every indexer and router."""
_NUMBER: Final = re.compile(r"[0-9]{1,4}")


class InvalidOptionError(ValueError):
    """An option that says nothing usable; the message says how to write it."""


def lanes(text: str) -> Lanes:
    """`TENANT/MODEL=N`. The tenant ends at the first slash, since models' names have some. Raises
    InvalidOptionError.
    """
    name, equals, count = text.rpartition("=")
    tenant, slash, model = name.partition("/")
    if not (equals and slash and model):
        raise InvalidOptionError(f"--lanes {text!r}: write TENANT/MODEL=N, as in team-a/org/model=4")
    if not (_NUMBER.fullmatch(count) and 1 <= int(count) <= MOST_PARTITIONS):
        raise InvalidOptionError(f"--lanes {text!r}: {count!r} is no number from 1 to {MOST_PARTITIONS}")
    for id_ in (tenant, model):
        try:
            escape(id_)
        except InvalidIdError as error:
            raise InvalidOptionError(f"--lanes {text!r}: {error}") from None
    return Lanes(TenantId(tenant), ModelId(model), int(count))
