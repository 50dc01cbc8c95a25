"""PromptTemplate objects as routers render them."""

from __future__ import annotations

import msgspec

from inferencecache.controller.intent.published import Resolved
from inferencecache.controller.kube.observed import Change
from inferencecache.core.kube.kinds import PROMPT_TEMPLATES, ObjectKey
from inferencecache.core.log.subjects import template_key
from inferencecache.core.templates import resolve_template
from inferencecache.schemas.resources import AnyResource, PromptTemplate


class PublishedTemplates:
    """Under `template.<namespace>.<name>`."""

    kind = PROMPT_TEMPLATES

    def bucket_key(self, key: ObjectKey) -> str:
        """The key of a template in the bucket."""
        return template_key(*key)

    def resolve(self, resource: AnyResource) -> Resolved:
        """The template, and the revision that rendered prompts carry."""
        if not isinstance(resource, PromptTemplate):
            raise TypeError(type(resource).__name__)
        template = resolve_template(resource)
        return Resolved(msgspec.json.encode(template), {"templateRevision": template.revision})

    def concerns(self, change: Change) -> tuple[ObjectKey, ...]:
        """A template depends on nothing else."""
        return ()
