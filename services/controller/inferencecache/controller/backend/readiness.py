"""`Ready` before its gates, and what follows from it after them [CTL-107..110, CTL-143, CTL-144]."""

from __future__ import annotations

from inferencecache.controller.backend.verdicts import (
    AWAITING_FIRST_EVENT,
    INJECTION_UNVERIFIED,
    REPLICAS_UNAVAILABLE,
    ROLLOUT_IN_PROGRESS,
)
from inferencecache.core.kube.conditions import Verdict

NOT_DEGRADED = Verdict("False", "NotDegraded", "")


def typed_base(connector: Verdict | None, remote: Verdict | None, *, fail_open: bool) -> Verdict:
    """What a backend with LMCache servers starts from: never its store alone [CTL-108, CTL-109].

    `connector` is None unless it is about the generation at hand, `remote` without a store.
    """
    if connector is None:
        return Verdict(
            "Unknown", INJECTION_UNVERIFIED, "the engines of this generation were not looked at yet"
        )
    if not connector.holds:
        return connector
    if remote is None or remote.holds:
        return Verdict("True", "ConnectorReady", connector.message)
    if not fail_open:
        return remote
    message = f"the remote store is degraded, which does not gate with failOpen: {remote.message}"
    return Verdict("True", "ConnectorReady", message)


def degraded_by(base: Verdict) -> Verdict:
    """`Degraded` where the gate for KV events says nothing of it [CTL-143]."""
    is_degraded = (base.status, base.reason) == ("False", REPLICAS_UNAVAILABLE)
    return base._replace(status="True") if is_degraded else NOT_DEGRADED


def progressing_by(ready: Verdict) -> Verdict:
    """`Progressing`, which follows from the `Ready` that is published [CTL-144]."""
    if ready.holds:
        return Verdict("False", "Synced", ready.message)
    if ready.reason in (ROLLOUT_IN_PROGRESS, AWAITING_FIRST_EVENT):
        return ready._replace(status="True")
    reason = "Degraded" if ready.reason == REPLICAS_UNAVAILABLE else ready.reason
    return Verdict("False", reason, ready.message)
