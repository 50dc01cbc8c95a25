"""The guide to the doctor has what people search for, and sends nobody to what is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from inferencecache.cli.doctor.findings import CODES

DOCS = Path(__file__).parents[3] / "docs"
GUIDE = (DOCS / "doctor.md").read_text()
CONTROLLER = DOCS.parent / "services" / "controller"


@pytest.mark.rule("OPS-107")
@pytest.mark.parametrize(
    "reason",
    [
        *("AwaitingFirstKVEvent", "NoKVEventsObserved", "ConnectorInjectionUnverified", "NoEnginePods"),
        *("MPServersNotReady", "NodeLocalServerPoolPending", "NodeLocalHostPortConflict"),
        *("NodeLocalWorkerCapacityExceeded", "RemoteStorageReady", "RemoteStorageUnavailable"),
        *("ExternalEndpointMissing", "ExternalEndpointInvalid", "ProbeIngestFailed", "ProbeRoutingFailed"),
        *("ProbeT2Failed", "ProbeError", "ProbeBypassed", "EngineKernelsHealthy", "EngineCompatibility"),
        *("T2Degraded", "DuplicateTenantID", "FunctionalProbeOK", "lastUpdated", "engineSelectorMessage"),
    ],
)
def test_each_reason_can_be_searched(reason: str) -> None:
    assert reason in GUIDE


@pytest.mark.rule("OPS-108")
def test_conditions_come_before_the_doctor() -> None:
    assert GUIDE.index(".status.conditions") < GUIDE.index("$ inferencecache doctor")


def test_codes_that_the_guide_names_exist() -> None:
    named = set(re.findall(r"`([A-Z]{2,3}\d{3})`", GUIDE))
    assert named
    assert named <= CODES.keys()
    assert {code for code in CODES if code.startswith("EN00")} - named <= {"EN007", "EN008"}


def test_reasons_that_the_guide_names_are_the_controllers() -> None:
    written = "".join(path.read_text() for path in CONTROLLER.rglob("*.py"))
    named = set(re.findall(r"`(?:Ready|FunctionalProbeOK)=(?:True|False|Unknown)/(\w+)`", GUIDE))
    assert len(named) > 5
    assert {name for name in named if f'"{name}"' not in written} == set()
