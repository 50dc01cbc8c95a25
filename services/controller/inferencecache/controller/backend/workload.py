"""Whether a Deployment does what is wanted of it [CTL-52]."""

from __future__ import annotations

from inferencecache.controller.backend.verdicts import (
    REPLICAS_UNAVAILABLE,
    ROLLOUT_IN_PROGRESS,
)
from inferencecache.core.kube.conditions import Verdict
from inferencecache.core.kube.kinds import Document


def workload_verdict(deployment: Document) -> Verdict:
    """By what the Deployment's own controller last reported."""
    status = deployment.get("status") or {}
    replicas = deployment["spec"].get("replicas")
    wanted = 1 if replicas is None else replicas
    updated, available = (status.get(f"{kind}Replicas", 0) for kind in ("updated", "available"))
    is_current = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
    if wanted == 0:
        return Verdict("False", "ScaledToZero", "the backend runs zero replicas")
    if is_current and updated >= wanted and available >= wanted:
        return Verdict("True", "BackendReady", f"{available}/{wanted} replicas available")
    if not is_current or updated < wanted:
        return Verdict("False", ROLLOUT_IN_PROGRESS, f"{updated}/{wanted} replicas updated")
    return Verdict("False", REPLICAS_UNAVAILABLE, f"{available}/{wanted} replicas available")
