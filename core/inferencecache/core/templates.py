"""Prompt templates: a body with `{{ name }}` slots, rendered by plain replacement.

There is no other syntax, values are inserted as they are, and nothing but template and values enters:
the same input gives the same text everywhere. What comes before the first mutable slot is the stable
prefix, the part that many requests share and engines can keep.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from inferencecache.schemas.prompts import ResolvedSlot, ResolvedTemplate
from inferencecache.schemas.resources import PromptTemplate

_PLACEHOLDER: Final = re.compile(r"\{\{[ \t]*([^{}\r\n]*?)[ \t]*\}\}")
_REVISION_DIGITS: Final = 16


class RenderError(ValueError):
    """The template cannot be rendered with these values; `slot` names what is wrong, never a value."""

    def __init__(self, slot: str, problem: str) -> None:
        super().__init__(f"slot {slot!r} {problem}")
        self.slot = slot
        self.problem = problem


class Rendered(NamedTuple):
    """The whole text, and its beginning up to the first mutable slot; all of it when there is none."""

    text: str
    stable_prefix: str


class Template:
    """A template ready to render. Making one never fails: what is wrong with it shows at rendering."""

    def __init__(self, template: ResolvedTemplate) -> None:
        self.revision = template.revision
        self._slots = {slot.name: slot for slot in template.slots}
        self._pieces = _PLACEHOLDER.split(template.body)

    def render(self, values: Mapping[str, str]) -> Rendered:
        """Fill the slots; one that is not required and not given is empty.

        Raises `RenderError` for a value that belongs to no slot, for a required slot without a value
        and for a placeholder that no slot declares.
        """
        for name in values:
            if name not in self._slots:
                raise RenderError(name, "is not declared by the template; remove the variable")
        for slot in self._slots.values():
            if slot.required and slot.name not in values:
                raise RenderError(slot.name, "is required; give it a value")
        text: list[str] = []
        stable_pieces: int | None = None
        for position, piece in enumerate(self._pieces):
            if position % 2 == 0:  # text between placeholders
                text.append(piece)
                continue
            declared = self._slots.get(piece)
            if declared is None:
                raise RenderError(piece, "stands in the body and is not declared; add it to spec.slots")
            if declared.mutable and stable_pieces is None:
                stable_pieces = len(text)
            text.append(values.get(piece, ""))
        return Rendered("".join(text), "".join(text[:stable_pieces]))


def resolve_template(template: PromptTemplate) -> ResolvedTemplate:
    """What routers need of a template. Of two slots with one name the first counts."""
    slots: dict[str, ResolvedSlot] = {}
    for slot in template.spec.slots or ():
        slots.setdefault(slot.name, ResolvedSlot(slot.name, slot.type == "Mutable", slot.required is True))
    ordered = tuple(slots[name] for name in sorted(slots))
    return ResolvedTemplate(
        template.metadata.namespace,
        template.metadata.name,
        revision_of(template.spec.body, ordered),
        template.spec.body,
        ordered,
    )


def revision_of(body: str, slots: tuple[ResolvedSlot, ...]) -> str:
    """A hash of all that rendering depends on: it changes exactly when rendered prompts may."""
    content = msgspec.json.encode([body, slots])
    return hashlib.sha256(content).hexdigest()[:_REVISION_DIGITS]
