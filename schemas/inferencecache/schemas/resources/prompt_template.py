"""`PromptTemplate`: a prompt with slots, of which the stable ones make a prefix worth caching."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from inferencecache.schemas.resources.objects import (
    Conditions,
    Name,
    ObservedGeneration,
    Part,
    Resource,
    listed_by,
)


class Slot(Part, frozen=True):
    """A placeholder of the body that a request fills."""

    name: Annotated[
        Name, Meta(description="Name of the slot; the body refers to it as {{ name }}. Unique in the list.")
    ]
    type: Annotated[
        Literal["Stable", "Mutable"],
        Meta(
            description="Stable: the same for many requests, part of the cacheable prefix. Mutable: "
            "differs by request; the stable prefix ends before the first such slot. Routers act on it."
        ),
    ]
    required: Annotated[
        bool | None,
        Meta(
            description="Whether a request must give a value. Absent means it need not; the slot is then "
            "empty. Routers act on it."
        ),
    ] = None
    description: Annotated[str | None, Meta(description="What belongs in the slot, for people.")] = None


class PromptTemplateSpec(Part, frozen=True):
    """What is wanted."""

    body: Annotated[
        str,
        Meta(
            min_length=1,
            description="Text of the prompt. {{ name }} stands for the slot of that name; there is no other "
            "syntax. Routers render it.",
        ),
    ]
    slots: Annotated[
        tuple[Slot, ...] | None,
        Meta(
            description="The slots of the body. A placeholder without a slot is accepted here and fails at "
            "rendering.",
            extra_json_schema=listed_by("name"),
        ),
    ] = None


class PromptTemplateStatus(Part, frozen=True):
    """Written by the controller."""

    observed_generation: ObservedGeneration | None = None
    template_revision: Annotated[
        str | None, Meta(description="Hash of the template as RenderTemplate reports it.")
    ] = None
    conditions: Conditions | None = None


class PromptTemplate(Resource, frozen=True, tag="PromptTemplate"):
    """A prompt that routers render on request, referred to as namespace/name [CRD-151..160]."""

    spec: Annotated[PromptTemplateSpec, Meta(description="What is wanted.")]
    status: PromptTemplateStatus | None = None
