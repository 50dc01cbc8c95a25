"""Backends and pods at an API server that asks the webhooks."""

from __future__ import annotations

import copy
import json

from inferencecache.controller.injection import SidecarSettings
from tests.support.backends import change
from tests.support.engine_pods import PREFIX, SIDECAR_IMAGE
from tests.support.kube import Document, KubeClient, new_namespace
from tests.support.webhooks import ServedWebhooks

OBSERVED = SidecarSettings(image=SIDECAR_IMAGE)


async def store_backend(
    webhooks: ServedWebhooks, kube: KubeClient, namespace: str, backend: Document
) -> Document:
    """The backend as stored in the namespace, with its status."""
    placed = change(backend, "metadata.namespace", namespace)
    # Case 35 needs two backends of a domain, and cases 43 to 46 override what is reserved.
    with webhooks.asleep():
        answer = await kube.create({key: value for key, value in placed.items() if key != "status"})
    assert answer.status == 201, answer
    if status := backend.get("status"):
        name = backend["metadata"]["name"]
        assert (await kube.set_status("CacheBackend", name, namespace, status)).status == 200
    return answer.body


def localized(expected: Document, stored: Document) -> Document:
    """An expectation with the namespace, uid and generation of a stored backend in the case's place."""
    metadata = stored["metadata"]
    generation = str(metadata["generation"])
    text = json.dumps(expected)
    for old, new in (
        ("team-a/cache@u-1#3", f"team-a/cache@u-1#{generation}"),
        ("team-a/cache", f"{metadata['namespace']}/cache"),
        ("u-1", metadata["uid"]),
    ):
        text = text.replace(old, new)
    document: Document = json.loads(text)
    annotations = document["metadata"].get("annotations", {})
    if f"{PREFIX}injected-generation" in annotations:
        annotations[f"{PREFIX}injected-generation"] = generation
    return document


async def completed(kube: KubeClient, pod: Document) -> Document:
    """The spec with what the server adds to it, where no webhook does anything."""
    elsewhere = await new_namespace(kube)
    plain = copy.deepcopy(pod)
    plain["metadata"] = {"name": pod["metadata"]["name"]}
    answer = await kube.create(change(plain, "metadata.namespace", elsewhere), strict=True, dry_run=True)
    assert answer.status == 201, answer
    spec: Document = answer.body["spec"]
    return spec
