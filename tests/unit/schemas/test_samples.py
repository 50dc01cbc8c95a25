"""The sample manifests are what a reader without a cluster takes, too."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import yaml

from inferencecache.schemas.resources import KINDS, document_of, read_resource, violations
from tests.kube.objects import SPECS, STATUSES, an_object

SAMPLES = sorted((Path(__file__).resolve().parents[3] / "deploy" / "samples").glob("*.yaml"))


def test_there_is_a_sample_of_every_kind() -> None:
    assert {yaml.safe_load(path.read_text())["kind"] for path in SAMPLES} == set(KINDS)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_is_a_resource_without_a_fault(path: Path) -> None:
    assert violations(read_resource(yaml.safe_load(path.read_text()))) == []


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_contract_names_is_read_and_written_again(kind: str) -> None:
    document = an_object(kind, "serving", SPECS[kind]) | {"status": STATUSES[kind]}
    written = document_of(read_resource(document))
    assert msgspec.json.decode(msgspec.json.encode(written)) == document
