"""Conditions of a backend, and the reasons that more than one judgement knows [CTL-150]."""

from __future__ import annotations

from typing import Final

READY: Final = "Ready"
DEGRADED: Final = "Degraded"
PROGRESSING: Final = "Progressing"
CONNECTOR_READY: Final = "ConnectorReady"
REMOTE_STORAGE_READY: Final = "RemoteStorageReady"
FUNCTIONAL_PROBE_OK: Final = "FunctionalProbeOK"
ENGINE_KERNELS_HEALTHY: Final = "EngineKernelsHealthy"
ENGINE_COMPATIBILITY: Final = "EngineCompatibility"
T2_DEGRADED: Final = "T2Degraded"

AWAITING_FIRST_EVENT: Final = "AwaitingFirstKVEvent"
NO_EVENTS: Final = "NoKVEventsObserved"
EVENTS_OBSERVED: Final = "KVEventsObserved"
ROLLOUT_IN_PROGRESS: Final = "RolloutInProgress"
REPLICAS_UNAVAILABLE: Final = "ReplicasUnavailable"
INJECTION_UNVERIFIED: Final = "ConnectorInjectionUnverified"

_LONGEST_REPORT: Final = 512


def shortened(report: str) -> str:
    """What a probe or an engine's image said, short enough for a condition [CTL-131]."""
    return report if len(report) <= _LONGEST_REPORT else report[: _LONGEST_REPORT - 3] + "..."
