"""Which model and adapter of the index a request's model name stands for.

Clients name a model as engines serve it: by its own name, by an alias, or by the name of a LoRA adapter,
which engines serve as a model of its own. The index knows models by the id that producers report, and
keeps what an adapter computed apart from its base model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from inferencecache.schemas.ids import AdapterId, ModelId


class NamedModel(NamedTuple):
    """A model of the index; an empty adapter is the base model."""

    model: ModelId
    adapter: AdapterId = AdapterId("")


class ModelNames(NamedTuple):
    """Names that are not a model's own; `default` is for requests that name none."""

    known: Mapping[str, NamedModel] = {}
    default: str = ""

    def of(self, name: str) -> NamedModel:
        """What a name stands for: itself, unless something else is known."""
        name = name or self.default
        return self.known.get(name) or NamedModel(ModelId(name))


def model_names(text: str) -> Mapping[str, NamedModel]:
    """`name=model` or, for an adapter, `name=model:adapter`, separated by commas. Raises ValueError.

    The adapter is what follows the last colon, since ids of models may have colons of their own: an
    alias of such a model ends in a colon.
    """
    known: dict[str, NamedModel] = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        name, equals, target = entry.partition("=")
        model, adapter = target.rpartition(":")[::2] if ":" in target else (target, "")
        if not (name and equals and model):
            raise ValueError(f"{entry!r} is neither NAME=MODEL nor NAME=MODEL:ADAPTER")
        if name in known:
            raise ValueError(f"{name!r} is named twice")
        known[name] = NamedModel(ModelId(model), AdapterId(adapter))
    return known
