"""The sample manifests pass schema and admission as they are; nothing in them is unknown."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import yaml

from inferencecache.schemas.resources import defaulted, document_of, read_resource
from tests.kube.objects import stored
from tests.support.kube import ROOT, Document, KubeClient

pytestmark = pytest.mark.kube


SAMPLES = pytest.mark.parametrize(
    "path", sorted((ROOT / "deploy" / "samples").glob("*.yaml")), ids=lambda path: path.stem
)


async def taken(client: KubeClient, namespace: str, path: Path) -> tuple[Document, Document]:
    """The sample, and what the server stores of it."""
    document = yaml.safe_load(path.read_text())
    if "namespace" in document["metadata"]:
        document["metadata"]["namespace"] = namespace
    made = await stored(client, document, strict=True)
    await client.delete(document["kind"], document["metadata"]["name"], namespace)
    return document, made


@SAMPLES
async def test_a_strict_server_takes_the_sample_and_defaults_it_as_the_structs_say(
    kube: KubeClient, namespace: str, path: Path
) -> None:
    document, made = await taken(kube, namespace, path)
    expected = msgspec.json.decode(msgspec.json.encode(document_of(defaulted(read_resource(document)))))
    assert made.get("spec") == expected.get("spec")


@pytest.mark.rule("OPS-122")
@SAMPLES
async def test_admission_takes_the_sample(guarded: KubeClient, guarded_namespace: str, path: Path) -> None:
    await taken(guarded, guarded_namespace, path)
