"""Settings of pods that the controller makes."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from inferencecache.schemas.resources.core_types import (
    LocalObjectReference,
    PodSecurityContext,
    Toleration,
)
from inferencecache.schemas.resources.objects import Count64, Part


class PodSettings(Part, frozen=True):
    """What does not choose a node by itself; a kind of pods adds what does."""

    tolerations: Annotated[
        tuple[Toleration, ...] | None, Meta(description="Taints that do not keep its pods away.")
    ] = None
    image_pull_secrets: Annotated[
        tuple[LocalObjectReference, ...] | None, Meta(description="Secrets to pull the image with.")
    ] = None
    service_account_name: Annotated[str | None, Meta(description="Service account.")] = None
    security_context: Annotated[
        PodSecurityContext | None, Meta(description="Security settings of a pod.")
    ] = None
    priority_class_name: Annotated[str | None, Meta(description="Priority class.")] = None
    scheduler_name: Annotated[str | None, Meta(description="Scheduler.")] = None
    runtime_class_name: Annotated[str | None, Meta(description="Runtime class.")] = None
    termination_grace_period_seconds: Annotated[
        Count64 | None, Meta(description="Seconds that a pod has to end.")
    ] = None
