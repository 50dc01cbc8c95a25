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

# The blanks around a name are taken off afterwards: a pattern that does it tries every division of a
# long row of blanks, and whoever writes a template would hold up every router.
_PLACEHOLDER: Final = re.compile(r"\{\{([^{}\r\n]*)\}\}")
_REVISION_DIGITS: Final = 16
MAX_RENDERED: Final = 1 << 22
"""Characters of a rendered prompt: a body may repeat a slot, and a long value with it, without end."""


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
        # Text and names of placeholders in turn, beginning and ending with text.
        self._pieces = _PLACEHOLDER.split(template.body)
        names = [name.strip(" \t") for name in self._pieces[1::2]]
        self._pieces[1::2] = names
        self._undeclared = next((name for name in names if name not in self._slots), None)
        mutable = (2 * at + 1 for at, name in enumerate(names) if self._is_mutable(name))
        self._first_mutable = next(mutable, len(self._pieces))

    def render(self, values: Mapping[str, str]) -> Rendered:
        """Fill the slots; one that is not required and not given is empty.

        Raises `RenderError` for a value that belongs to no slot, for a required slot without a value,
        for a placeholder that no slot declares and for a text of more than `MAX_RENDERED` characters.
        """
        for name in values:
            if name not in self._slots:
                raise RenderError(name, "is not declared by the template; remove the variable")
        for slot in self._slots.values():
            if slot.required and slot.name not in values:
                raise RenderError(slot.name, "is required; give it a value")
        if self._undeclared is not None:
            problem = "stands in the body and is not declared; add it to spec.slots"
            raise RenderError(self._undeclared, problem)
        text = [values.get(piece, "") if at % 2 else piece for at, piece in enumerate(self._pieces)]
        if sum(map(len, text)) > MAX_RENDERED:
            raise RenderError("", f"makes more than {MAX_RENDERED} characters with the others; shorten them")
        return Rendered("".join(text), "".join(text[: self._first_mutable]))

    def _is_mutable(self, name: str) -> bool:
        slot = self._slots.get(name)
        return slot is not None and slot.mutable


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
