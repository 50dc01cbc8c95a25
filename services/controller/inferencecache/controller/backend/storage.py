"""What a backend says of its remote store [CTL-53..56, CTL-103..106]."""

from __future__ import annotations

from typing import Final

from inferencecache.controller.backend.verdicts import (
    ROLLOUT_IN_PROGRESS,
)
from inferencecache.controller.endpoints import problem_of_endpoint
from inferencecache.core.kube.conditions import Verdict

_UNAVAILABLE: Final = "RemoteStorageUnavailable"
_READY: Final = "RemoteStorageReady"


def managed_storage(workload: Verdict, endpoint: str, problem: str = "") -> Verdict:
    """By its Deployment and the endpoint of its Service, empty without one; `problem` says why [CTL-104]."""
    if workload.reason == ROLLOUT_IN_PROGRESS:
        return Verdict("Unknown", "RemoteStoragePending", workload.message)
    if not endpoint:
        return unavailable(problem or "no Service of the backend gives it an endpoint")
    if workload.holds:
        return Verdict("True", _READY, workload.message)
    return unavailable(workload.message)


def unavailable(message: str) -> Verdict:
    """A managed store that engines cannot use, and why."""
    return Verdict("False", _UNAVAILABLE, message)


def external_endpoint(endpoint: str) -> Verdict:
    """By the shape of the address alone: nothing is opened, the operator is trusted [CTL-53, CTL-54]."""
    if not endpoint.strip():
        return Verdict("False", "ExternalEndpointMissing", "the external endpoint is empty")
    if problem := problem_of_endpoint(endpoint):
        return Verdict("False", "ExternalEndpointInvalid", f"spec.remoteStorage.endpoint: {problem}")
    return Verdict("True", "ExternalEndpointAccepted", "the endpoint is accepted; nothing is provisioned")


def external_storage(accepted: Verdict) -> Verdict:
    """[CTL-105]."""
    if not accepted.holds:
        return accepted
    return Verdict("True", _READY, "the endpoint is accepted; that it can be reached is the operator's")
