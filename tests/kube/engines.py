"""Engine pods at an API server that asks no webhook, as admission would have left them."""

from __future__ import annotations

from collections.abc import Mapping

from tests.kube.objects import stored
from tests.support.backends import DOMAIN
from tests.support.engine_pods import PREFIX
from tests.support.kube import Document, KubeClient


def engine_pod(
    namespace: str,
    name: str,
    backend: Document | None = None,
    *,
    node: str = "",
    marks: Mapping[str, str] | None = None,
) -> Document:
    """A pod of the domain `engine`, wired for a backend where one is given; `marks` by the name after the
    slash.
    """
    annotations = {PREFIX + key: value for key, value in (marks or {}).items()}
    if backend is not None:
        metadata = backend["metadata"]
        annotations |= {
            f"{PREFIX}injected-by": f"{metadata['namespace']}/{metadata['name']}",
            f"{PREFIX}injected-by-uid": metadata["uid"],
            f"{PREFIX}injected-generation": str(metadata["generation"]),
        }
    spec: Document = {"containers": [{"name": "vllm", "image": "engine"}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {DOMAIN: "engine"},
            "annotations": annotations,
        },
        "spec": spec | ({"nodeName": node} if node else {}),
    }


async def stored_backend(kube: KubeClient, namespace: str, backend: Document) -> Document:
    """A backend of the worked cases in that namespace."""
    made = backend | {"metadata": {"name": backend["metadata"]["name"], "namespace": namespace}}
    return await stored(kube, made)


async def delete_pod(kube: KubeClient, pod: Document) -> None:
    """At once, as when its kubelet has ended it."""
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
    answer = await kube.call("DELETE", path, {"gracePeriodSeconds": 0})
    assert answer.status == 200, answer.body
